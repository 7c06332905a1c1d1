/* SPDX-License-Identifier: Apache-2.0 */
/* The row that says, in the database itself, which of our transactions took place. */
#include "strategy/sqlite-impl.h"

#include <string.h>

static int table_is_there(struct atoll_participant *p, sqlite3 *db, bool *ret)
{
	int64_t n = 0;
	int r = sqldb_number(p, db, &n,
	                     "SELECT count(*) FROM main.sqlite_schema WHERE type='table' AND "
	                     "name='" SQLDB_MARKER "'");

	*ret = n > 0;
	return r;
}

int sqldb_mark_read(struct atoll_participant *p, sqlite3 *db, struct sqldb_mark *ret)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	bool there = false;
	int r = table_is_there(p, db, &there);

	*ret = (struct sqldb_mark){ 0 };
	if (r < 0 || !there)
		return r;
	r = sqldb_prepare(p, db, &stmt,
	                  "SELECT done, batch FROM main." SQLDB_MARKER " WHERE sandbox=%Q", p->id);
	if (r >= 0)
		r = sqldb_step(p, stmt);
	if (r <= 0)
		return r;
	ret->done = strcmp((const char *)sqlite3_column_text(stmt, 0), "commit") == 0
	                    ? SQLDB_DONE_COMMIT
	                    : SQLDB_DONE_UNDO;
	ret->batch = (uint64_t)sqlite3_column_int64(stmt, 1);
	return 0;
}

int sqldb_mark_foreign(struct atoll_participant *p, sqlite3 *db)
{
	bool there = false;
	int64_t n = 0;
	int r = table_is_there(p, db, &there);

	if (r >= 0 && there)
		r = sqldb_number(p, db, &n,
		                 "SELECT count(*) FROM main." SQLDB_MARKER " WHERE sandbox<>%Q",
		                 p->id);
	return r < 0 ? r : n > 0;
}

static int clear(struct atoll_participant *p, sqlite3 *db)
{
	bool there = false;
	int64_t left = 0;
	int r = table_is_there(p, db, &there);

	if (r < 0 || !there)
		return r;
	r = sqldb_exec(p, db, "DELETE FROM main." SQLDB_MARKER " WHERE sandbox=%Q", p->id);
	if (r >= 0)
		r = sqldb_number(p, db, &left, "SELECT count(*) FROM main." SQLDB_MARKER);
	return r < 0 || left ? r : sqldb_exec(p, db, "DROP TABLE main." SQLDB_MARKER);
}

int sqldb_mark_write(struct atoll_participant *p, sqlite3 *db, struct sqldb_mark mark)
{
	if (mark.done == SQLDB_DONE_NOTHING)
		return clear(p, db);
	return sqldb_exec(p, db,
	                  "CREATE TABLE IF NOT EXISTS main." SQLDB_MARKER
	                  "(sandbox TEXT PRIMARY KEY, done TEXT, batch INTEGER) WITHOUT ROWID;"
	                  "INSERT OR REPLACE INTO main." SQLDB_MARKER " VALUES(%Q,%Q,%lld)",
	                  p->id, mark.done == SQLDB_DONE_COMMIT ? "commit" : "undo",
	                  (sqlite3_int64)mark.batch);
}
