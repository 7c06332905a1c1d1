/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding about a plan's work: commit, roll back, reset. The protocol is txn/'s; here is who may,
 * in which state, and what becomes of the workspaces.
 */
#include "plan/plan.h"

#include <errno.h>

#include "plan/digest.h"
#include "plan/plan-op.h"
#include "plan/plan-select.h"
#include "plan/plan-stop.h"
#include "plan/sandbox.h"
#include "txn/txn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

static struct atoll_participant_result *row_of(struct atoll_result *res,
                                               const struct sandbox_row *row)
{
	return result_row(res, row->id, row->root, row->strategy);
}

/* ---- commit ---- */

static bool has_work(const struct sandbox_row *row)
{
	return row->state == ATOLL_SANDBOX_CREATED || row->state == ATOLL_SANDBOX_ACTIVE;
}

/* Nothing can have changed since the last decision. */
static void report_idle(const struct plan_op *op, struct atoll_result *res)
{
	for (size_t i = 0; i < op->boxes.n; i++) {
		struct atoll_participant_result *row = row_of(res, &op->boxes.v[i]);

		if (!row)
			continue;
		row->state = op->boxes.v[i].state;
		row->outcome = row->state == ATOLL_SANDBOX_COMMITTED ? ATOLL_OUTCOME_SKIPPED
		                                                     : ATOLL_OUTCOME_UNCHANGED;
	}
}

static int check_commit(struct plan_op *op, const struct atoll_commit *commit, bool *ret_idle,
                        struct error *err)
{
	bool selective = commit->paths && *commit->paths;
	bool idle = true;

	for (size_t i = 0; i < op->boxes.n; i++) {
		const struct sandbox_row *row = &op->boxes.v[i];
		int r = 0;

		/* Of a part of the plan those taking part are asked later. */
		if (!selective &&
		    (row->state == ATOLL_SANDBOX_ERRORED || row->state == ATOLL_SANDBOX_CLEANED_UP))
			r = sandbox_allows(row, SANDBOX_VERB_PREPARE, op->plan.name, err);
		if (r == 0 && sandbox_is_live(row))
			r = sandbox_verify_root(row, err);
		if (r == 0 && has_work(row))
			r = sandbox_verify_area(row, op->plan.name, err);
		if (r < 0)
			return r;
		idle &= !has_work(row);
	}
	*ret_idle = idle;
	return 0;
}

#define RETAIN_MAX_MS (INT64_C(1) << 52) /* longer is for ever, far from where sums overflow */

/* As txn.h has it: 0 is for ever. What may go at once may go after a millisecond. */
static int64_t retention(struct atoll *a, const struct atoll_commit *commit)
{
	int64_t ms;

	if (commit->flags & ATOLL_NO_UNDO)
		return 1; /* for a recovery: otherwise it is released when committed */
	pthread_mutex_lock(&a->mutex);
	ms = commit->retain_ms ? commit->retain_ms : a->retain_ms;
	pthread_mutex_unlock(&a->mutex);
	if (ms < 0 || ms > RETAIN_MAX_MS)
		return 0;
	return ms > 0 ? ms : 1;
}

/* What was looked at, by its digest. */
struct reviewed {
	const struct plan_op *op;
	struct digest digest;
};

static int confirm_reviewed(void *ctx, struct error *err)
{
	const struct reviewed *v = ctx;

	return digest_check_again(v->op->a, &v->op->plan, &v->op->boxes, &v->digest, err);
}

static int commit_locked(struct plan_op *op, const struct atoll_commit *commit,
                         struct atoll_result *res, struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	struct reviewed v = { .op = op };
	bool idle = false;
	int r = check_commit(op, commit, &idle, err);

	if (r >= 0 && commit->digest)
		r = digest_check(op->a, &op->plan, &op->boxes, commit->digest, &v.digest, err);
	if (r < 0)
		return r;
	r = txn_open(&t, op->a->reg, &op->plan, op->epoch, res, err);
	if (r == 0)
		r = plan_select(&t, commit, err);
	if (r < 0)
		return r;
	if (idle) {
		report_idle(op, res);
		return 0;
	}
	t.retain_ms = retention(op->a, commit);
	if (commit->digest) {
		t.confirm = confirm_reviewed;
		t.confirm_ctx = &v;
	}
	r = txn_commit(&t, commit->flags, err);
	if (r >= 0)
		plan_select_report(&t, commit);
	return r;
}

