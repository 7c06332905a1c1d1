/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plan did to a database, for people: a line per table, and as a patch the difference of
 * what `.dump` would print of the two.
 */
#include "strategy/sqlite-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/mem.h"

#define VALUE_MAX 4096 /* longer ones are only measured */

struct diffing {
	sqlite3 *db;
	const struct sqldb_delta *d;
	const struct sqldb_entry *e;
};

/* ---- lines ---- */

struct printing {
	struct atoll_participant *p;
	const struct diffing *in;
	atoll_line_fn fn;
	void *user;
};

static int print(const struct printing *pr, char sign, const char *text, size_t len)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	int r = 0;

	/* A definition may have several lines. */
	for (size_t at = 0; r >= 0 && at <= len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;

		strbuf_truncate(&sb, 0);
		strbuf_putc(&sb, sign);
		strbuf_add(&sb, text + at, n);
		r = pr->fn(pr->user, sb.buf, sb.len);
		at += n + 1;
	}
	return r;
}

static void put_text(struct strbuf *sb, const char *text, size_t len)
{
	bool lines = memchr(text, '\n', len) || memchr(text, '\r', len);

	strbuf_puts(sb, lines ? "replace(replace('" : "'");
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\'')
			strbuf_puts(sb, "''");
		else if (text[i] == '\n')
			strbuf_puts(sb, "\\n");
		else if (text[i] == '\r')
			strbuf_puts(sb, "\\r");
		else
			strbuf_putc(sb, text[i]);
	}
	strbuf_puts(sb, lines ? "','\\n',char(10)),'\\r',char(13))" : "'");
}

static void put_value(struct strbuf *sb, sqlite3_stmt *stmt, int column)
{
	int type = sqlite3_column_type(stmt, column);
	int len =
		type == SQLITE_TEXT || type == SQLITE_BLOB ? sqlite3_column_bytes(stmt, column) : 0;

	if (len > VALUE_MAX) {
		strbuf_printf(sb, "/* %d bytes */", len);
	} else if (type == SQLITE_TEXT) {
		put_text(sb, (const char *)sqlite3_column_text(stmt, column), (size_t)len);
	} else if (type == SQLITE_BLOB) {
		const unsigned char *data = sqlite3_column_blob(stmt, column);

		strbuf_puts(sb, "X'");
		for (int i = 0; i < len; i++)
			strbuf_printf(sb, "%02X", data[i]);
		strbuf_putc(sb, '\'');
	} else if (type == SQLITE_FLOAT) {
		strbuf_printf(sb, "%.17g", sqlite3_column_double(stmt, column));
	} else {
		strbuf_puts(sb, type == SQLITE_NULL
		                        ? "NULL"
		                        : (const char *)sqlite3_column_text(stmt, column));
	}
}

static int print_row(const struct printing *pr, char sign, const struct sqldb_table *t,
                     sqlite3_stmt *stmt)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_sqlite char *name = sqlite3_mprintf("\"%w\"", t->name);

	strbuf_printf(&sb, "INSERT INTO %s(%s) VALUES(", name ? name : "", t->columns);
	for (size_t i = 0; i < t->n_cols; i++) {
		strbuf_puts(&sb, i ? "," : "");
		put_value(&sb, stmt, (int)i);
	}
	strbuf_puts(&sb, ");");
	return print(pr, sign, sb.buf, sb.len);
}

static int print_rows(const struct printing *pr, char sign, const struct sqldb_table *t,
                      sqlite3_stmt *stmt)
{
	int r;

	while ((r = sqldb_step(pr->p, stmt)) == 1) {
		r = print_row(pr, sign, t, stmt);
		if (r < 0)
			return r;
	}
	return r;
}

/* All rows of a table that is on one side only. */
static int print_all(const struct printing *pr, char sign, const char *schema,
                     const struct sqldb_table *t)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r;

	if (t->is_virtual)
		return 0;
	r = sqldb_prepare(pr->p, pr->in->db, &stmt, "SELECT %s FROM %s.\"%w\"", t->columns, schema,
	                  t->name);
	return r < 0 ? r : print_rows(pr, sign, t, stmt);
}

/* Without a key: what one side has and the other has not. */
static int print_except(const struct printing *pr, char sign, const char *schema, const char *other,
                        const struct sqldb_table *t)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r = sqldb_prepare(pr->p, pr->in->db, &stmt,
	                      "SELECT %s FROM %s.\"%w\" EXCEPT SELECT %s FROM %s.\"%w\"",
	                      t->columns, schema, t->name, t->columns, other, t->name);

	return r < 0 ? r : print_rows(pr, sign, t, stmt);
}

static int print_found(const struct printing *pr, char sign, const struct sqldb_table *t,
                       sqlite3_stmt *find, sqlite3_changeset_iter *it, int op)
{
	int r;

	(void)sqlite3_reset(find);
	for (size_t i = 0; i < t->n_pk; i++) {
		sqlite3_value *v = NULL;

		if (op == SQLITE_INSERT)
			(void)sqlite3changeset_new(it, t->pk_at[i], &v);
		else
			(void)sqlite3changeset_old(it, t->pk_at[i], &v);
		(void)sqlite3_bind_value(find, (int)i + 1, v);
	}
	r = sqldb_step(pr->p, find);
	return r == 1 ? print_row(pr, sign, t, find) : r;
}

