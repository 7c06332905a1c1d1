/* SPDX-License-Identifier: Apache-2.0 */
/* All that can fail: the change written and not yet visible, the batch's files, an undo tried. */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/copy.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

int sqldb_conflict(struct atoll_participant *p, size_t n)
{
	if (!n)
		return 0;
	if (p->batch.redoing)
		return error_set(&p->err, -ATOLL_E_CONFLICT,
		                 "%zu row%s changed outside the plan since the undo", n,
		                 n == 1 ? " was" : "s were");
	if (p->batch.undoing) {
		(void)error_set(&p->err, -ATOLL_E_CONFLICT,
		                "%zu row%s changed by another process since the commit", n,
		                n == 1 ? " was" : "s were");
		error_hint(&p->err, "atoll %s %s --keep-theirs leaves them and undoes the rest",
		           p->batch.alone ? "undo" : "rollback", p->plan);
		return -ATOLL_E_CONFLICT;
	}
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu row%s changed outside the plan since it was started", n,
	                n == 1 ? " was" : "s were");
	error_hint(&p->err,
	           "atoll commit %s --ours %s takes the plan's rows, --theirs %s leaves those that "
	           "are there now",
	           p->plan, p->root, p->root);
	return -ATOLL_E_CONFLICT;
}

/* ---- rows ---- */

static int write_rows(struct atoll_participant *p, const void *changeset, int len,
                      const struct strlist *were, const struct strlist *are)
{
	struct sqldb_batch b = { .number = p->batch.number };
	cleanup_sqlite void *inverse = NULL;
	int inverse_len = 0, r;
	int rc = sqlite3changeset_invert(len, changeset, &inverse_len, &inverse);

	if (rc != SQLITE_OK)
		return sqldb_fail(p, NULL, rc, "invert the changes of");
	hash_buffer(changeset ? changeset : "", (size_t)len, b.do_hash);
	hash_buffer(inverse ? inverse : "", (size_t)inverse_len, b.undo_hash);
	r = sqldb_file_write(p, b.number, SQLDB_FILE_DO, changeset, (size_t)len);
	if (r >= 0)
		r = sqldb_file_write(p, b.number, SQLDB_FILE_UNDO, inverse, (size_t)inverse_len);
	if (r >= 0)
		r = sqldb_counters_write(p, b.number, were, are, b.counters_hash);
	return r < 0 ? r : sqldb_batch_write(p, &b);
}

static int prepare_rows(struct atoll_participant *p, sqlite3 *work, const struct sqldb_delta *d,
                        bool *ret_try_whole)
{
	cleanup_sqldb_change struct sqldb_change *c = sqldb_change_new();
	cleanup_strlist struct strlist were = STRLIST_INIT, are = STRLIST_INIT;
	cleanup_sqlite void *changeset = NULL;
	int rc, len = 0, r = sqldb_change_begin(p, c);

	if (r >= 0)
		r = sqldb_counters_read(p, c->live, &were);
	if (r >= 0)
		r = sqldb_rows_merge(p, work, c->live, d, &changeset, &len, ret_try_whole);
	if (r >= 0)
		r = sqldb_counters_read(p, c->live, &are);
	if (r >= 0)
		r = write_rows(p, changeset, len, &were, &are);
	if (r >= 0)
		r = sqldb_mark_write(p, c->live,
		                     (struct sqldb_mark){ SQLDB_DONE_COMMIT, p->batch.number });
	if (r < 0)
		return r;
	/* A disk too small for it shows now, and not when it was promised. */
	errno = 0;
	rc = sqlite3_db_cacheflush(c->live);
	if (rc != SQLITE_OK)
		return sqldb_fail(p, c->live, rc, "write");
	p->state = take_ptr(c);
	p->state_free = sqldb_change_free;
	return ATOLL_READY;
}

/* ---- the whole ---- */

