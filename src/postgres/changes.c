/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the catalogs of the transaction. */
#include "postgres/changes.h"

#include "postgres/holder.h"
#include "postgres/protocol.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

/* Tables, partitioned ones, views of both kinds, sequences, foreign tables; not ours, not the server's. */
#define RELATIONS                                                                         \
	"pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace " \
	"WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND n.nspname !~ '^pg_' AND "  \
	"n.nspname <> 'information_schema'"
#define NAME "pg_catalog.format('%I.%I', n.nspname, c.relname)"
/* Of rows of the transaction itself: nobody else's that are younger can be seen in it. */
#define IS_OURS(column)                                                                           \
	"pg_catalog.age(" column ") <= pg_catalog.age(pg_catalog.mod(pg_catalog.txid_current(), " \
	"4294967296)::pg_catalog.text::pg_catalog.xid)"
#define CATALOGS                                                                      \
	"pg_catalog.pg_stat_xact_sys_tables s WHERE s.schemaname = 'pg_catalog' AND " \
	"s.relname !~ '^pg_statistic'"
#define TOUCHED "s.n_tup_ins + s.n_tup_upd + s.n_tup_del"

/* ---- before ---- */

static void take_relation(void *user, size_t n, const char *const *columns)
{
	struct baseline *b = user;

	if (n == 2 && grow((void **)&b->v, &b->cap, b->n + 1, sizeof(*b->v)) == 0)
		b->v[b->n++] = (struct relation){ xstrdup(columns[0]), xstrdup(columns[1]) };
}

int baseline_read(struct baseline *b, struct backend *conn, struct error *err)
{
	int r = backend_rows(conn, "SELECT c.oid, " NAME " FROM " RELATIONS, take_relation, b, err);

	if (r == 0)
		r = backend_run(
			conn,
			"SELECT pg_catalog.string_agg(pg_catalog.format('(%s::pg_catalog.oid, "
			"%s)', s.relid, " TOUCHED "), ', ') FROM " CATALOGS " AND " TOUCHED " > 0",
			&b->catalogs, err);
	return r;
}

void baseline_done(struct baseline *b)
{
	for (size_t i = 0; i < b->n; i++) {
		free(b->v[i].oid);
		free(b->v[i].name);
	}
	free(b->v);
	free(b->catalogs);
	*b = (struct baseline){ 0 };
}

/* As an array of the server. */
static void add_oids(const struct baseline *b, struct strbuf *sql)
{
	strbuf_puts(sql, "'{");
	for (size_t i = 0; i < b->n; i++)
		strbuf_printf(sql, "%s%s", i ? "," : "", b->v[i].oid);
	strbuf_puts(sql, "}'::pg_catalog.oid[]");
}

/* ---- now ---- */

struct telling {
	const struct baseline *before;
	struct strbuf *out;
	size_t relations;
};

static void tell_relation(void *user, size_t n, const char *const *columns)
{
	struct telling *t = user;

	if (n != 5)
		return;
	strbuf_printf(t->out, "%s %s %s %s %s\n", columns[0], columns[1], columns[2], columns[3],
	              columns[4]);
	t->relations++;
}

static void tell_dropped(void *user, size_t n, const char *const *columns)
{
	struct telling *t = user;

	for (size_t i = 0; n == 1 && i < t->before->n; i++) {
		if (strcmp(t->before->v[i].oid, columns[0]) != 0)
			continue;
		strbuf_printf(t->out, "%c 0 0 0 %s\n", PROTOCOL_DROPPED, t->before->v[i].name);
		t->relations++;
	}
}

/* All that changed, and of it what a table's coming and going does not explain. */
static void tell_catalogs(void *user, size_t n, const char *const *columns)
{
	struct telling *t = user;
	const char *names = n != 2 ? "" : t->relations ? columns[1] : columns[0];

	if (*names)
		strbuf_printf(t->out, "%c 0 0 0 %s\n", PROTOCOL_OTHER, names);
}

static int ask_relations(struct holder *h, struct telling *t, struct error *err)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	strbuf_puts(&sql, "SELECT CASE WHEN c.oid <> ALL (");
	add_oids(&h->before, &sql);
	strbuf_printf(&sql, ") THEN '%c' WHEN " IS_OURS("c.xmin") " THEN '%c' ELSE '%c' END, ",
	              PROTOCOL_ADDED, PROTOCOL_ALTERED, PROTOCOL_ROWS);
	strbuf_puts(&sql, "coalesce(s.n_tup_ins, 0), coalesce(s.n_tup_upd, 0), "
	                  "coalesce(s.n_tup_del, 0), " NAME
	                  " FROM pg_catalog.pg_stat_xact_user_tables s RIGHT JOIN "
	                  "pg_catalog.pg_class c ON s.relid = c.oid JOIN pg_catalog.pg_namespace n "
	                  "ON n.oid = c.relnamespace WHERE c.oid IN (SELECT c.oid FROM " RELATIONS
	                  ") AND (" IS_OURS("c.xmin") " OR " TOUCHED " > 0) ORDER BY 5");
	return holder_ask_now(h, strbuf_str(&sql), tell_relation, t, NULL, err);
}

static int ask_dropped(struct holder *h, struct telling *t, struct error *err)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	strbuf_puts(&sql, "SELECT o FROM pg_catalog.unnest(");
	add_oids(&h->before, &sql);
	strbuf_puts(&sql, ") o WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c "
	                  "WHERE c.oid = o)");
	return holder_ask_now(h, strbuf_str(&sql), tell_dropped, t, NULL, err);
}

static int ask_catalogs(struct holder *h, struct telling *t, struct error *err)
{
	const char *before = h->before.catalogs;
	cleanup_free char *sql = xasprintf(
		"SELECT pg_catalog.string_agg(s.relname, ', ' ORDER BY s.relname), "
		"pg_catalog.string_agg(s.relname, ', ' ORDER BY s.relname) FILTER (WHERE s.relname "
		"NOT IN ('pg_class', 'pg_type', 'pg_attribute', 'pg_attrdef', 'pg_constraint', "
		"'pg_depend', 'pg_shdepend', 'pg_index', 'pg_sequence', 'pg_inherits', "
		"'pg_partitioned_table', 'pg_rewrite', 'pg_trigger')) FROM " CATALOGS
		" AND " TOUCHED " > coalesce((SELECT b.n FROM (VALUES %s) b (relid, n) "
		"WHERE b.relid = s.relid), 0)",
		before && *before ? before : "(0::pg_catalog.oid, 0)");

	return holder_ask_now(h, sql, tell_catalogs, t, NULL, err);
}

int changes_add(struct holder *h, struct strbuf *out, struct error *err)
{
	struct telling t = { .before = &h->before, .out = out };
	int r = ask_relations(h, &t, err);

	if (r == 0)
		r = ask_dropped(h, &t, err);
	return r < 0 ? r : ask_catalogs(h, &t, err);
}