/* MIRROR: as struct plan_op_options has it. */
static int commit_plan(struct atoll_plan *p, const struct atoll_commit *commit, const char *mirror,
                       struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	unsigned audited = commit->flags & ATOLL_DRY_RUN ? 0 : OP_AUDITED;
	const struct plan_op_options opt = { .verb = "commit",
		                             .mirror = mirror,
		                             .flags = OP_RESOURCES | audited };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = commit_locked(&op, commit, res, err);
	if (commit->flags & ATOLL_DRY_RUN)
		op.verb = "dry-run"; /* for the history */
	else
		op.flags |= OP_DECIDES;
	r = plan_op_end(&op, r, err);
	cleanup_retention(p->a, p->id);
	return r;
}

int plan_commit(struct atoll_plan *p, const struct atoll_commit *commit, struct atoll_result *res,
                struct error *err)
{
	return commit_plan(p, commit, NULL, res, err);
}

int plan_mirror_check(struct atoll_plan *p, const char *root, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "sync", .mirror = root, .flags = OP_QUIET };
	int r = plan_op_begin(&op, p, &opt, err);

	return r < 0 ? r : plan_op_end(&op, 0, err);
}

/* What may be installed elsewhere is decided where the client is. */
int plan_mirror_commit(struct atoll_plan *p, const char *root, struct atoll_result *res,
                       struct error *err)
{
	static const struct atoll_commit all = {
		.flags = ATOLL_NO_UNDO | ATOLL_ALLOW_SPECIAL | ATOLL_ALLOW_SETUID |
		         ATOLL_ALLOW_GIT_PROGRAMS | ATOLL_ALLOW_OPEN_DATABASE,
	};

	return commit_plan(p, &all, root, res, err);
}

/* ---- dropping work ---- */

struct drop {
	struct plan_op *op;
	struct atoll_result *res;
	enum atoll_sandbox_state to; /* ROLLED_BACK, or ACTIVE: stay as you are */
	bool settled;                /* what is ROLLED_BACK was dropped before */
	bool undone;                 /* by this command; only the work is left */
	bool partial;                /* what cannot go back may stay */
	bool done[LIMIT_SANDBOXES];  /* dropped: to be recorded */
	char *why[LIMIT_SANDBOXES];  /* could not be */
	struct error first;          /* failure */
	int code;
};

static void drop_done(struct drop *d)
{
	for (size_t i = 0; i < LIMIT_SANDBOXES; i++)
		cleanup_freep(&d->why[i]);
	error_done(&d->first);
}
#define cleanup_drop __attribute__((__cleanup__(drop_done)))

/* BEGUN: the workspace was touched. */
static void note_failure(struct drop *d, size_t i, bool begun, struct error *cause)
{
	struct atoll_participant_result *row = row_of(d->res, &d->op->boxes.v[i]);
	bool in_place = cause->code == -ATOLL_E_NOT_UNDOABLE;

	if (row) {
		row->outcome =
			in_place ? ATOLL_OUTCOME_NOT_UNDOABLE : ATOLL_OUTCOME_ROLLBACK_FAILED;
		row->workspace_reset = ATOLL_FACT_NO;
		result_row_error(d->res, row, cause);
	}
	/* What is worked on in place is not broken by staying as it is. */
	if (begun && !in_place)
		d->why[i] = xstrdup(cause->msg ? cause->msg : "the workspace could not be reset");
	if (d->code == 0 && !(in_place && d->partial)) {
		d->code = cause->code;
		error_move(&d->first, cause);
	}
}

static void note_success(struct drop *d, size_t i)
{
	struct atoll_participant_result *row = row_of(d->res, &d->op->boxes.v[i]);

	d->done[i] = true;
	if (!row)
		return;
	row->workspace_reset = ATOLL_FACT_YES;
	if (row->outcome == ATOLL_OUTCOME_NOT_ATTEMPTED)
		row->outcome = ATOLL_OUTCOME_ROLLED_BACK;
}

