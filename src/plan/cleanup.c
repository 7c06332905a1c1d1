/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping house: plans that nothing needs any more, owned plans whose owner is dead, directories without a
 * plan, undo data past its time. Registry and disk are both read, each time anew; there is no other memory
 * of them.
 *
 * A plan is *settled* when its user has decided about all of it: it committed, or
 * `run` made it and it was rolled back; no change is uncommitted, no file is private to it, no commit can be undone, no
 * process owns it, and no client on another machine has a session with it. `clean` removes settled plans. One whose last undo data expires goes with that by itself:
 * one question to an index finds the commits that expired, and only their plans are looked at, once for each
 * such commit. Both decide under the plan's lock, which they do not wait for, from what the store says then.
 *
 * Crash: a removal is that of plan-stop.c. Until the plan's row is gone the expired commit is not on record as
 * released, so the next command finds it again and goes on.
 */
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "plan/plan-op.h"
#include "plan/plan-stop.h"
#include "plan/private-files.h"
#include "plan/sandbox.h"
#include "strategy/moves.h"
#include "txn/recover.h"
#include "txn/txn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/mem.h"

/* ---- what is there ---- */

/* A recorded path whose plan is dead or gone. */
struct stale_path {
	char plan[PLAN_ID_LEN + 1];
	char *path;
};

struct stale_paths {
	struct atoll *a;
	struct stale_path *v;
	size_t n, cap;
	struct strlist recorded;         /* every path of the registry, stale or not */
	bool settled;                    /* those of settled plans, too */
	char looked_at[PLAN_ID_LEN + 1]; /* the last plan, and whether it was settled */
	bool was_settled;
};

static void stale_paths_done(struct stale_paths *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i].path);
	free(s->v);
	strlist_done(&s->recorded);
}
#define cleanup_stale_paths __attribute__((__cleanup__(stale_paths_done)))

static int add_stale(struct stale_paths *s, const char *plan, const char *path)
{
	if (grow((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v)) < 0)
		return -ENOMEM;
	s->v[s->n] = (struct stale_path){ .path = xstrdup(path) };
	(void)snprintf(s->v[s->n].plan, sizeof(s->v[s->n].plan), "%s", plan);
	s->n++;
	return 0;
}

static bool is_abandonable(struct atoll *a, const struct plan_row *row)
{
	return row->owned && !owner_alive(a, row->id);
}

static bool exists(const char *path)
{
	struct fs_stat st;

	return fs_stat_at(AT_FDCWD, path, 0, &st) == 0;
}

/* ---- settled plans ---- */

struct decided {
	int64_t now_ms;
	bool any;       /* a commit, undone or not */
	bool can_undo;  /* or redo */
	bool can_later; /* the same, leaving out what expired */
};

static int look_at_batch(void *ctx, const struct batch_row *batch)
{
	struct decided *d = ctx;
	bool counts = batch->state == BATCH_COMMITTED || batch->state == BATCH_UNDONE;
	bool expired = batch->retain_until_ms > 0 && batch->retain_until_ms <= d->now_ms;

	d->any |= counts;
	d->can_undo |= counts && !batch->released;
	d->can_later |= counts && !batch->released && !expired;
	return 0;
}

static int take_from_run(void *ctx, const struct plan_use *use)
{
	*(bool *)ctx = use->from_run;
	return 0;
}

/* `run` made it for one command, whose changes were dropped. One of `start` without a commit begins again. */
static bool is_spent(const struct plan_op *op)
{
	bool from_run = false;

	return op->plan.state == ATOLL_PLAN_ROLLED_BACK &&
	       registry_plan_uses(op->a->reg, op->plan.id, take_from_run, &from_run, NULL) >= 0 &&
	       from_run;
}

/* When it cannot be told, there are some. */
static bool has_private_files(struct atoll *a, const struct plan_row *row)
{
	cleanup_private_files struct private_files files = PRIVATE_FILES_INIT;
	cleanup_free char *home = NULL;
	struct atoll_plan p = { .a = a };

	memcpy(p.id, row->id, sizeof(p.id));
	memcpy(p.name, row->name, sizeof(p.name));
	return plan_private_files(&p, &home, &files, NULL) < 0 || files.n > 0 || files.cut;
}

static bool is_half_removed(const struct plan_op *op)
{
	for (size_t i = 0; i < op->boxes.n; i++)
		if (op->boxes.v[i].state == ATOLL_SANDBOX_CLEANED_UP)
			return true;
	return false;
}

