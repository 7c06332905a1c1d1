/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the work differs from the base: what of the schema, and which rows of which tables.
 *
 * Rows are told apart by their primary keys, as changesets are. Where there is none, or it may be
 * NULL, or a column is generated, a table that differs can only be carried over with the whole.
 * A changeset compares as the columns say, where 'a' may equal 'A'; so what it found is counted
 * again byte by byte, and a table where that differs goes with the whole, too.
 */
#include "strategy/sqlite-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/mem.h"

static void entry_done(struct sqldb_entry *e)
{
	free(e->name);
	free(e->old_sql);
	free(e->new_sql);
}

void sqldb_delta_done(struct sqldb_delta *d)
{
	for (size_t i = 0; i < d->n; i++)
		entry_done(&d->v[i]);
	free(d->v);
	sqldb_tables_done(&d->base);
	sqldb_tables_done(&d->work);
	free(d->whole);
	sqlite3_free(d->changeset);
	*d = SQLDB_DELTA_INIT;
}

uint64_t sqldb_delta_count(const struct sqldb_delta *d)
{
	uint64_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct sqldb_entry *e = &d->v[i];
		uint64_t rows = e->added + e->changed + e->deleted;

		n += rows ? rows : 1;
	}
	return n;
}

static struct sqldb_entry *add_entry(struct sqldb_delta *d, const char *name, const char *type,
                                     enum atoll_change_kind kind)
{
	if (grow((void **)&d->v, &d->cap, d->n + 1, sizeof(*d->v)) < 0)
		BUG("no memory");
	d->v[d->n] = (struct sqldb_entry){ .name = xstrdup(name), .type = type, .kind = kind };
	return &d->v[d->n++];
}

static void set_whole(struct sqldb_delta *d, char *why)
{
	if (d->whole)
		free(why);
	else
		d->whole = why;
}

/* ---- schema ---- */

static const char *type_name(const char *type)
{
	static const char *const types[] = { "table", "index", "view", "trigger" };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i], type) == 0)
			return types[i];
	return "object";
}

#define SCHEMA_OF(db)                                          \
	"(SELECT type, name, coalesce(sql,'') AS sql FROM " db \
	".sqlite_schema WHERE tbl_name<>'" SQLDB_MARKER        \
	"' AND name NOT LIKE 'sqlite\\_%%' ESCAPE '\\')"

/* The tables in which a virtual table keeps its rows come and go with it. */
static bool is_shadow(const struct sqldb_delta *d, const char *name)
{
	const struct sqldb_table *t = sqldb_tables_find(&d->work, name);

	if (!t)
		t = sqldb_tables_find(&d->base, name);
	return t && t->is_shadow;
}

static int count_rows(struct atoll_participant *p, sqlite3 *db, struct sqldb_entry *e)
{
	bool added = e->kind == ATOLL_CHANGE_ADDED;
	int64_t n = 0;
	int r;

	if (strcmp(e->type, "table") != 0 || e->kind == ATOLL_CHANGE_CHANGED)
		return 0;
	r = sqldb_number(p, db, &n, "SELECT count(*) FROM %s.\"%w\"", added ? "main" : SQLDB_BASE,
	                 e->name);
	*(added ? &e->added : &e->deleted) = (uint64_t)n;
	return r;
}

static int read_schema(struct atoll_participant *p, sqlite3 *db, struct sqldb_delta *d)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r = sqldb_prepare(
		p, db, &stmt,
		"SELECT w.type, w.name, b.sql, w.sql FROM " SCHEMA_OF("main") " w LEFT JOIN " SCHEMA_OF(
			SQLDB_BASE) " b USING(type, name) WHERE w.sql IS NOT b.sql "
				    "UNION ALL SELECT b.type, b.name, b.sql, NULL FROM " SCHEMA_OF(
					    SQLDB_BASE) " b WHERE (b.type, b.name) NOT IN (SELECT type, name FROM "
							"main.sqlite_schema) ORDER BY 2, 1");

	while (r >= 0 && (r = sqldb_step(p, stmt)) == 1) {
		const char *type = type_name((const char *)sqlite3_column_text(stmt, 0));
		const char *name = (const char *)sqlite3_column_text(stmt, 1);
		const char *was = (const char *)sqlite3_column_text(stmt, 2);
		const char *is = (const char *)sqlite3_column_text(stmt, 3);
		struct sqldb_entry *e;

		set_whole(d, xstrdup("its schema was changed"));
		if (is_shadow(d, name))
			continue;
		e = add_entry(d, name, type,
		              !was  ? ATOLL_CHANGE_ADDED
		              : !is ? ATOLL_CHANGE_DELETED
		                    : ATOLL_CHANGE_CHANGED);
		e->old_sql = xstrdup(was);
		e->new_sql = xstrdup(is);
		r = count_rows(p, db, e);
	}
	return r;
}

