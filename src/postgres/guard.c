/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL of the guard. */
#include "postgres/guard.h"

#include "postgres/sql.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#include <stdlib.h>

#define TOKEN_LEN 32
#define NAME_LEN  12

const char guard_schema_query[] =
	"SELECT quote_ident(nspname) FROM pg_catalog.pg_namespace "
	"WHERE pg_catalog.has_schema_privilege(oid, 'CREATE') "
	"AND pg_catalog.has_schema_privilege(oid, 'USAGE') AND nspname !~ '^pg_' "
	"AND nspname <> 'information_schema' ORDER BY nspname = 'public' DESC, nspname LIMIT 1";

static int choose_names(struct guard *g, struct backend *b, struct error *err)
{
	cleanup_free char *schema = NULL;
	char name[NAME_LEN + 1], token[TOKEN_LEN + 1];
	int r = backend_run(b, guard_schema_query, &schema, err);

	if (r < 0)
		return r;
	if (!schema)
		return error_set(err, -ATOLL_E_CANNOT_PREPARE,
		                 "'%s' may create in no schema of '%s', so the transaction cannot "
		                 "be guarded",
		                 backend_user(b), backend_database(b));
	random_hex(name, NAME_LEN);
	random_hex(token, TOKEN_LEN);
	g->table = xasprintf("%s.%s_guard_%s", schema, SQL_OURS, name);
	g->function = xasprintf("%s.%s_guard_%s", schema, SQL_OURS, name);
	g->trigger = xasprintf("%s_guard_%s", SQL_OURS, name);
	g->token = xstrdup(token);
	return 0;
}

int guard_make(struct guard *g, struct backend *b, struct error *err)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	cleanup_free char *hash = NULL;
	int r = choose_names(g, b, err);

	if (r < 0)
		return r;
	strbuf_printf(&sql, "SELECT pg_catalog.md5('%s')", g->token);
	r = backend_run(b, strbuf_str(&sql), &hash, err);
	if (r < 0)
		return r;
	strbuf_truncate(&sql, 0);
	strbuf_printf(&sql,
	              "CREATE TABLE %s (i pg_catalog.int4);"
	              "CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $g$ BEGIN "
	              "IF pg_catalog.md5(pg_catalog.current_setting('atoll.token', true)) "
	              "IS DISTINCT FROM '%s' THEN RAISE EXCEPTION "
	              "'a sandboxed transaction is committed by atoll only' "
	              "USING ERRCODE = '25000'; END IF; RETURN NULL; END $g$;",
	              g->table, g->function, hash);
	strbuf_printf(&sql,
	              "CREATE CONSTRAINT TRIGGER %s AFTER INSERT ON %s DEFERRABLE INITIALLY "
	              "DEFERRED FOR EACH ROW EXECUTE FUNCTION %s(); INSERT INTO %s VALUES (1)",
	              g->trigger, g->table, g->function, g->table);
	r = backend_run(b, strbuf_str(&sql), NULL, err);
	return error_prefix(err, r, "cannot guard the transaction");
}

void guard_done(struct guard *g)
{
	free(g->table);
	free(g->trigger);
	free(g->function);
	free(g->token);
	*g = GUARD_INIT;
}

void guard_add_check(const struct guard *g, struct strbuf *sql, const char *deferred)
{
	strbuf_printf(sql, "SET LOCAL atoll.token = '%s'; SET CONSTRAINTS ALL IMMEDIATE; ",
	              g->token);
	strbuf_printf(sql, "SET CONSTRAINTS %s%s%s DEFERRED; ", g->table, *deferred ? ", " : "",
	              deferred);
	strbuf_printf(sql, "INSERT INTO %s VALUES (1); SET LOCAL atoll.token = ''; ", g->table);
}

void guard_add_drop(const struct guard *g, struct strbuf *sql)
{
	strbuf_printf(sql,
	              "SET LOCAL atoll.token = '%s'; SET CONSTRAINTS ALL IMMEDIATE; "
	              "DROP TABLE %s; DROP FUNCTION %s(); SET LOCAL atoll.token = '';",
	              g->token, g->table, g->function);
}

void guard_add_names(const struct guard *g, struct strbuf *sql)
{
	strbuf_printf(sql,
	              "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.format('%%I.%%I', "
	              "n.nspname, c.conname), ', ') FROM pg_catalog.pg_constraint c "
	              "JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace "
	              "WHERE c.condeferred AND c.conname <> '%s'",
	              g->trigger);
}
