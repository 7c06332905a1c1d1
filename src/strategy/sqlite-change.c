/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transaction on the resource, of rows or of the whole content.
 *
 * The whole takes another's place through SQLite's pager, page by page in one transaction, so that
 * whoever has the database open sees either; its file is never replaced. That transaction must
 * begin where the content was last looked at. With a rollback journal a connection in exclusive
 * mode keeps its lock from one to the other. With a WAL that mode would lock readers out, but they
 * do not disturb: a second connection looks while the first holds the write lock.
 */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

struct sqldb_change *sqldb_change_new(void)
{
	return xcalloc(1, sizeof(struct sqldb_change));
}

void sqldb_change_free(void *change)
{
	struct sqldb_change *c = change;

	if (!c)
		return;
	(void)sqlite3_backup_finish(c->backup);
	sqldb_close(c->source);
	sqldb_close(c->live);
	free(c);
}

void cleanup_sqldb_changep(struct sqldb_change **c)
{
	sqldb_change_free(*c);
}

int sqldb_change_begin(struct atoll_participant *p, struct sqldb_change *c)
{
	int r = sqldb_open(p, SQLDB_LIVE, p->root, &c->live);

	return r < 0 ? r : sqldb_exec(p, c->live, "BEGIN EXCLUSIVE");
}

/* ---- the whole ---- */

static int check_content(struct atoll_participant *p, sqlite3 *db, const char *expected)
{
	char hash[HASH_TEXT_LEN];
	int r = sqldb_mark_foreign(p, db);

	if (r == 1)
		return error_set(&p->err, -ATOLL_E_BUSY,
		                 "another commit to '%s' is not finished yet", p->root);
	if (r == 0)
		r = sqldb_hash(p, db, "main", hash);
	if (r < 0 || strcmp(hash, expected) == 0)
		return r;
	return error_set(&p->err, -ATOLL_E_CONFLICT, "'%s' was changed by somebody else", p->root);
}

static int begin_backup(struct atoll_participant *p, struct sqldb_change *c)
{
	int rc;

	c->backup = sqlite3_backup_init(c->live, "main", c->source, "main");
	if (!c->backup)
		return sqldb_fail(p, c->live, sqlite3_errcode(c->live), "write");
	errno = 0;
	rc = sqlite3_backup_step(c->backup, 0); /* takes the lock */
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, c->live, rc, "lock");
}

static int begin_in_wal(struct atoll_participant *p, struct sqldb_change *c, const char *expected)
{
	cleanup_sqldb sqlite3 *reader = NULL;
	int r = begin_backup(p, c);

	if (r >= 0)
		r = sqldb_open(p, SQLDB_LIVE, p->root, &reader);
	return r < 0 ? r : check_content(p, reader, expected);
}

static int begin_in_journal(struct atoll_participant *p, struct sqldb_change *c,
                            const char *expected)
{
	int r = sqldb_exec(p, c->live, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE");

	if (r >= 0)
		r = check_content(p, c->live, expected);
	if (r >= 0)
		r = sqldb_exec(p, c->live, "COMMIT"); /* the lock stays */
	return r < 0 ? r : begin_backup(p, c);
}

int sqldb_change_whole(struct atoll_participant *p, struct sqldb_change *c, const char *source,
                       const char *expected)
{
	int pages, rc, r = sqldb_open(p, SQLDB_LIVE, p->root, &c->live);

	if (r >= 0)
		r = sqldb_open(p, SQLDB_KEPT, source, &c->source);
	if (r >= 0)
		r = sqldb_is_wal(c->live) ? begin_in_wal(p, c, expected)
		                          : begin_in_journal(p, c, expected);
	if (r < 0)
		return r;
	/* All but the last page, with which it becomes visible. */
	pages = sqlite3_backup_pagecount(c->backup);
	errno = 0;
	rc = pages > 1 ? sqlite3_backup_step(c->backup, pages - 1) : SQLITE_OK;
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, c->live, rc, "write");
}

int sqldb_change_commit(struct atoll_participant *p, struct sqldb_change *c)
{
	int rc;

	if (!c->backup)
		return sqldb_exec(p, c->live, "COMMIT");
	errno = 0;
	rc = sqlite3_backup_step(c->backup, -1);
	if (rc == SQLITE_DONE)
		rc = sqlite3_backup_finish(take_ptr(c->backup));
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, c->live, rc, "write");
}

/* ---- a step of a batch, from its files ---- */

/* Is there anything to do? Undo goes from the newest batch to the oldest, redo back again. */
/*
 * Of one batch alone the mark of an earlier step may be there still, or gone already. In the direction in which
 * it was decided, only the mark of this very step says that it was done; when that is withdrawn, only the mark
 * of the other step says that there is something to take back.
 */
static bool is_due_alone(const struct atoll_participant *p, const struct sqldb_mark *m,
                         uint64_t number, enum sqldb_step step)
{
	bool redo = step == SQLDB_STEP_REDO;
	enum sqldb_done here = redo ? SQLDB_DONE_COMMIT : SQLDB_DONE_UNDO;
	enum sqldb_done there = redo ? SQLDB_DONE_UNDO : SQLDB_DONE_COMMIT;
	bool withdrawn = p->batch.again != redo;

	return withdrawn ? m->done == there && m->batch == number
	                 : m->done != here || m->batch != number;
}