/* *RET_BEGUN: also when it failed. */
static int drop_one(struct plan_op *op, struct sandbox_row *row, bool *ret_begun, struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	bool untouched = row->state == ATOLL_SANDBOX_CREATED;
	int r = sandbox_verify_root(row, err);

	if (r == 0)
		r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r < 0)
		return r;
	*ret_begun = true;
	r = participant_reset(s.part, err);
	if (r == -ATOLL_E_NOT_UNDOABLE && untouched) { /* there is nothing to undo */
		if (err)
			error_done(err);
		r = 0;
	}
	if (r < 0)
		return r;
	row->stale = participant_stale(s.part);
	row->generation = participant_generation(s.part);
	sandbox_written(row);
	return 0;
}

/* What was committed of it is there to stay: to drop the work takes nothing back. */
static bool is_final(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return row->state == ATOLL_SANDBOX_COMMITTED &&
	       strategy_find(row->strategy, &s, NULL) == 0 && !(s->capabilities & ATOLL_CAP_UNDO);
}

static enum atoll_sandbox_state state_after(const struct drop *d, size_t i)
{
	enum atoll_sandbox_state now = d->op->boxes.v[i].state;

	if (d->why[i])
		return sandbox_state_allows(now, ATOLL_SANDBOX_ERRORED) ? ATOLL_SANDBOX_ERRORED
		                                                        : now;
	if (!d->done[i] || is_final(&d->op->boxes.v[i]))
		return now;
	if (d->to == ATOLL_SANDBOX_ROLLED_BACK || now == ATOLL_SANDBOX_ERRORED)
		return d->to;
	return now;
}

static int write_dropped(struct registry *reg, void *ctx, struct error *err)
{
	struct drop *d = ctx;
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->op->boxes.n; i++) {
		struct sandbox_row *row = &d->op->boxes.v[i];
		enum atoll_sandbox_state to = state_after(d, i);
		struct atoll_participant_result *line = row_of(d->res, row);

		if (d->done[i])
			r = registry_sandbox_update(reg, row, err);
		if (r == 0 && to != row->state)
			r = registry_sandbox_set_state(reg, row->id, to, d->why[i] ? d->why[i] : "",
			                               err);
		if (line)
			line->state = to;
	}
	if (r == 0 && d->to == ATOLL_SANDBOX_ROLLED_BACK && d->code == 0)
		r = plan_op_set_state(d->op, ATOLL_PLAN_ROLLED_BACK, err);
	return r;
}

/* Nothing to drop: not a workspace. */
static bool has_nothing(const struct sandbox_row *row)
{
	return !sandbox_is_live(row) || sandbox_is_remains(row);
}

/* Before anything is done to any of them: one whose resource is not there, or another's, can wait until it
 * is back, and so can the rest. */
static int verify_roots(const struct plan_op *op, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < op->boxes.n && r == 0; i++)
		if (!has_nothing(&op->boxes.v[i]))
			r = sandbox_verify_root(&op->boxes.v[i], err);
	return r;
}

/* Dropped before and not used since: what could not be reset then (a busy mount) is tried again, and
 * that is all. */
static bool was_dropped(const struct drop *d, const struct sandbox_row *row)
{
	return d->settled && row->state == ATOLL_SANDBOX_ROLLED_BACK;
}

/* All are visited, whatever becomes of the others. */
static void drop_all(struct drop *d)
{
	for (size_t i = 0; i < d->op->boxes.n; i++) {
		cleanup_error struct error cause = ERROR_INIT;
		struct sandbox_row *row = &d->op->boxes.v[i];
		struct atoll_participant_result *line = row_of(d->res, row);
		bool begun = false;

		if (!has_nothing(row) && drop_one(d->op, row, &begun, &cause) < 0) {
			note_failure(d, i, begun, &cause);
		} else if (has_nothing(row) || was_dropped(d, row)) {
			if (line && line->outcome == ATOLL_OUTCOME_NOT_ATTEMPTED)
				line->outcome = ATOLL_OUTCOME_UNCHANGED;
		} else {
			note_success(d, i);
		}
	}
}

#define BACK "the originals are back, but not all of the rest is done"

static int drop_work(struct drop *d, struct error *err)
{
	int r = d->undone ? 0 : progress_enter(PROGRESS_DECIDED);

	if (r < 0)
		return error_set(err, r, "interrupted; nothing was changed");
	drop_all(d);
	/* A workspace is dropped by what is on record of it. */
	r = store_write(d->op->a, REGISTRY_DURABLE, write_dropped, d, err);
	r = plan_op_refused(d->op, r, d->undone ? BACK : "the work is kept", err);
	if (r == 0 && d->code < 0) {
		error_move(err, &d->first);
		r = d->undone ? plan_op_refused(d->op, d->code, BACK, err) : d->code;
	}
	return r;
}

