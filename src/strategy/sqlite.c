/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sqlite`: a database in a file. Commands work on a private copy; a commit carries over what they
 * changed, row by row, in one transaction on the live database.
 *
 * The copy is consistent however many write meanwhile (sqlite-snapshot.c). A command finds at the
 * database's own path a symbolic link, mounted over the file, into a directory of the sandbox's own.
 * SQLite makes -wal, -shm and -journal beside what a link leads to: so they land there, and
 * neither in the real directory nor in the workspace of a directory around it.
 *
 * A commit applies the changeset from base to work to the live database (sqlite-rows.c): rows that
 * somebody else changed meanwhile stay, the same row is a conflict. What no changeset can tell (the
 * schema, rows without a key) takes the place of the whole content (sqlite-change.c), and then
 * nobody may have changed anything.
 *
 * SQLite has no prepared transactions. Prepare leaves an exclusive transaction open, in which all is
 * written; if the process dies, that is rolled back by whoever opens the database next, and recovery
 * applies the batch's files again. Rows that were changed in between refuse it for good.
 *
 * Invariants:
 *   1. The live file is written through SQLite alone, and only in a transaction that writes the mark.
 *   2. What a step needs is in the batch's files before the decision.
 *   3. No descriptor of the live file is ours but SQLite's: closing one would drop its locks.
 */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

static void drop_state(struct atoll_participant *p)
{
	if (p->state && p->state_free)
		p->state_free(p->state);
	p->state = NULL;
}

/* ---- the workspace ---- */

static int sqlite_create(struct atoll_participant *p)
{
	p->generation = 1;
	return sqldb_workspace_make(p);
}

/* Makes the next generation when this one is used up. */
static int renew(struct atoll_participant *p)
{
	uint64_t old = p->generation;
	int r;

	if (!p->stale)
		return 0;
	p->generation++;
	r = sqldb_workspace_make(p);
	if (r < 0) {
		p->generation = old;
		return r;
	}
	p->stale = false;
	sqldb_workspace_remove(p, old);
	return 0;
}

static int sqlite_path(struct atoll_participant *p, char **ret_path)
{
	int r = renew(p);

	if (r >= 0)
		*ret_path = sqldb_work_path(p);
	return r;
}

static int sqlite_mounts(struct atoll_participant *p)
{
	cleanup_free char *dir = NULL, *link = NULL, *view = sqldb_view_dir(p);
	int r = renew(p);

	if (r < 0)
		return r;
	dir = sqldb_work_dir(p);
	link = sqldb_link_path(p);
	r = atoll_participant_mount(p, view, dir, NULL, NULL);
	return r < 0 ? r : atoll_participant_mount(p, p->root, link, NULL, NULL);
}

static int sqlite_reset(struct atoll_participant *p)
{
	p->stale = true;
	return 0;
}

/* ---- committing ---- */

static int sqlite_prepare(struct atoll_participant *p)
{
	return p->batch.redoing   ? sqldb_prepare_redo(p)
	       : p->batch.undoing ? sqldb_prepare_undo(p)
	                          : sqldb_prepare_commit(p);
}

/* Nobody can change what we hold. Who recovers wants to know that everything is there. */
static int sqlite_check(struct atoll_participant *p)
{
	cleanup_sqldb sqlite3 *after = NULL, *before = NULL;
	char hash[2][HASH_TEXT_LEN];
	struct sqldb_batch b;
	int r;

	/* Before a redo others may have come since it was tried. */
	if (!p->batch.recovering)
		return p->batch.redoing ? sqldb_prepare_redo(p) : 0;
	r = sqldb_batch_read(p, p->batch.number, &b);
	if (r < 0 || !b.whole)
		return r;
	for (int i = 0; i < 2 && r >= 0; i++) {
		sqlite3 **db = i ? &before : &after;
		cleanup_free char *path =
			sqldb_file_path(p, b.number, i ? SQLDB_FILE_UNDO : SQLDB_FILE_DO);

		r = sqldb_open(p, SQLDB_KEPT, path, db);
		if (r >= 0)
			r = sqldb_hash(p, *db, "main", hash[i]);
		if (r >= 0 && strcmp(hash[i], i ? b.old_hash : b.new_hash) != 0)
			r = error_set(&p->err, -ATOLL_E_DAMAGED, "'%s' is not what was decided on",
			              path);
	}
	return r;
}

static int repeat(struct atoll_participant *p, enum sqldb_step step)
{
	struct sqldb_batch b;
	int r = sqldb_batch_read(p, p->batch.number, &b);

	return r < 0 ? r : sqldb_change_step(p, &b, step);
}

static int sqlite_commit(struct atoll_participant *p)
{
	int r;

	if (p->state)
		r = sqldb_change_commit(p, p->state);
	else
		r = repeat(p, p->batch.redoing ? SQLDB_STEP_REDO : SQLDB_STEP_COMMIT);
	drop_state(p);
	crashpoint("sqlite.committed");
	if (r >= 0 && !p->batch.redoing)
		p->stale = true;
	return r;
}

static int sqlite_abort(struct atoll_participant *p)
{
	drop_state(p);
	if (!p->batch.undoing)
		sqldb_batch_remove(p, p->batch.number);
	return 0;
}

static int sqlite_undo(struct atoll_participant *p)
{
	int r;

	drop_state(p); /* what was prepared and not committed */
	r = repeat(p, p->batch.undoing ? SQLDB_STEP_UNDO : SQLDB_STEP_REVOKE);
	crashpoint("sqlite.undone");
	if (r >= 0 && !p->batch.undoing)
		p->stale = false;
	return r;
}

/* ---- afterwards ---- */

static int clear_mark(struct atoll_participant *p, enum sqldb_role role)
{
	cleanup_sqldb sqlite3 *live = NULL;
	struct sqldb_mark mark;
	int r = sqldb_open(p, role, p->root, &live);

	if (r >= 0)
		r = sqldb_mark_read(p, live, &mark);
	if (r < 0 || mark.done == SQLDB_DONE_NOTHING)
		return r;
	r = sqldb_exec(p, live, "BEGIN IMMEDIATE");
	if (r >= 0)
		r = sqldb_mark_write(p, live, (struct sqldb_mark){ 0 });
	return r < 0 ? r : sqldb_exec(p, live, "COMMIT");
}

static int sqlite_finish(struct atoll_participant *p)
{
	return clear_mark(p, SQLDB_LIVE);
}

/* A mark that cannot be dropped now goes with the plan; nothing is lost by it. */
static int sqlite_release(struct atoll_participant *p)
{
	(void)clear_mark(p, p->batch.undoing ? SQLDB_LIVE : SQLDB_LIVE_NOW);
	error_done(&p->err);
	sqldb_batch_remove(p, p->batch.number);
	return 0;
}

/* A database that is gone holds nothing of ours. The rest lies below the area, which the manager
 * removes. */
static int sqlite_remove(struct atoll_participant *p)
{
	(void)clear_mark(p, SQLDB_LIVE_NOW);
	error_done(&p->err);
	return 0;
}

const struct atoll_strategy strategy_sqlite = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "sqlite",
	.kind = "file",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_LATE,
	.create = sqlite_create,
	.path = sqlite_path,
	.mounts = sqlite_mounts,
	.diff = sqldb_diff,
	.lines = sqldb_lines,
	.prepare = sqlite_prepare,
	.check = sqlite_check,
	.commit = sqlite_commit,
	.abort = sqlite_abort,
	.undo = sqlite_undo,
	.finish = sqlite_finish,
	.release = sqlite_release,
	.reset = sqlite_reset,
	.remove = sqlite_remove,
};