static bool is_due(const struct atoll_participant *p, const struct sqldb_mark *m, uint64_t number,
                   enum sqldb_step step)
{
	if (p->batch.alone)
		return is_due_alone(p, m, number, step);
	switch (step) {
	case SQLDB_STEP_COMMIT:
		return m->done != SQLDB_DONE_COMMIT || m->batch < number;
	case SQLDB_STEP_REDO:
		return (m->done == SQLDB_DONE_COMMIT && m->batch < number) ||
		       (m->done == SQLDB_DONE_UNDO && m->batch <= number);
	case SQLDB_STEP_UNDO:
		return m->done != SQLDB_DONE_UNDO || m->batch > number;
	case SQLDB_STEP_REVOKE:
		return m->done == SQLDB_DONE_COMMIT && m->batch == number;
	}
	BUG("no such step");
}

static struct sqldb_mark mark_after(uint64_t number, enum sqldb_step step)
{
	static const enum sqldb_done done[] = {
		[SQLDB_STEP_COMMIT] = SQLDB_DONE_COMMIT,
		[SQLDB_STEP_REDO] = SQLDB_DONE_COMMIT,
		[SQLDB_STEP_UNDO] = SQLDB_DONE_UNDO,
		[SQLDB_STEP_REVOKE] = SQLDB_DONE_NOTHING,
	};

	return (struct sqldb_mark){ .done = done[step], .batch = number };
}

static bool is_forward(enum sqldb_step step)
{
	return step == SQLDB_STEP_COMMIT || step == SQLDB_STEP_REDO;
}

/* What an undo left out is left out when it is taken back, too. */
int sqldb_change_read(struct atoll_participant *p, const struct sqldb_batch *b,
                      enum sqldb_step step, void **ret, int *ret_len)
{
	cleanup_free void *data = NULL;
	size_t len = 0;
	bool theirs = false;
	int rc, r = 0;

	if (step == SQLDB_STEP_UNDO || step == SQLDB_STEP_REDO)
		r = sqldb_file_read(p, b->number, SQLDB_FILE_THEIRS, &data, &len);
	theirs = data != NULL;
	if (r >= 0 && !data)
		r = sqldb_file_read(p, b->number,
		                    is_forward(step) ? SQLDB_FILE_DO : SQLDB_FILE_UNDO, &data,
		                    &len);
	if (r < 0)
		return r;
	if (!data)
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the changes of batch %llu of '%s' are gone",
		                 (unsigned long long)b->number, p->root);
	if (theirs && step == SQLDB_STEP_REDO) {
		rc = sqlite3changeset_invert((int)len, data, ret_len, ret);
		return rc == SQLITE_OK ? 0 : sqldb_fail(p, NULL, rc, "invert the changes of");
	}
	*ret = sqlite3_malloc64(len ? len : 1);
	if (!*ret)
		return error_set(&p->err, -ENOMEM, "no memory for the changes of '%s'", p->root);
	memcpy(*ret, data, len);
	*ret_len = (int)len;
	return 0;
}

static int step_rows(struct atoll_participant *p, struct sqldb_change *c,
                     const struct sqldb_batch *b, enum sqldb_step step)
{
	cleanup_sqlite void *changeset = NULL;
	int len = 0, r = sqldb_change_read(p, b, step, &changeset, &len);

	if (r >= 0)
		r = sqldb_rows_apply(p, c->live, changeset, len, NULL);
	if (r >= 0 && !is_forward(step))
		r = sqldb_counters_back(p, c->live, b->number);
	if (r >= 0)
		r = sqldb_mark_write(p, c->live, mark_after(b->number, step));
	return r < 0 ? r : sqldb_change_commit(p, c);
}

/* The mark goes with the content that takes the place of the other. A power cut in here must leave that
 * content as it was: there is no other copy. */
static int mark_source(struct atoll_participant *p, const char *source, struct sqldb_mark mark)
{
	cleanup_sqldb sqlite3 *db = NULL;
	int r = sqldb_open(p, SQLDB_KEPT, source, &db);

	if (r >= 0)
		r = sqldb_exec(p, db, "BEGIN IMMEDIATE");
	if (r >= 0)
		r = sqldb_mark_write(p, db, mark);
	return r < 0 ? r : sqldb_exec(p, db, "COMMIT");
}

static int step_whole(struct atoll_participant *p, const struct sqldb_batch *b,
                      enum sqldb_step step)
{
	cleanup_sqldb_change struct sqldb_change *c = sqldb_change_new();
	cleanup_free char *source =
		sqldb_file_path(p, b->number, is_forward(step) ? SQLDB_FILE_DO : SQLDB_FILE_UNDO);
	int r = mark_source(p, source, mark_after(b->number, step));

	if (r >= 0)
		r = sqldb_change_whole(p, c, source, is_forward(step) ? b->old_hash : b->new_hash);
	crashpoint("sqlite.step.ready");
	return r < 0 ? r : sqldb_change_commit(p, c);
}

int sqldb_change_step(struct atoll_participant *p, const struct sqldb_batch *b,
                      enum sqldb_step step)
{
	cleanup_sqldb_change struct sqldb_change *c = sqldb_change_new();
	struct sqldb_mark mark;
	int r = sqldb_change_begin(p, c);

	if (r >= 0)
		r = sqldb_mark_read(p, c->live, &mark);
	if (r < 0 || !is_due(p, &mark, b->number, step))
		return r;
	if (!b->whole)
		return step_rows(p, c, b, step);
	sqldb_change_free(take_ptr(c));
	return step_whole(p, b, step);
}
