/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on both sides of a transaction. */
#include "postgres/rows.h"

#include "postgres/backend.h"
#include "postgres/protocol.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 100000 /* what is more is only counted */

struct row {
	char *key, *text;
	char sign; /* '-' before '+' of the same key */
};

struct rows_list {
	struct row *v;
	size_t n, cap, more;
};

struct sides {
	const struct rows_options *opt;
	struct backend *inside, *outside;
	char *table; /* as a literal */
	char *key;   /* what tells a row from others, as SQL */
	char *since; /* the transaction's number, as the type xid */
	struct rows_list rows;
};

static void sides_done(struct sides *s)
{
	backend_free(s->inside);
	backend_free(s->outside);
	for (size_t i = 0; i < s->rows.n; i++) {
		free(s->rows.v[i].key);
		free(s->rows.v[i].text);
	}
	free(s->rows.v);
	free(s->table);
	free(s->key);
	free(s->since);
}
#define cleanup_sides __attribute__((__cleanup__(sides_done)))

/* ---- both sides ---- */

static int connect_inside(struct sides *s, struct error *err)
{
	cleanup_close int fd = open(s->opt->dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *info = NULL;

	if (fd < 0)
		return error_sys(err, -errno, "open", s->opt->dir);
	/* By way of the descriptor: an address has no room for a long path. */
	info = xasprintf("host=/proc/self/fd/%d/" PROTOCOL_CLIENTS_DIR " port=" PROTOCOL_PORT
	                 " sslmode=disable",
	                 fd);
	return backend_connect_as(info, backend_user(s->outside), backend_database(s->outside),
	                          &s->inside, err);
}

/* Both speak the server's own encoding, so that bytes can be compared. */
static int begin(struct backend *b, const char *how, struct error *err)
{
	int r = backend_run(b,
	                    "SELECT pg_catalog.set_config('client_encoding', "
	                    "pg_catalog.current_setting('server_encoding'), false)",
	                    NULL, err);

	return r < 0 ? r : backend_run(b, how, NULL, err);
}

static int ask_key(struct sides *s, struct error *err)
{
	cleanup_free char *columns = NULL;
	cleanup_free char *sql = xasprintf(
		"SELECT pg_catalog.string_agg(pg_catalog.format('x.%%I', a.attname), ', ' "
		"ORDER BY a.attnum) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON "
		"a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND "
		"i.indrelid = pg_catalog.to_regclass(%s)",
		s->table);
	int r = backend_run(s->inside, sql, &columns, err);

	if (r == 0)
		r = backend_run(s->inside,
		                "SELECT pg_catalog.mod(pg_catalog.txid_current(), 4294967296)",
		                &s->since, err);
	s->key = columns && *columns ? xasprintf("ROW(%s)::pg_catalog.text", columns)
	                             : xstrdup("x::pg_catalog.text");
	return r;
}

static int open_sides(struct sides *s, struct error *err)
{
	int r = backend_connect(s->opt->url, &s->outside, err);

	if (r == 0)
		r = connect_inside(s, err);
	/* The plan itself may have the table locked: nobody is to wait for that. */
	if (r == 0)
		r = begin(s->outside,
		          "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout "
		          "= '500ms'",
		          err);
	if (r == 0)
		r = begin(s->inside, "BEGIN", err);
	if (r < 0)
		return r;
	s->table = backend_literal(s->outside, s->opt->table);
	return ask_key(s, err);
}

/* ---- rows ---- */

struct taking {
	struct rows_list *to;
	char sign;
};

static void take_row(void *user, size_t n, const char *const *columns)
{
	const struct taking *t = user;

	if (n != 2)
		return;
	if (t->to->n >= ROWS_MAX ||
	    grow((void **)&t->to->v, &t->to->cap, t->to->n + 1, sizeof(*t->to->v)) < 0)
		t->to->more++;
	else
		t->to->v[t->to->n++] =
			(struct row){ xstrdup(columns[0]), xstrdup(columns[1]), t->sign };
}

static int take(struct sides *s, struct backend *from, char sign, const char *where,
                struct error *err)
{
	cleanup_free char *sql = xasprintf("SELECT %s, x::pg_catalog.text FROM %s x WHERE %s",
	                                   s->key, s->opt->table, where);
	struct taking t = { &s->rows, sign };

	return backend_rows(from, sql, take_row, &t, err);
}

static void add_keys(const struct sides *s, struct backend *b, size_t from, struct strbuf *sql)
{
	strbuf_printf(sql, "%s IN (NULL", s->key);
	for (size_t i = from; i < s->rows.n; i++) {
		cleanup_free char *key = backend_literal(b, s->rows.v[i].key);

		strbuf_printf(sql, ", %s", key);
	}
	strbuf_putc(sql, ')');
}

static int take_new(struct sides *s, struct error *err)
{
	cleanup_free char *where = xasprintf(
		"pg_catalog.age(x.xmin) <= pg_catalog.age('%s'::pg_catalog.xid)", s->since);

	return take(s, s->inside, '+', where, err);
}

/* Displaced by somebody, and perhaps by us; or with a new version inside. */
static int take_old(struct sides *s, struct error *err)
{
	cleanup_strbuf struct strbuf where = STRBUF_INIT;

	strbuf_printf(
		&where,
		"(x.xmax <> '0'::pg_catalog.xid AND pg_catalog.age(x.xmax) <= pg_catalog.age('%s'::pg_catalog.xid)) OR ",
		s->since);
	add_keys(s, s->outside, 0, &where);
	return take(s, s->outside, '-', strbuf_str(&where), err);
}

static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order                ? order
	       : x->sign == y->sign ? strcmp(x->text, y->text)
	                            : (x->sign == '+') - (y->sign == '+');
}