/* ---- roll back ---- */

struct committed {
	struct plan_op *op;
	size_t n;      /* batches that still count */
	bool released; /* what undoing one of them needs is gone */
	struct error *err;
};

static int any_change(void *ctx, const struct part_row *part)
{
	if (part->answer == PART_READY)
		*(bool *)ctx = true;
	return 0;
}

static int look_at_batch(void *ctx, const struct batch_row *batch)
{
	struct committed *c = ctx;
	bool changed = false;
	int r;

	if (batch->state != BATCH_COMMITTED)
		return 0;
	c->n++;
	if (!batch->released)
		return 0;
	r = registry_part_list(c->op->a->reg, batch->plan, batch->number, any_change, &changed,
	                       c->err);
	c->released |= changed;
	return r;
}

/* 1: undone, with the work; 0: nothing was committed. */
static int undo_batches(struct plan_op *op, unsigned flags, struct atoll_result *res,
                        struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	struct committed c = { .op = op, .err = err };
	int r = registry_batch_list(op->a->reg, op->plan.id, look_at_batch, &c, err);

	if (r < 0 || c.n == 0)
		return r;
	if (c.released) {
		(void)error_set(err, -ATOLL_E_RECOVERY_MISSING,
		                "what is needed to undo the commit of '%s' was released; the "
		                "resources keep what was committed, nothing was changed",
		                op->plan.name);
		error_hint(err, "atoll discard %s drops the work alone", op->plan.name);
		return -ATOLL_E_RECOVERY_MISSING;
	}
	r = verify_roots(op, err);
	if (r == 0)
		r = txn_open(&t, op->a->reg, &op->plan, op->epoch, res, err);
	if (r == 0)
		r = txn_undo(&t, flags, err);
	return r < 0 ? r : 1;
}

static int rollback_locked(struct plan_op *op, unsigned flags, struct atoll_result *res,
                           struct error *err)
{
	cleanup_drop struct drop d = { .op = op,
		                       .res = res,
		                       .to = ATOLL_SANDBOX_ROLLED_BACK,
		                       .settled = op->plan.state == ATOLL_PLAN_ROLLED_BACK,
		                       .partial = flags & ATOLL_ALLOW_PARTIAL };
	int r = undo_batches(op, flags, res, err);

	if (r < 0 || flags & ATOLL_KEEP_WORK)
		return r < 0 ? r : 0;
	d.undone = r > 0;
	d.settled |= d.undone; /* the undo dropped the work of what it undid */
	r = d.undone ? 0 : verify_roots(op, err);
	if (r == 0)
		r = plan_op_reload(op, err);
	return r >= 0 ? drop_work(&d, err) : d.undone ? plan_op_refused(op, r, BACK, err) : r;
}

int plan_rollback(struct atoll_plan *p, unsigned flags, struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "rollback",
		                             .flags = OP_RESOURCES | OP_DECIDES | OP_AUDITED };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = rollback_locked(&op, flags, res, err);
	return plan_op_end(&op, r, err);
}

/* Whoever resets a sandbox in error goes on without what it may have lost. */
static int forgo_lost(struct plan_op *op, struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	bool any = false;
	int r;

	for (size_t i = 0; i < op->boxes.n; i++)
		any |= op->boxes.v[i].state == ATOLL_SANDBOX_ERRORED;
	if (!any)
		return 0;
	r = txn_open(&t, op->a->reg, &op->plan, op->epoch, NULL, err);
	return r < 0 ? r : txn_forgo_lost(&t, err);
}

static int reset_locked(struct plan_op *op, struct atoll_result *res, struct error *err)
{
	cleanup_drop struct drop d = { .op = op, .res = res, .to = ATOLL_SANDBOX_ACTIVE };
	int r = verify_roots(op, err);

	if (r == 0)
		r = plan_op_refused(op, forgo_lost(op, err), "the work is kept", err);
	return r < 0 ? r : drop_work(&d, err);
}

