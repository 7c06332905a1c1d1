/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a database, and hashes of what is in them. */
#include "strategy/sqlite-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/mem.h"

static void table_done(struct sqldb_table *t)
{
	for (size_t i = 0; i < t->n_pk; i++)
		free(t->pk[i]);
	free(t->pk);
	free(t->pk_at);
	free(t->name);
	free(t->sql);
	free(t->columns);
	free(t->match);
}

void sqldb_tables_done(struct sqldb_tables *t)
{
	for (size_t i = 0; i < t->n; i++)
		table_done(&t->v[i]);
	free(t->v);
	*t = SQLDB_TABLES_INIT;
}

static int by_name(const void *a, const void *b)
{
	const struct sqldb_table *x = a, *y = b;

	return strcmp(x->name, y->name);
}

const struct sqldb_table *sqldb_tables_find(const struct sqldb_tables *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->v[i].name, name) == 0)
			return &t->v[i];
	return NULL;
}

static char *text_of(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return xstrdup(text ? text : "");
}

static void quote(struct strbuf *sb, const char *name)
{
	cleanup_sqlite char *quoted = sqlite3_mprintf("\"%w\"", name);

	strbuf_puts(sb, quoted ? quoted : "");
}

/* ---- columns and keys ---- */

/* One row of table_xinfo: name, pk, hidden, notnull. */
static void add_column(struct sqldb_table *t, struct strbuf *columns, sqlite3_stmt *stmt)
{
	const char *name = (const char *)sqlite3_column_text(stmt, 0);
	int pk = sqlite3_column_int(stmt, 1), hidden = sqlite3_column_int(stmt, 2);

	if (hidden) {
		t->generated = t->generated || hidden > 1;
		return;
	}
	if (columns->len)
		strbuf_putc(columns, ',');
	quote(columns, name);
	if (pk > 0) {
		size_t n = (size_t)pk > t->n_pk ? (size_t)pk : t->n_pk;

		/* They come in the order of columns, not of the key. */
		t->pk = realloc(t->pk, n * sizeof(*t->pk));
		t->pk_at = realloc(t->pk_at, n * sizeof(*t->pk_at));
		if (!t->pk || !t->pk_at)
			BUG("no memory");
		for (size_t i = t->n_pk; i < n; i++)
			t->pk[i] = NULL;
		t->n_pk = n;
		t->pk[pk - 1] = xstrdup(name);
		t->pk_at[pk - 1] = (int)t->n_cols;
		if (!sqlite3_column_int(stmt, 3))
			t->null_keys = true;
	}
	t->n_cols++;
}

static void make_match(struct sqldb_table *t)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < t->n_pk; i++) {
		strbuf_puts(&sb, i ? " AND " : "");
		quote(&sb, t->pk[i]);
		strbuf_printf(&sb, "=?%zu", i + 1);
	}
	t->match = strbuf_take(&sb);
}

static int read_columns(struct atoll_participant *p, sqlite3 *db, const char *schema,
                        struct sqldb_table *t, bool without_rowid)
{
	cleanup_strbuf struct strbuf columns = STRBUF_INIT;
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r = sqldb_prepare(p, db, &stmt,
	                      "SELECT name, pk, hidden, \"notnull\", upper(type) FROM "
	                      "pragma_table_xinfo(%Q,%Q)",
	                      t->name, schema);
	bool integer = false;

	while (r >= 0 && (r = sqldb_step(p, stmt)) == 1) {
		add_column(t, &columns, stmt);
		if (sqlite3_column_int(stmt, 1))
			integer =
				strcmp((const char *)sqlite3_column_text(stmt, 4), "INTEGER") == 0;
	}
	/* The row's own number is never NULL, nor is any key of a table that is its index. */
	if (without_rowid || (t->n_pk == 1 && integer))
		t->null_keys = false;
	t->columns = strbuf_take(&columns);
	make_match(t);
	return r;
}

static int add_table(struct atoll_participant *p, sqlite3 *db, const char *schema,
                     sqlite3_stmt *stmt, struct sqldb_tables *ret)
{
	const char *type = (const char *)sqlite3_column_text(stmt, 1);
	struct sqldb_table *t;
	int r = grow((void **)&ret->v, &ret->cap, ret->n + 1, sizeof(*ret->v));

	if (r < 0)
		return error_set(&p->err, r, "no memory for the tables of '%s'", p->root);
	t = &ret->v[ret->n++];
	*t = (struct sqldb_table){ .name = text_of(stmt, 0),
		                   .sql = text_of(stmt, 3),
		                   .is_virtual = strcmp(type, "virtual") == 0,
		                   .is_shadow = strcmp(type, "shadow") == 0 };
	return t->is_virtual ? 0 : read_columns(p, db, schema, t, sqlite3_column_int(stmt, 2) != 0);
}