/* OP holds the plan's lock, or only looks. EXPIRY: a commit whose time has passed counts as released. */
static bool is_settled(const struct plan_op *op, bool expiry)
{
	struct decided d = { .now_ms = clock_real_ms() };

	if (op->plan.owned || op->plan.starting || recover_unsettled(&op->plan) ||
	    registry_batch_list(op->a->reg, op->plan.id, look_at_batch, &d, NULL) < 0)
		return false;
	if (is_half_removed(op))
		return true;
	if (expiry ? d.can_later : d.can_undo)
		return false;
	if (!d.any && !is_spent(op))
		return false;
	/* The client of a session sends what differs from what it sent before. */
	return store_has_session(op->a, op->plan.id) == 0 && !plan_op_has_work(op) &&
	       !has_private_files(op->a, &op->plan);
}

/* Without a lock, for a listing. */
static bool looks_settled(struct atoll *a, const struct plan_row *row)
{
	cleanup_plan_op struct plan_op look = PLAN_OP_INIT;

	look.a = a;
	memcpy(look.plan.id, row->id, sizeof(look.plan.id));
	return !plan_lock_held(a, row->id) && plan_op_reload(&look, NULL) == 0 &&
	       is_settled(&look, false);
}

/* Asked for each path; those of one plan are mostly together. */
static bool is_of_settled(struct stale_paths *s, const struct plan_row *row)
{
	if (strcmp(s->looked_at, row->id) != 0) {
		memcpy(s->looked_at, row->id, sizeof(s->looked_at));
		s->was_settled = looks_settled(s->a, row);
	}
	return s->was_settled;
}

static int look_at_path(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	struct stale_paths *s = ctx;
	struct plan_row row;
	int r = registry_plan_get(s->a->reg, plan, &row, NULL);

	(void)sandbox;
	strlist_add(&s->recorded, path);
	if (r < 0 && r != -ATOLL_E_NOT_FOUND)
		return 0; /* cannot be told: it is not ours to take */
	if (r == 0 && !is_abandonable(s->a, &row) && !(s->settled && is_of_settled(s, &row)))
		return 0;
	return exists(path) ? add_stale(s, plan, path) : 0;
}

/* The disk is read before the registry: what is made meanwhile is recorded before it is made, so
 * it cannot look like a stray. */
static int find_stale(struct atoll *a, struct stale_paths *ret, struct error *err)
{
	cleanup_dirlist struct dirlist children = DIRLIST_INIT;
	int r = dirlist_read(a->plans_fd, &children);

	ret->a = a;
	if (r < 0)
		return error_sys(err, r, "read the store's directory", "plans");
	r = registry_path_list(a->reg, NULL, look_at_path, ret, err);
	for (size_t i = 0; r == 0 && i < children.n; i++) {
		cleanup_free char *path = xasprintf("%s/plans/%s", a->home, children.v[i].name);

		if (!strlist_has(&ret->recorded, path))
			r = add_stale(ret, "", path);
	}
	return r;
}

int cleanup_scan(struct atoll *a, atoll_path_fn fn, void *user, struct error *err)
{
	cleanup_stale_paths struct stale_paths stale = { .settled = true };
	int r = find_stale(a, &stale, err);

	for (size_t i = 0; r >= 0 && i < stale.n; i++)
		r = fn(user, stale.v[i].plan, stale.v[i].path);
	return r < 0 ? r : 0;
}

/* ---- owned plans ---- */

static int write_abandoned(struct registry *reg, void *ctx, struct error *err)
{
	struct plan_row *row = ctx;

	row->owned = false;
	row->abandoned = true;
	return registry_plan_update(reg, row, err);
}