/* One file, in the form the live one has: pages of its size, no WAL of its own. */
static int shape(struct atoll_participant *p, const char *path, int64_t page_size, bool marked,
                 char hash[HASH_TEXT_LEN])
{
	cleanup_sqldb sqlite3 *db = NULL;
	int64_t now = 0;
	int r = sqldb_open(p, SQLDB_OWN, path, &db);

	if (r >= 0)
		r = sqldb_exec(p, db, "PRAGMA journal_mode=DELETE");
	if (r >= 0)
		r = sqldb_number(p, db, &now, "PRAGMA page_size");
	if (r >= 0 && now != page_size)
		r = sqldb_exec(p, db, "PRAGMA page_size=%lld; VACUUM", (sqlite3_int64)page_size);
	if (r >= 0 && marked)
		r = sqldb_mark_write(p, db,
		                     (struct sqldb_mark){ SQLDB_DONE_COMMIT, p->batch.number });
	return r < 0 ? r : sqldb_hash(p, db, "main", hash);
}

static int stage_base(struct atoll_participant *p)
{
	cleanup_free char *name = sqldb_file_name(p->batch.number, SQLDB_FILE_UNDO);
	cleanup_free char *base = sqldb_base_path(p);
	cleanup_close int work_fd = open(p->work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int area_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = work_fd < 0 || area_fd < 0 ? -errno : 0;

	sqldb_file_remove(p, p->batch.number, SQLDB_FILE_UNDO);
	if (r >= 0)
		r = copy_entry_at(work_fd, strrchr(base, '/') + 1, area_fd, name, NULL, NULL);
	return r < 0 ? error_sys(&p->err, r, "copy", base) : 0;
}

static int stage_live(struct atoll_participant *p)
{
	cleanup_free char *name = sqldb_file_name(p->batch.number, SQLDB_FILE_UNDO);
	cleanup_sqldb sqlite3 *live = NULL;
	int r = sqldb_open(p, SQLDB_LIVE, p->root, &live);

	return r < 0 ? r : sqldb_snapshot(p, live, p->area, name);
}

static int stage_work(struct atoll_participant *p, sqlite3 *work, int64_t *ret_page_size)
{
	cleanup_free char *name = sqldb_file_name(p->batch.number, SQLDB_FILE_DO);
	cleanup_sqldb sqlite3 *live = NULL;
	int r = sqldb_open(p, SQLDB_LIVE, p->root, &live);

	if (r >= 0)
		r = sqldb_number(p, live, ret_page_size, "PRAGMA page_size");
	if (r >= 0)
		sqldb_file_remove(p, p->batch.number, SQLDB_FILE_DO);
	return r < 0 ? r : sqldb_snapshot(p, work, p->area, name);
}

static bool takes_ours(const struct atoll_participant *p)
{
	const struct selection *s = p->batch.select;

	return s && selection_cover(&s->ours, "") != NULL;
}

static int say_whole_conflict(struct atoll_participant *p, const char *why)
{
	error_done(&p->err);
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, "", "changed by somebody else");
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "'%s' was changed outside the plan since it was started, and its rows "
	                "cannot be merged: %s",
	                p->root, why);
	error_hint(&p->err,
	           "atoll commit %s --ours %s takes the plan's version of all of it; rollback puts "
	           "back what is there now",
	           p->plan, p->root);
	return -ATOLL_E_CONFLICT;
}

static int open_whole(struct atoll_participant *p, struct sqldb_change *c, int64_t page_size,
                      struct sqldb_batch *b)
{
	cleanup_free char *new_path = sqldb_file_path(p, b->number, SQLDB_FILE_DO);
	cleanup_free char *old_path = sqldb_file_path(p, b->number, SQLDB_FILE_UNDO);
	int r = shape(p, new_path, page_size, true, b->new_hash);

	if (r >= 0)
		r = shape(p, old_path, page_size, false, b->old_hash);
	return r < 0 ? r : sqldb_change_whole(p, c, new_path, b->old_hash);
}