struct present {
	struct rows_list *rows;
	size_t from;
};

/* It is inside as it is outside: others wrote to it, or nobody but locked it. */
static void drop_present(void *user, size_t n, const char *const *columns)
{
	const struct present *p = user;

	for (size_t i = p->from; n == 2 && i < p->rows->n; i++)
		if (strcmp(p->rows->v[i].key, columns[0]) == 0)
			p->rows->v[i].sign = ' ';
}

/* Of the rows from FROM on, which look displaced, those that the transaction left alone. */
static int drop_untouched(struct sides *s, size_t from, struct error *err)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	struct present p = { &s->rows, from };

	if (from == s->rows.n)
		return 0;
	strbuf_printf(&sql,
	              "SELECT %s, '' FROM %s x WHERE pg_catalog.age(x.xmin) > "
	              "pg_catalog.age('%s'::pg_catalog.xid) AND ",
	              s->key, s->opt->table, s->since);
	add_keys(s, s->inside, from, &sql);
	return backend_rows(s->inside, strbuf_str(&sql), drop_present, &p, err);
}

/* ---- telling ---- */

static void tell_row(const struct sides *s, const struct row *row)
{
	cleanup_strbuf struct strbuf line = STRBUF_INIT;

	strbuf_putc(&line, row->sign);
	for (const char *c = row->text; *c; c++) {
		if (*c == '\n' || *c == '\r')
			strbuf_puts(&line, *c == '\n' ? "\\n" : "\\r");
		else
			strbuf_putc(&line, *c);
	}
	s->opt->line(s->opt->user, strbuf_str(&line));
}

static void tell(struct sides *s)
{
	cleanup_free char *more = NULL;
	struct row *v = s->rows.v;

	if (s->rows.n)
		qsort(v, s->rows.n, sizeof(*v), by_key);
	for (size_t i = 0; i < s->rows.n; i++) {
		bool pair = i + 1 < s->rows.n && v[i].sign == '-' && v[i + 1].sign == '+' &&
		            strcmp(v[i].text, v[i + 1].text) == 0;

		if (pair)
			i++; /* written anew, the same as before */
		else if (v[i].sign != ' ')
			tell_row(s, &v[i]);
	}
	if (s->rows.more == 0)
		return;
	more = xasprintf("@@ and %zu rows more @@", s->rows.more);
	s->opt->line(s->opt->user, more);
}

static int ask_exists(struct backend *b, const struct sides *s, bool *ret, struct error *err)
{
	cleanup_free char *found = NULL;
	cleanup_free char *sql =
		xasprintf("SELECT 1 WHERE pg_catalog.to_regclass(%s) IS NOT NULL", s->table);
	int r = backend_run(b, sql, &found, err);

	*ret = found != NULL;
	return r;
}

static int compare(struct sides *s, bool there, struct error *err)
{
	cleanup_error struct error locked = ERROR_INIT;
	size_t n;
	int r = take_new(s, err);

	if (r < 0 || !there)
		return r;
	n = s->rows.n;
	if (take_old(s, &locked) < 0) {
		s->opt->line(s->opt->user, "@@ the rows before cannot be read now @@");
		return 0;
	}
	return drop_untouched(s, n, err);
}

int rows(const struct rows_options *opt, struct error *err)
{
	cleanup_sides struct sides s = { .opt = opt };
	bool here = false, there = false;
	int r = open_sides(&s, err);

	if (r == 0)
		r = ask_exists(s.inside, &s, &here, err);
	if (r == 0)
		r = ask_exists(s.outside, &s, &there, err);
	if (r < 0)
		return r;
	if (!here)
		opt->line(opt->user, "@@ dropped @@");
	else
		r = compare(&s, there, err);
	if (r == 0)
		tell(&s);
	return r;
}