/* Numbers in the header that programs keep for themselves. */
static int read_settings(struct atoll_participant *p, sqlite3 *db, struct sqldb_delta *d)
{
	static const char *const names[] = { "application_id", "user_version" };
	int r = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && r >= 0; i++) {
		int64_t was = 0, is = 0;
		struct sqldb_entry *e;

		r = sqldb_number(p, db, &was, "PRAGMA " SQLDB_BASE ".%s", names[i]);
		if (r >= 0)
			r = sqldb_number(p, db, &is, "PRAGMA main.%s", names[i]);
		if (r < 0 || was == is)
			continue;
		set_whole(d, xasprintf("its %s was changed", names[i]));
		e = add_entry(d, names[i], "setting", ATOLL_CHANGE_CHANGED);
		e->old_sql = xasprintf("PRAGMA %s=%lld", names[i], (long long)was);
		e->new_sql = xasprintf("PRAGMA %s=%lld", names[i], (long long)is);
	}
	return r;
}

/* ---- rows ---- */

static int has_null_keys(struct atoll_participant *p, sqlite3 *db, const struct sqldb_table *t,
                         int64_t *ret)
{
	static const char *const schemas[] = { "main", SQLDB_BASE };
	cleanup_strbuf struct strbuf where = STRBUF_INIT;
	int r = 0;

	*ret = 0;
	for (size_t i = 0; i < t->n_pk; i++) {
		cleanup_sqlite char *one = sqlite3_mprintf("\"%w\" IS NULL", t->pk[i]);

		strbuf_printf(&where, "%s%s", i ? " OR " : "", one ? one : "1");
	}
	for (size_t i = 0; i < 2 && r >= 0 && !*ret && t->null_keys && t->n_pk; i++)
		r = sqldb_number(p, db, ret, "SELECT EXISTS(SELECT 1 FROM %s.\"%w\" WHERE %s)",
		                 schemas[i], t->name, strbuf_str(&where));
	return r;
}

/* Why the rows of T cannot be told apart; NULL: they can. */
static int why_unkeyed(struct atoll_participant *p, sqlite3 *db, const struct sqldb_table *t,
                       char **ret)
{
	int64_t null_keys = 0;
	int r = has_null_keys(p, db, t, &null_keys);

	*ret = NULL;
	if (r < 0)
		return r;
	if (t->is_shadow)
		*ret = xasprintf("'%s' belongs to a virtual table", t->name);
	else if (!t->n_pk)
		*ret = xasprintf("table '%s' has no primary key", t->name);
	else if (t->generated)
		*ret = xasprintf("table '%s' has generated columns", t->name);
	else if (null_keys)
		*ret = xasprintf("table '%s' has rows whose key is NULL", t->name);
	return 0;
}

/* Equal as bytes, not as the column compares. */
static char *same_bytes(const struct sqldb_table *t)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_free char *columns = xstrdup(t->columns);
	char *at = columns;

	/* COLUMNS is a list of quoted names, in which quotes are doubled. */
	for (size_t i = 0; i < t->n_cols; i++) {
		char *end = at + 1;

		while (*end != '"' || end[1] == '"')
			end += *end == '"' ? 2 : 1;
		end++;
		strbuf_printf(&sb,
		              "%stypeof(w.%.*s)=typeof(b.%.*s) AND w.%.*s IS b.%.*s COLLATE BINARY",
		              i ? " AND " : "", (int)(end - at), at, (int)(end - at), at,
		              (int)(end - at), at, (int)(end - at), at);
		at = end + 1;
	}
	return strbuf_take(&sb);
}

static int count_exact(struct atoll_participant *p, sqlite3 *db, const struct sqldb_table *t,
                       int64_t *ret)
{
	cleanup_strbuf struct strbuf on = STRBUF_INIT;
	cleanup_free char *same = same_bytes(t);

	for (size_t i = 0; i < t->n_pk; i++) {
		cleanup_sqlite char *one = sqlite3_mprintf("w.\"%w\"=b.\"%w\"", t->pk[i], t->pk[i]);

		strbuf_printf(&on, "%s%s", i ? " AND " : "", one ? one : "1");
	}
	return sqldb_number(p, db, ret,
	                    "SELECT count(*) FROM main.\"%w\" w JOIN " SQLDB_BASE
	                    ".\"%w\" b ON %s WHERE NOT (%s)",
	                    t->name, t->name, strbuf_str(&on), same);
}

/* For people: without a key a changed row is one deleted and one added. */
static int count_unkeyed(struct atoll_participant *p, sqlite3 *db, const struct sqldb_table *t,
                         struct sqldb_entry *e)
{
	int64_t added = 0, deleted = 0;
	int r = sqldb_number(p, db, &added,
	                     "SELECT count(*) FROM (SELECT %s FROM main.\"%w\" EXCEPT SELECT %s "
	                     "FROM " SQLDB_BASE ".\"%w\")",
	                     t->columns, t->name, t->columns, t->name);

	if (r >= 0)
		r = sqldb_number(p, db, &deleted,
		                 "SELECT count(*) FROM (SELECT %s FROM " SQLDB_BASE
		                 ".\"%w\" EXCEPT SELECT %s FROM main.\"%w\")",
		                 t->columns, t->name, t->columns, t->name);
	e->added = (uint64_t)added;
	e->deleted = (uint64_t)deleted;
	return r;
}

