/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of AUTOINCREMENT, which SQLite keeps in a table of its own without a key: no changeset has
 * them. They follow the rows that a commit inserts; an undo, which deletes those, puts them back.
 *
 * On disk, beside the changesets: for each table whose counter the commit changed its name, the counter
 * before and the counter after, as SQL has them; each ends with NUL, "" is none.
 */
#include "strategy/sqlite-impl.h"

#include <string.h>

#include "util/cleanup.h"
#include "util/mem.h"

static int has_counters(struct atoll_participant *p, sqlite3 *db, int64_t *ret)
{
	*ret = 0;
	return sqldb_number(p, db, ret,
	                    "SELECT count(*) FROM main.sqlite_schema WHERE type='table' AND "
	                    "name='sqlite_sequence'");
}

int sqldb_counters_read(struct atoll_participant *p, sqlite3 *db, struct strlist *ret)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	int64_t there;
	int r = has_counters(p, db, &there);

	if (r < 0 || !there)
		return r;
	r = sqldb_prepare(
		p, db, &stmt,
		"SELECT name, quote(seq) FROM main.sqlite_sequence WHERE name IS NOT NULL");
	while (r >= 0 && (r = sqldb_step(p, stmt)) == 1) {
		strlist_add(ret, (const char *)sqlite3_column_text(stmt, 0));
		strlist_add(ret, (const char *)sqlite3_column_text(stmt, 1));
	}
	return r;
}

static const char *find(const struct strlist *counters, const char *table)
{
	for (size_t i = 0; i < counters->n; i += 2)
		if (strcmp(counters->v[i], table) == 0)
			return counters->v[i + 1];
	return "";
}

static void put(struct strbuf *out, const char *text)
{
	strbuf_add(out, text, strlen(text) + 1);
}

int sqldb_counters_write(struct atoll_participant *p, uint64_t batch, const struct strlist *was,
                         const struct strlist *is, char ret_hash[HASH_TEXT_LEN])
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < is->n; i += 2) {
		const char *before = find(was, is->v[i]);

		if (strcmp(before, is->v[i + 1]) == 0)
			continue;
		put(&out, is->v[i]);
		put(&out, before);
		put(&out, is->v[i + 1]);
	}
	ret_hash[0] = '\0';
	if (!out.len)
		return 0;
	hash_buffer(out.buf, out.len, ret_hash);
	return sqldb_file_write(p, batch, SQLDB_FILE_COUNTERS, out.buf, out.len);
}

/*
 * One that another process moved on since stays: it counts that process's rows, too. So do those that are left
 * of rows with a number that the process chose itself, up to which the commit had moved the counter.
 */
static int put_back(struct atoll_participant *p, sqlite3 *db, const char *table, const char *was,
                    const char *is)
{
	int64_t same = 0, left = 0;
	int r = sqldb_number(p, db, &same,
	                     "SELECT count(*) FROM main.sqlite_sequence JOIN main.sqlite_schema "
	                     "USING(name) WHERE type='table' AND name=%Q AND quote(seq)=%Q",
	                     table, is);

	if (r < 0 || !same)
		return r;
	r = sqldb_number(p, db, &left, "SELECT coalesce(max(rowid),0) FROM main.\"%w\"", table);
	if (r < 0)
		return r;
	if (!*was && left <= 0)
		return sqldb_exec(p, db, "DELETE FROM main.sqlite_sequence WHERE name=%Q", table);
	return sqldb_exec(p, db, "UPDATE main.sqlite_sequence SET seq=max(%s,%lld) WHERE name=%Q",
	                  *was ? was : "0", (long long)left, table);
}

int sqldb_counters_back(struct atoll_participant *p, sqlite3 *db, uint64_t batch)
{
	cleanup_free void *data = NULL;
	const char *at, *end;
	int64_t there;
	size_t len;
	int r = sqldb_file_read(p, batch, SQLDB_FILE_COUNTERS, &data, &len);

	if (r < 0 || !data)
		return r;
	r = has_counters(p, db, &there);
	at = data;
	end = at + len;
	while (r >= 0 && there && at < end) {
		const char *was = at + strlen(at) + 1, *is = was + strlen(was) + 1;

		r = put_back(p, db, at, was, is);
		at = is + strlen(is) + 1;
	}
	return r;
}