static int prepare_whole(struct atoll_participant *p, sqlite3 *work, const char *why)
{
	cleanup_sqldb_change struct sqldb_change *c = sqldb_change_new();
	struct sqldb_batch b = { .number = p->batch.number, .whole = true };
	int64_t page_size = 0;
	int r = stage_work(p, work, &page_size);

	if (r >= 0)
		r = stage_base(p);
	if (r >= 0)
		r = open_whole(p, c, page_size, &b);
	if (r == -ATOLL_E_CONFLICT && takes_ours(p)) {
		error_done(&p->err);
		sqldb_change_free(c);
		c = sqldb_change_new();
		r = stage_live(p);
		if (r >= 0)
			r = open_whole(p, c, page_size, &b);
	}
	if (r == -ATOLL_E_CONFLICT)
		r = say_whole_conflict(p, why);
	if (r >= 0)
		r = sqldb_file_sync(p, b.number, SQLDB_FILE_DO);
	if (r >= 0)
		r = sqldb_file_sync(p, b.number, SQLDB_FILE_UNDO);
	if (r >= 0)
		r = sqldb_batch_write(p, &b);
	if (r < 0)
		return r;
	p->state = take_ptr(c);
	p->state_free = sqldb_change_free;
	return ATOLL_READY;
}

/* ---- commit ---- */

int sqldb_prepare_commit(struct atoll_participant *p)
{
	cleanup_sqldb_delta struct sqldb_delta d = SQLDB_DELTA_INIT;
	cleanup_sqldb sqlite3 *work = NULL;
	bool try_whole = false;
	int r;

	p->changes = 0;
	if (p->stale)
		return ATOLL_NO_CHANGE;
	r = sqldb_workspace_untouched(p);
	if (r != 0)
		return r < 0 ? r : ATOLL_NO_CHANGE;
	r = sqldb_workspace_open(p, true, &work);
	if (r >= 0)
		r = sqldb_delta_read(p, work, &d);
	if (r < 0)
		return r;
	if (d.n == 0 && !d.whole)
		return ATOLL_NO_CHANGE;
	p->changes = sqldb_delta_count(&d);
	if (!d.whole)
		r = prepare_rows(p, work, &d, &try_whole);
	/* Values that change places pass through a state that a constraint forbids. */
	if (try_whole) {
		cleanup_free char *why = xstrdup(p->err.msg);

		error_done(&p->err);
		r = prepare_whole(p, work, why);
	} else if (d.whole) {
		r = prepare_whole(p, work, d.whole);
	}
	crashpoint("sqlite.prepared");
	if (r < 0)
		sqldb_batch_remove(p, p->batch.number);
	return r;
}

/* ---- undo ---- */

/* What the undo of batches would make of the resource, tried out: rows in a transaction that is
 * given up in the end; from where a batch replaced the whole on, in what it saved. */
struct trial {
	struct atoll_participant *p;
	struct sqldb_change *c;
	size_t left; /* rows that the last one would leave */
};

static int try_rows(struct trial *t, const struct sqldb_batch *b, bool last)
{
	cleanup_free void *undo = NULL;
	size_t len = 0;
	int r = 0;

	if (!last)
		r = sqldb_file_read(t->p, b->number, SQLDB_FILE_THEIRS, &undo, &len);
	if (r >= 0 && !undo)
		r = sqldb_file_read(t->p, b->number, SQLDB_FILE_UNDO, &undo, &len);
	return r < 0 ? r : sqldb_rows_apply(t->p, t->c->live, undo, (int)len, &t->left);
}

static int try_whole(struct trial *t, const struct sqldb_batch *b)
{
	cleanup_free char *path = sqldb_file_path(t->p, b->number, SQLDB_FILE_UNDO);
	char hash[HASH_TEXT_LEN];
	int r = sqldb_hash(t->p, t->c->live, "main", hash);

	if (r >= 0 && strcmp(hash, b->new_hash) != 0) {
		atoll_participant_note(t->p, ATOLL_NOTE_CONFLICT, "", "changed by somebody else");
		return error_set(&t->p->err, -ATOLL_E_CONFLICT,
		                 "'%s' was changed by somebody else since it was committed as a "
		                 "whole",
		                 t->p->root);
	}
	if (r < 0)
		return r;
	sqldb_change_free(t->c);
	t->c = sqldb_change_new();
	r = sqldb_open(t->p, SQLDB_KEPT, path, &t->c->live);
	return r < 0 ? r : sqldb_exec(t->p, t->c->live, "BEGIN IMMEDIATE");
}

