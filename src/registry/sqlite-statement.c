/* SPDX-License-Identifier: Apache-2.0 */
/* Statements: kept prepared by the address of their text, bound, stepped, read by column. */
#include "registry/sqlite-impl.h"

#include "util/cleanup.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#define COLUMNS_MAX 20

int sqlite_fail(struct backend *b, int rc, const char *op, struct error *err)
{
	return sqlite_error(b->db, rc, b->path, b->home_fd, op, err);
}

int sqlite_script(struct backend *b, const char *sql, const char *op, struct error *err)
{
	int rc = sqlite3_exec(b->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : sqlite_fail(b, rc, op, err);
}

static int statement_get(struct backend *b, const char *sql, sqlite3_stmt **ret, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc;

	for (size_t i = 0; i < b->cached; i++) {
		if (b->cache[i].sql == sql) {
			*ret = b->cache[i].stmt;
			return 0;
		}
	}
	if (b->cached == SQLITE_STATEMENTS)
		BUG("more than %d different statements", SQLITE_STATEMENTS);
	rc = sqlite3_prepare_v3(b->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
	if (rc == SQLITE_ERROR) {
		/* Our own constant text does not fit the tables: they are not ours. */
		return sqlite_damaged(b->path, sqlite3_errmsg(b->db), err);
	}
	if (rc != SQLITE_OK)
		return sqlite_fail(b, rc, "prepare", err);
	b->cache[b->cached++] = (struct sqlite_cached){ .sql = sql, .stmt = stmt };
	*ret = stmt;
	return 0;
}

void sqlite_prepare(struct backend *b, const char *sql)
{
	sqlite3_stmt *stmt;

	atomic_store(&b->fork.busy, true);
	if (b->db && !b->failed)
		(void)statement_get(b, sql, &stmt, NULL);
	atomic_store(&b->fork.busy, b->in_txn);
}

static int statement_bind(sqlite3_stmt *stmt, struct args args)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < args.n; i++) {
		const struct value *v = &args.v[i];

		if (v->type == VALUE_INT)
			rc = sqlite3_bind_int64(stmt, (int)i + 1, v->num);
		else
			rc = sqlite3_bind_text(stmt, (int)i + 1, v->text ? v->text : "", -1,
			                       SQLITE_STATIC);
	}
	return rc;
}

/* 0; -ENOMEM; -ATOLL_E_DAMAGED for a type we never store. */
static int statement_row(sqlite3_stmt *stmt, backend_row_fn fn, void *ctx)
{
	struct value cols[COLUMNS_MAX];
	int n = sqlite3_column_count(stmt);

	if (n > COLUMNS_MAX)
		BUG("%d columns", n);
	for (int i = 0; i < n; i++) {
		int type = sqlite3_column_type(stmt, i);

		if (type == SQLITE_INTEGER) {
			cols[i] = INT_VALUE(sqlite3_column_int64(stmt, i));
		} else if (type == SQLITE_TEXT) {
			cols[i] = TEXT_VALUE((const char *)sqlite3_column_text(stmt, i));
			if (!cols[i].text)
				return -ENOMEM;
			/* A NUL inside would hide the rest. */
			if (strlen(cols[i].text) != (size_t)sqlite3_column_bytes(stmt, i))
				return -ATOLL_E_DAMAGED;
		} else {
			return -ATOLL_E_DAMAGED;
		}
	}
	return fn(ctx, cols, (size_t)n);
}

/* SQLITE_DONE or SQLite's error; what the callback said in *ret_answer. */
static int statement_step(sqlite3_stmt *stmt, backend_row_fn fn, void *ctx, int *ret_answer)
{
	int rc;

	*ret_answer = 0;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (fn && *ret_answer >= 0)
			*ret_answer = statement_row(stmt, fn, ctx);
	}
	return rc;
}

static int answer_error(struct backend *b, int answer, struct error *err)
{
	if (answer == -ATOLL_E_DAMAGED)
		return sqlite_damaged(b->path, "a row holds what was never written", err);
	return error_sys(err, answer, "read", b->path);
}

static int run_statement(struct backend *b, const char *sql, struct args args, backend_row_fn fn,
                         void *ctx, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int r, rc, answer = 0;

	/* SQLite ends a transaction by itself after some errors; what follows would then be
	 * committed one by one. */
	if (b->in_txn && sqlite3_get_autocommit(b->db))
		return error_set(err, -EIO, "the transaction on '%s' failed earlier", b->path);
	r = statement_get(b, sql, &stmt, err);
	if (r < 0)
		return r;
	rc = statement_bind(stmt, args);
	if (rc == SQLITE_OK)
		rc = statement_step(stmt, fn, ctx, &answer);
	if (rc != SQLITE_DONE)
		r = sqlite_fail(b, rc, "query", err);
	else if (answer < 0)
		r = answer_error(b, answer, err);
	else
		r = sqlite3_stmt_readonly(stmt) ? 0 : sqlite3_changes(b->db);
	(void)sqlite3_reset(stmt); /* repeats the error of the step */
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

/* A process that died in the middle of writing left an index that only a writer may mend. SQLite
 * finds out before the first row. */
static bool reading_is_refused(struct backend *b)
{
	int rc = b->reading ? sqlite3_errcode(b->db) & 0xff : SQLITE_OK;

	return rc == SQLITE_READONLY || rc == SQLITE_CANTOPEN;
}

/* In a transaction it is busy already, and stays so. */
int sqlite_run(struct backend *b, const char *sql, struct args args, backend_row_fn fn, void *ctx,
               struct error *err)
{
	cleanup_error struct error first = ERROR_INIT;
	int r;

	atomic_store(&b->fork.busy, true);
	r = run_statement(b, sql, args, fn, ctx, &first);
	if (r < 0 && reading_is_refused(b)) {
		r = sqlite_connect_writing(b, err);
		if (r == 0)
			r = run_statement(b, sql, args, fn, ctx, err);
	} else if (r < 0 && err) {
		error_move(err, &first);
	}
	atomic_store(&b->fork.busy, b->in_txn);
	return r;
}

static int pragma_value(void *ctx, const struct value *cols, size_t count)
{
	if (count != 1 || cols[0].type != VALUE_INT)
		return -ATOLL_E_DAMAGED;
	*(int64_t *)ctx = cols[0].num;
	return 0;
}

/* Not kept prepared: asked once. */
int sqlite_ask(struct backend *b, const char *sql, int64_t *ret, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int answer = 0;
	int rc = sqlite3_prepare_v2(b->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = statement_step(stmt, pragma_value, ret, &answer);
	(void)sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE)
		return sqlite_fail(b, rc, "read", err);
	return answer < 0 ? answer_error(b, answer, err) : 0;
}