static int reset_plan(struct atoll_plan *p, const char *mirror, struct atoll_result *res,
                      struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "reset",
		                             .flags = OP_RESOURCES | OP_DECIDES | OP_AUDITED,
		                             .mirror = mirror };
	int r = plan_op_begin(&op, p, &opt, err);

	return r < 0 ? r : plan_op_end(&op, reset_locked(&op, res, err), err);
}

int plan_reset(struct atoll_plan *p, struct atoll_result *res, struct error *err)
{
	return reset_plan(p, NULL, res, err);
}

int plan_mirror_reset(struct atoll_plan *p, const char *root, struct atoll_result *res,
                      struct error *err)
{
	return reset_plan(p, root, res, err);
}

static int look_at_kept(void *ctx, const struct batch_row *batch)
{
	if ((batch->state == BATCH_COMMITTED || batch->state == BATCH_UNDONE) && !batch->released)
		*(bool *)ctx = true;
	return 0;
}

static int look_at_use(void *ctx, const struct plan_use *use)
{
	*(bool *)ctx = use->from_run;
	return 0;
}

/* It was made by `run`, and nothing that can be undone or redone would go with it. */
static int ends_with_work(const struct plan_op *op, bool *ret, struct error *err)
{
	bool from_run = false, keeps = false;
	int r = registry_plan_uses(op->a->reg, op->plan.id, look_at_use, &from_run, err);

	if (r >= 0)
		r = registry_batch_list(op->a->reg, op->plan.id, look_at_kept, &keeps, err);
	*ret = from_run && !keeps;
	return r < 0 ? r : 0;
}

int plan_discard(struct atoll_plan *p, bool *ret_ended, struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "reset",
		                             .flags = OP_RESOURCES | OP_DECIDES | OP_AUDITED };
	bool ends = false;
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	/* Below the lock: until then another process may have committed. */
	r = ends_with_work(&op, &ends, err);
	if (r >= 0)
		r = ends ? plan_op_remove(&op, res, err) : reset_locked(&op, res, err);
	if (r >= 0)
		*ret_ended = ends;
	return plan_op_end(&op, r, err);
}

int plan_end_unchanged(struct atoll_plan *p, bool *ret_ended, struct atoll_result *res,
                       struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "stop", .flags = OP_RESOURCES | OP_AUDITED };
	bool ends = false;
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = ends_with_work(&op, &ends, err);
	ends = r >= 0 && ends && !plan_op_has_work(&op);
	if (ends)
		r = plan_op_remove(&op, res, err);
	if (r >= 0)
		*ret_ended = ends;
	return plan_op_end(&op, r, err);
}

/* ---- refresh ---- */

static int write_counted(struct registry *reg, void *ctx, struct error *err)
{
	return registry_sandbox_update(reg, ctx, err);
}

static int refresh_one(struct plan_op *op, struct sandbox_row *row, struct atoll_result *res,
                       struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	const struct participant_batch b = { .res = res };
	struct atoll_participant_result *line = row_of(res, row);
	int r = sandbox_verify_root(row, err);

	if (r == 0)
		r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r < 0)
		return r;
	durable_count(row);
	r = store_write(op->a, REGISTRY_DURABLE, write_counted, row, err);
	if (r < 0)
		return plan_op_refused(op, r, "the work is as it was", err);
	participant_set_batch(s.part, &b);
	r = participant_refresh(s.part, err);
	durable_note_later(row);
	if (line) {
		line->outcome = r < 0 ? ATOLL_OUTCOME_FAILED : ATOLL_OUTCOME_UNCHANGED;
		line->state = row->state;
		line->changes = r < 0 ? 0 : participant_changes(s.part);
	}
	return r;
}

int plan_refresh(struct atoll_plan *p, struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "refresh",
		                             .flags = OP_RESOURCES | OP_AUDITED };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	if (progress_enter(PROGRESS_DECIDED) < 0)
		return plan_op_end(
			&op, error_set(err, -ECANCELED, "interrupted; nothing was changed"), err);
	for (size_t i = 0; i < op.boxes.n && r >= 0; i++) {
		if (progress_check() < 0)
			r = plan_op_unfinished(&op, i, err);
		else if (has_work(&op.boxes.v[i]))
			r = refresh_one(&op, &op.boxes.v[i], res, err);
	}
	return plan_op_end(&op, r, err);
}