static int read_batch(struct trial *t, uint64_t number, struct sqldb_batch *ret)
{
	int r = sqldb_batch_read(t->p, number, ret);

	t->left = 0;
	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&t->p->err);
	return error_set(&t->p->err, -ATOLL_E_RECOVERY_MISSING,
	                 "the undo data of '%s' is gone or damaged", t->p->root);
}

/* A newer one, which was tried before. */
static int try_newer(struct trial *t, uint64_t number)
{
	struct sqldb_batch b;
	int r = read_batch(t, number, &b);

	if (r < 0)
		return r;
	return b.whole ? try_whole(t, &b) : try_rows(t, &b, false);
}

/* The caller wants rows left that were changed since. Of a database they are not insisted on: what would be
 * overwritten could not be kept. */
static bool leaves_theirs(const struct atoll_participant *p)
{
	return p->batch.flags & ATOLL_KEEP_THEIRS ||
	       (p->batch.select && p->batch.select->theirs.n && !p->batch.select->ours.n);
}

/* Rows are left only where that is wanted, and then what is done instead is written down. */
static int try_last_rows(struct trial *t, const struct sqldb_batch *b)
{
	cleanup_sqlite void *changeset = NULL;
	struct atoll_participant *p = t->p;
	sqlite3_session *session = NULL;
	int len = 0, r = sqldb_record_begin(p, t->c->live, &session);

	if (r >= 0)
		r = try_rows(t, b, true);
	if (r >= 0 && !leaves_theirs(p))
		r = sqldb_conflict(p, t->left);
	if (r >= 0 && t->left)
		r = sqldb_record_end(p, t->c->live, session, &changeset, &len);
	if (session)
		sqlite3session_delete(session);
	if (r < 0)
		return r;
	if (t->left)
		return sqldb_file_write(p, b->number, SQLDB_FILE_THEIRS, changeset, (size_t)len);
	sqldb_file_remove(p, b->number, SQLDB_FILE_THEIRS);
	return 0;
}

static int try_last(struct trial *t)
{
	struct sqldb_batch b;
	int r = read_batch(t, t->p->batch.number, &b);

	if (r < 0)
		return r;
	return b.whole ? try_whole(t, &b) : try_last_rows(t, &b);
}

int sqldb_prepare_undo(struct atoll_participant *p)
{
	struct trial t = { .p = p, .c = sqldb_change_new() };
	cleanup_free char *number = xasprintf("%" PRIu32, p->batch.number);
	int r = sqldb_change_begin(p, t.c);

	for (size_t i = 0; i < p->undone.n && r >= 0; i++)
		r = try_newer(&t, strtoull(p->undone.v[i], NULL, 10));
	if (r >= 0)
		r = try_last(&t);
	sqldb_change_free(t.c);
	if (r >= 0)
		strlist_add(&p->undone, number);
	return r;
}

/* ---- redo ---- */

static int try_again_whole(struct atoll_participant *p, struct sqldb_change *c,
                           const struct sqldb_batch *b)
{
	char hash[HASH_TEXT_LEN];
	int r = sqldb_hash(p, c->live, "main", hash);

	if (r < 0 || strcmp(hash, b->old_hash) == 0)
		return r;
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, "", "changed outside the plan");
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "'%s' was changed outside the plan since the undo of a commit that "
	                 "replaced the whole",
	                 p->root);
}

int sqldb_prepare_redo(struct atoll_participant *p)
{
	cleanup_sqldb_change struct sqldb_change *c = sqldb_change_new();
	cleanup_sqlite void *changeset = NULL;
	struct sqldb_batch b;
	int len = 0, r = sqldb_batch_read(p, p->batch.number, &b);

	if (r == -ENOENT || r == -ATOLL_E_DAMAGED) {
		error_done(&p->err);
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the undo data of '%s' is gone or damaged", p->root);
	}
	if (r >= 0)
		r = sqldb_change_begin(p, c);
	if (r >= 0 && b.whole)
		return try_again_whole(p, c, &b);
	if (r >= 0)
		r = sqldb_change_read(p, &b, SQLDB_STEP_REDO, &changeset, &len);
	return r < 0 ? r : sqldb_rows_apply(p, c->live, changeset, len, NULL);
}