static int print_changeset(const struct printing *pr, const struct sqldb_table *t)
{
	cleanup_stmt sqlite3_stmt *was = NULL, *is = NULL;
	sqlite3_changeset_iter *it = NULL;
	int rc = SQLITE_OK;
	int r = sqldb_prepare(pr->p, pr->in->db, &was,
	                      "SELECT %s FROM " SQLDB_BASE ".\"%w\" WHERE %s", t->columns, t->name,
	                      t->match);

	if (r >= 0)
		r = sqldb_prepare(pr->p, pr->in->db, &is, "SELECT %s FROM main.\"%w\" WHERE %s",
		                  t->columns, t->name, t->match);
	if (r >= 0)
		rc = sqlite3changeset_start(&it, pr->in->d->changeset_len, pr->in->d->changeset);
	while (it && r >= 0 && sqlite3changeset_next(it) == SQLITE_ROW) {
		const char *name;
		int cols, op, indirect;

		rc = sqlite3changeset_op(it, &name, &cols, &op, &indirect);
		if (rc != SQLITE_OK || strcmp(name, t->name) != 0)
			continue;
		if (op != SQLITE_INSERT)
			r = print_found(pr, '-', t, was, it, op);
		if (r >= 0 && op != SQLITE_DELETE)
			r = print_found(pr, '+', t, is, it, op);
	}
	(void)sqlite3changeset_finalize(it);
	return r < 0 || rc == SQLITE_OK ? r : sqldb_fail(pr->p, pr->in->db, rc, "compare");
}

static int print_schema(const struct printing *pr, const struct sqldb_entry *e)
{
	static const char signs[] = { '-', '+' };
	const char *const sides[] = { e->old_sql, e->new_sql };
	int r = 0;

	for (int i = 0; i < 2 && r >= 0; i++) {
		cleanup_free char *text = sides[i] ? xasprintf("%s;", sides[i]) : NULL;

		if (text)
			r = print(pr, signs[i], text, strlen(text));
	}
	return r;
}

int sqldb_lines(struct atoll_participant *p, const struct atoll_change *change, atoll_line_fn fn,
                void *user)
{
	const struct diffing *in = p->state;
	const struct printing pr = { p, in, fn, user };
	const struct sqldb_table *t;
	int r;

	if (!in || strcmp(in->e->name, change->path) != 0)
		return 0;
	r = print_schema(&pr, in->e);
	if (r < 0 || strcmp(in->e->type, "table") != 0)
		return r < 0 ? r : 1;
	t = sqldb_tables_find(in->e->kind == ATOLL_CHANGE_DELETED ? &in->d->base : &in->d->work,
	                      in->e->name);
	if (in->e->kind == ATOLL_CHANGE_ADDED)
		r = print_all(&pr, '+', "main", t);
	else if (in->e->kind == ATOLL_CHANGE_DELETED)
		r = print_all(&pr, '-', SQLDB_BASE, t);
	else if (in->e->keyed)
		r = print_changeset(&pr, t);
	else if (!in->e->new_sql) /* altered: rows of another shape */
		r = print_except(&pr, '-', SQLDB_BASE, "main", t);
	if (r >= 0 && !in->e->keyed && in->e->kind == ATOLL_CHANGE_CHANGED && !in->e->new_sql)
		r = print_except(&pr, '+', "main", SQLDB_BASE, t);
	return r < 0 ? r : 1;
}

/* ---- a line per thing ---- */

static void add_count(struct strbuf *sb, uint64_t n, const char *what)
{
	if (!n)
		return;
	strbuf_printf(sb, "%s%llu ", sb->len ? ", " : "", (unsigned long long)n);
	strbuf_printf(sb,
	              sb->len && strchr(sb->buf, ',') ? "%s"
	              : n == 1                        ? "row %s"
	                                              : "rows %s",
	              what);
}

/* "3 rows added, 1 changed, 1 deleted"; "index added"; "user_version 1 -> 2" */
static char *describe(const struct sqldb_entry *e)
{
	static const char *const done[] = { [ATOLL_CHANGE_ADDED] = "added",
		                            [ATOLL_CHANGE_CHANGED] = "changed",
		                            [ATOLL_CHANGE_DELETED] = "deleted" };
	cleanup_strbuf struct strbuf sb = STRBUF_INIT, rows = STRBUF_INIT;

	add_count(&rows, e->added, "added");
	add_count(&rows, e->changed, "changed");
	add_count(&rows, e->deleted, "deleted");
	if (e->old_sql || e->new_sql || !rows.len)
		strbuf_printf(&sb, "%s %s", e->type, done[e->kind]);
	if (strcmp(e->type, "setting") == 0) {
		strbuf_truncate(&sb, 0);
		strbuf_printf(&sb, "%s -> %s", strchr(e->old_sql, '=') + 1,
		              strchr(e->new_sql, '=') + 1);
	}
	if (rows.len)
		strbuf_printf(&sb, "%s%s", sb.len ? ", " : "", rows.buf);
	return strbuf_take(&sb);
}

int sqldb_diff(struct atoll_participant *p)
{
	cleanup_sqldb_delta struct sqldb_delta d = SQLDB_DELTA_INIT;
	cleanup_sqldb sqlite3 *db = NULL;
	struct diffing in = { .d = &d };
	int r;

	if (p->stale)
		return 0;
	r = sqldb_workspace_untouched(p);
	if (r != 0)
		return r < 0 ? r : 0;
	r = sqldb_workspace_open(p, false, &db);
	if (r >= 0)
		r = sqldb_delta_read(p, db, &d);
	in.db = db;
	p->state = &in;
	p->state_free = NULL;
	for (size_t i = 0; i < d.n && r >= 0; i++) {
		cleanup_free char *detail = describe(&d.v[i]);

		in.e = &d.v[i];
		r = atoll_participant_change(p,
		                             &(struct atoll_change){ .path = d.v[i].name,
		                                                     .kind = d.v[i].kind,
		                                                     .what = ATOLL_CHANGE_CONTENT,
		                                                     .detail = detail });
	}
	p->state = NULL;
	return r;
}