int cleanup_retire(struct atoll *a, const struct plan_row *row, unsigned flags,
                   struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	/* A killed owner's command ends a moment after it, and holds the plan until then. One who
	 * lives is ending himself and waits for nobody. */
	unsigned wait = owner_alive(a, row->id) ? OP_TRY : OP_BRIEFLY;
	const struct plan_op_options opt = { .verb = "purge",
		                             .flags = OP_RESOURCES | wait | OP_UNASKED |
		                                      (flags & ATOLL_FORCE ? OP_FORCE : 0) };
	struct atoll_plan p = { .a = a };
	int r;

	memcpy(p.id, row->id, sizeof(p.id));
	memcpy(p.name, row->name, sizeof(p.name));
	r = plan_op_begin(&op, &p, &opt, err);
	if (r == -ATOLL_E_NOT_FOUND) { /* gone already */
		if (err)
			error_done(err);
		return 0;
	}
	if (r < 0)
		return r;
	if (plan_op_has_work(&op) && !(flags & ATOLL_FORCE)) {
		r = store_write(a, REGISTRY_DURABLE, write_abandoned, &op.plan, err);
		return plan_op_end(&op, r, err);
	}
	r = plan_op_remove(&op, res, err);
	return plan_op_end(&op, r < 0 ? r : 1, err);
}

/* ---- settled plans: removing ---- */

static int begin_unasked(struct plan_op *op, struct atoll_plan *p, struct atoll *a,
                         const struct plan_row *row, const char *verb)
{
	const struct plan_op_options opt = { .verb = verb,
		                             .flags = OP_RESOURCES | OP_TRY | OP_UNASKED };

	*p = (struct atoll_plan){ .a = a };
	memcpy(p->id, row->id, sizeof(p->id));
	memcpy(p->name, row->name, sizeof(p->name));
	return plan_op_begin(op, p, &opt, NULL);
}

/* 1: removed; 0: it is not settled, or a process works on it. */
static int remove_settled(struct atoll *a, const struct plan_row *row, struct atoll_result *res,
                          struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	struct atoll_plan p;
	int r;

	op.why = "nothing of it was needed any more";
	if (!looks_settled(a, row) || begin_unasked(&op, &p, a, row, "purge") < 0)
		return 0;
	op.flags |= OP_QUIET;
	if (!is_settled(&op, false))
		return 0;
	r = plan_op_remove(&op, res, err);
	return plan_op_end(&op, r < 0 ? r : 1, err);
}

/* Abandoned ones, too, are taken by force. */
static bool is_due(struct atoll *a, const struct plan_row *row, unsigned flags)
{
	return is_abandonable(a, row) || (row->abandoned && (flags & ATOLL_FORCE));
}

static int purge_plans(struct atoll *a, unsigned flags, struct atoll_result *res,
                       struct error *first, struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	size_t n = 0;
	int removed = 0;
	int r = plan_rows(a, &rows, &n, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		cleanup_error struct error cause = ERROR_INIT;

		if (is_due(a, &rows[i], flags))
			r = cleanup_retire(a, &rows[i], flags, res, &cause);
		else
			r = remove_settled(a, &rows[i], res, &cause);
		if (r > 0)
			removed++;
		else if (r < 0 && !first->code)
			error_move(first, &cause);
	}
	return removed;
}

/* ---- directories without a plan ---- */

static int write_path_gone(struct registry *reg, void *ctx, struct error *err)
{
	return registry_path_remove(reg, ctx, err);
}

static int purge_strays(struct atoll *a, struct error *first, struct error *err)
{
	cleanup_stale_paths struct stale_paths stale = { 0 };
	struct plan_row row;
	int r = find_stale(a, &stale, err);

	for (size_t i = 0; r == 0 && i < stale.n; i++) {
		cleanup_error struct error cause = ERROR_INIT;
		struct stale_path *s = &stale.v[i];

		/* Those of a plan went with it, or stay with it. */
		if (*s->plan && registry_plan_get(a->reg, s->plan, &row, NULL) == 0)
			continue;
		if (area_remove(s->path, &cause) < 0) {
			if (!first->code)
				error_move(first, &cause);
			continue;
		}
		if (*s->plan)
			(void)store_write(a, REGISTRY_DURABLE, write_path_gone, s->path, NULL);
	}
	return r;
}

/* ---- lock files nobody will ask for again ---- */

static bool plan_is_gone(struct atoll *a, const char *id, size_t len)
{
	char plan_id[PLAN_ID_LEN + 1] = "";
	struct plan_row row;

	if (len != PLAN_ID_LEN)
		return false;
	memcpy(plan_id, id, PLAN_ID_LEN);
	return registry_plan_get(a->reg, plan_id, &row, NULL) == -ATOLL_E_NOT_FOUND;
}

static bool root_is_gone(const struct sandboxes *all, const char *hash, size_t len)
{
	char key[HASH_TEXT_LEN];

	for (size_t i = 0; i < all->n; i++) {
		hash_buffer(all->v[i].root_id, strlen(all->v[i].root_id), key);
		if (strlen(key) == len && strncmp(key, hash, len) == 0)
			return false;
	}
	return true;
}