static int count_changes(struct atoll_participant *p, const struct sqldb_delta *d,
                         const char *table, struct sqldb_entry *e)
{
	sqlite3_changeset_iter *it = NULL;
	int rc = sqlite3changeset_start(&it, d->changeset_len, d->changeset);

	while (rc == SQLITE_OK && sqlite3changeset_next(it) == SQLITE_ROW) {
		const char *name;
		int cols, op, indirect;

		rc = sqlite3changeset_op(it, &name, &cols, &op, &indirect);
		if (rc != SQLITE_OK || strcmp(name, table) != 0)
			continue;
		e->added += op == SQLITE_INSERT;
		e->changed += op == SQLITE_UPDATE;
		e->deleted += op == SQLITE_DELETE;
	}
	if (it)
		rc = sqlite3changeset_finalize(it);
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, NULL, rc, "compare");
}

/* 1 when rows of T differ, and the session has them if *RET_WHY is NULL. */
static int compare_table(struct atoll_participant *p, sqlite3 *db, sqlite3_session *session,
                         const struct sqldb_table *t, char **ret_why)
{
	char was[HASH_TEXT_LEN], is[HASH_TEXT_LEN];
	cleanup_sqlite char *text = NULL;
	int rc, r = sqldb_hash_table(p, db, SQLDB_BASE, t, was);

	if (r >= 0)
		r = sqldb_hash_table(p, db, "main", t, is);
	if (r < 0 || strcmp(was, is) == 0)
		return r;
	r = why_unkeyed(p, db, t, ret_why);
	if (r < 0 || *ret_why)
		return r < 0 ? r : 1;
	rc = sqlite3session_attach(session, t->name);
	if (rc == SQLITE_OK)
		rc = sqlite3session_diff(session, SQLDB_BASE, t->name, &text);
	return rc == SQLITE_OK ? 1 : sqldb_fail(p, db, rc, "compare");
}

static int compare_tables(struct atoll_participant *p, sqlite3 *db, sqlite3_session *session,
                          struct sqldb_delta *d)
{
	int r = 0;

	for (size_t i = 0; i < d->work.n && r >= 0; i++) {
		const struct sqldb_table *t = &d->work.v[i];
		const struct sqldb_table *was = sqldb_tables_find(&d->base, t->name);
		char *why = NULL;
		struct sqldb_entry *e;

		if (t->is_virtual || !was || strcmp(was->sql, t->sql) != 0)
			continue;
		r = compare_table(p, db, session, t, &why);
		if (r == 1 && !(t->is_shadow && why)) {
			e = add_entry(d, t->name, "table", ATOLL_CHANGE_CHANGED);
			e->keyed = !why;
			if (why)
				r = count_unkeyed(p, db, t, e);
		}
		if (why)
			set_whole(d, why);
	}
	return r;
}

/* A changeset that misses what only bytes tell is none. */
static int check_counts(struct atoll_participant *p, sqlite3 *db, struct sqldb_delta *d)
{
	int r = 0;

	for (size_t i = 0; i < d->n && r >= 0; i++) {
		struct sqldb_entry *e = &d->v[i];
		const struct sqldb_table *t = sqldb_tables_find(&d->work, e->name);
		int64_t exact = 0;

		if (!e->keyed)
			continue;
		r = count_changes(p, d, e->name, e);
		if (r >= 0)
			r = count_exact(p, db, t, &exact);
		if (r < 0 || (uint64_t)exact == e->changed)
			continue;
		e->keyed = false;
		e->changed = (uint64_t)exact;
		set_whole(d,
		          xasprintf("rows of '%s' differ only in how they are written", t->name));
	}
	return r;
}

static int by_name(const void *a, const void *b)
{
	const struct sqldb_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

int sqldb_delta_read(struct atoll_participant *p, sqlite3 *work, struct sqldb_delta *ret)
{
	sqlite3_session *session = NULL;
	int rc, r = sqldb_exec(p, work, "BEGIN");

	if (r >= 0)
		r = sqldb_tables_read(p, work, "main", &ret->work);
	if (r >= 0)
		r = sqldb_tables_read(p, work, SQLDB_BASE, &ret->base);
	if (r >= 0)
		r = read_schema(p, work, ret);
	if (r >= 0)
		r = read_settings(p, work, ret);
	if (r >= 0) {
		rc = sqlite3session_create(work, "main", &session);
		r = rc == SQLITE_OK ? compare_tables(p, work, session, ret)
		                    : sqldb_fail(p, work, rc, "compare");
	}
	if (r >= 0) {
		rc = sqlite3session_changeset(session, &ret->changeset_len, &ret->changeset);
		r = rc == SQLITE_OK ? check_counts(p, work, ret)
		                    : sqldb_fail(p, work, rc, "compare");
	}
	if (session)
		sqlite3session_delete(session);
	(void)sqlite3_exec(work, "ROLLBACK", NULL, NULL, NULL);
	if (ret->n > 1)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
	return r < 0 ? r : 0;
}