int sqldb_tables_read(struct atoll_participant *p, sqlite3 *db, const char *schema,
                      struct sqldb_tables *ret)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r = sqldb_prepare(p, db, &stmt,
	                      "SELECT l.name, l.type, l.wr, s.sql FROM pragma_table_list l JOIN "
	                      "\"%w\".sqlite_schema s ON s.name=l.name AND s.type='table' "
	                      "WHERE l.schema=%Q AND l.name NOT LIKE 'sqlite\\_%%' ESCAPE '\\' AND "
	                      "l.name<>'" SQLDB_MARKER "'",
	                      schema, schema);

	while (r >= 0 && (r = sqldb_step(p, stmt)) == 1)
		r = add_table(p, db, schema, stmt, ret);
	if (r >= 0 && ret->n > 1)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
	return r;
}

/* ---- hashes ---- */

static void hash_value(struct hash *h, sqlite3_stmt *stmt, int column)
{
	int type = sqlite3_column_type(stmt, column);
	const unsigned char mark = (unsigned char)type;

	hash_add(h, &mark, 1);
	if (type == SQLITE_INTEGER) {
		sqlite3_int64 v = sqlite3_column_int64(stmt, column);

		hash_add(h, &v, sizeof(v));
	} else if (type == SQLITE_FLOAT) {
		double v = sqlite3_column_double(stmt, column);

		hash_add(h, &v, sizeof(v));
	} else if (type != SQLITE_NULL) {
		const void *data = type == SQLITE_TEXT
		                           ? (const void *)sqlite3_column_text(stmt, column)
		                           : sqlite3_column_blob(stmt, column);
		int len = sqlite3_column_bytes(stmt, column);

		hash_add(h, &len, sizeof(len));
		hash_add(h, data ? data : "", (size_t)len);
	}
}

static int hash_rows(struct atoll_participant *p, struct hash *h, sqlite3_stmt *stmt)
{
	int r;

	while ((r = sqldb_step(p, stmt)) == 1)
		for (int i = 0; i < sqlite3_column_count(stmt); i++)
			hash_value(h, stmt, i);
	return r;
}

/* In the order of the table itself, which is that of its key. */
static int add_table_rows(struct atoll_participant *p, sqlite3 *db, const char *schema,
                          const struct sqldb_table *t, struct hash *h)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int r;

	hash_add(h, t->name, strlen(t->name) + 1);
	if (t->is_virtual)
		return 0;
	r = sqldb_prepare(p, db, &stmt, "SELECT %s FROM \"%w\".\"%w\" NOT INDEXED", t->columns,
	                  schema, t->name);
	return r < 0 ? r : hash_rows(p, h, stmt);
}

int sqldb_hash_table(struct atoll_participant *p, sqlite3 *db, const char *schema,
                     const struct sqldb_table *t, char out[HASH_TEXT_LEN])
{
	cleanup_hash struct hash *h = hash_new();
	int r = add_table_rows(p, db, schema, t, h);

	hash_text(h, out);
	return r;
}

int sqldb_hash(struct atoll_participant *p, sqlite3 *db, const char *schema,
               char out[HASH_TEXT_LEN])
{
	cleanup_sqldb_tables struct sqldb_tables tables = SQLDB_TABLES_INIT;
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	cleanup_hash struct hash *h = hash_new();
	int64_t version = 0, application = 0;
	int r = sqldb_number(p, db, &version, "PRAGMA \"%w\".user_version", schema);

	if (r >= 0)
		r = sqldb_number(p, db, &application, "PRAGMA \"%w\".application_id", schema);
	hash_add(h, &version, sizeof(version));
	hash_add(h, &application, sizeof(application));
	if (r >= 0)
		r = sqldb_prepare(p, db, &stmt,
		                  "SELECT type, name, tbl_name, sql FROM \"%w\".sqlite_schema "
		                  "WHERE tbl_name<>'" SQLDB_MARKER "' AND name NOT LIKE "
		                  "'sqlite\\_%%' ESCAPE '\\' ORDER BY type, name",
		                  schema);
	if (r >= 0)
		r = hash_rows(p, h, stmt);
	if (r >= 0)
		r = sqldb_tables_read(p, db, schema, &tables);
	for (size_t i = 0; i < tables.n && r >= 0; i++)
		r = add_table_rows(p, db, schema, &tables.v[i], h);
	hash_text(h, out);
	return r;
}