static bool is_forgotten(struct atoll *a, const struct sandboxes *all, const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t len = dot ? (size_t)(dot - name) : 0;

	if (!dot)
		return false;
	if (strcmp(dot, ".res") == 0)
		return root_is_gone(all, name, len);
	return (strcmp(dot, ".plan") == 0 || strcmp(dot, ".own") == 0) &&
	       plan_is_gone(a, name, len);
}

/* Only while we hold it: whoever waits for it notices and makes a new one. */
static void purge_locks(struct atoll *a)
{
	cleanup_dirlist struct dirlist files = DIRLIST_INIT;
	cleanup_sandboxes struct sandboxes all = SANDBOXES_INIT;
	const struct ticket_options try_it = { .command = "atoll purge" };
	int dir_fd = registry_locks_fd(a->reg);

	if (dirlist_read(dir_fd, &files) < 0 || sandboxes_load(a->reg, NULL, &all, NULL) < 0)
		return;
	for (size_t i = 0; i < files.n; i++) {
		struct ticket t = TICKET_INIT;

		if (!is_forgotten(a, &all, files.v[i].name) ||
		    ticket_acquire(&t, dir_fd, files.v[i].name, &try_it) < 0)
			continue;
		(void)fs_unlink_at(dir_fd, files.v[i].name);
		ticket_release(&t);
	}
}

int cleanup_purge(struct atoll *a, unsigned flags, struct atoll_result *res, struct error *err)
{
	cleanup_error struct error first = ERROR_INIT;
	int removed = purge_plans(a, flags, res, &first, err);
	int r;

	if (removed < 0)
		return removed;
	r = purge_strays(a, &first, err);
	if (r < 0)
		return r;
	cleanup_retention(a, NULL);
	purge_locks(a);
	if (first.code) {
		r = first.code;
		error_move(err, &first);
		return error_prefix(err, r, "removed %d, but not everything", removed);
	}
	return removed;
}

/* ---- what undo and redo left word of ---- */

void cleanup_moves(struct atoll *a)
{
	cleanup_free struct plan_row *rows = NULL;
	int64_t oldest_ms = INT64_MAX;
	size_t n = 0;

	if (!moves_any(a->home_fd) || plan_rows(a, &rows, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (rows[i].created_ms < oldest_ms)
			oldest_ms = rows[i].created_ms;
	moves_tidy(a->home_fd, oldest_ms);
}

/* ---- retention ---- */

struct expired {
	struct batch_row *v;
	size_t n, cap;
};

static int collect_expired(void *ctx, const struct batch_row *batch)
{
	struct expired *e = ctx;

	if (grow((void **)&e->v, &e->cap, e->n + 1, sizeof(*e->v)) < 0)
		return -ENOMEM;
	e->v[e->n++] = *batch;
	return 0;
}

/* The undo data of one commit; the plan stays. */
static int release(struct plan_op *op, uint32_t number, struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	int r = txn_open(&t, op->a->reg, &op->plan, op->epoch, NULL, err);

	return r < 0 ? r : txn_release(&t, number, err);
}

static void expire(struct atoll *a, const struct batch_row *batch, const char *except)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	cleanup_error struct error cause = ERROR_INIT;
	struct atoll_plan p;
	struct plan_row row;
	int r;

	/* It may have gone with another of its commits. */
	if (registry_plan_get(a->reg, batch->plan, &row, NULL) < 0 ||
	    begin_unasked(&op, &p, a, &row, "release") < 0)
		return;
	if ((!except || strcmp(except, row.id) != 0) && is_settled(&op, true)) {
		op.why = "its commits cannot be undone any more (undo.retention)";
		r = plan_op_remove(&op, NULL, &cause);
	} else {
		op.why = "a commit cannot be undone any more (undo.retention)";
		r = release(&op, batch->number, &cause);
	}
	(void)plan_op_end(&op, r, &cause);
}

void cleanup_retention(struct atoll *a, const char *except)
{
	struct expired e = { 0 };

	if (registry_batch_list_expired(a->reg, clock_real_ms(), collect_expired, &e, NULL) >= 0)
		for (size_t i = 0; i < e.n; i++)
			expire(a, &e.v[i], except);
	free(e.v);
}
