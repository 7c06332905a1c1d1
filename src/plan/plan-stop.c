/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a plan. Everything it keeps is removed; what cannot be removed is named and stays
 * registered, so that the next attempt finds it.
 *
 * Crash: all sandboxes are marked CLEANED_UP in one step before the first is touched, and rows go
 * in one step after all removals. In between a second stop goes on where the first was ended.
 */
#include "plan/plan.h"

#include <stdio.h>

#include "plan/job.h"
#include "plan/plan-op.h"
#include "plan/plan-stop.h"
#include "plan/sandbox.h"
#include "strategy/dir.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

struct stopping {
	struct plan_op *op;
	struct atoll_result *res;
	bool gone[LIMIT_SANDBOXES];
	size_t n_left, n_done;
	bool unfinished;    /* the caller asked to stop */
	struct error first; /* why one was left */
};

/* ---- may it go? ---- */

static int stop_counting(void *user, const struct atoll_change *change)
{
	(void)change;
	*(bool *)user = true;
	return -1; /* one is enough */
}

/* When it cannot be told, there is. */
static bool box_has_work(struct atoll *a, const char *plan_name, const struct sandbox_row *row)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	bool found = false;

	if (row->state == ATOLL_SANDBOX_ERRORED)
		return !sandbox_is_remains(row);
	/* It could not be looked at in this boot. */
	if (durable_other_boot(row) && durable_unused(row))
		return true;
	/* In the other states nobody has a path to write to. */
	if (row->state != ATOLL_SANDBOX_ACTIVE || row->stale)
		return false;
	if (sandbox_open(&s, a, plan_name, row, NULL) < 0)
		return true;
	return participant_diff(s.part, stop_counting, &found, NULL) < 0 || found;
}

bool plan_op_has_work(const struct plan_op *op)
{
	for (size_t i = 0; i < op->boxes.n; i++)
		if (box_has_work(op->a, op->plan.name, &op->boxes.v[i]) ||
		    dir_keeps_conflicts(op->boxes.v[i].area))
			return true;
	return false;
}

/* What somebody else wrote, or an original that was not put back, is dropped by force only. */
static int check_conflicts(const struct plan_op *op, const struct sandbox_row *row,
                           struct error *err)
{
	if (op->flags & OP_FORCE || !dir_keeps_conflicts(row->area))
		return 0;
	(void)error_set(err, -ATOLL_E_STATE,
	                "versions of '%s' that are nowhere else are kept in '%s/%s'", row->root,
	                row->area, DIR_CONFLICTS);
	error_hint(err, "take from it what you need, then atoll rm --force %s", op->plan.name);
	return -ATOLL_E_STATE;
}

char *plan_kept_versions(struct atoll_plan *p)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	if (sandboxes_load(p->a->reg, p->id, &boxes, NULL) < 0)
		return NULL;
	for (size_t i = 0; i < boxes.n; i++)
		if (dir_keeps_conflicts(boxes.v[i].area))
			return xasprintf("%s/%s", boxes.v[i].area, DIR_CONFLICTS);
	return NULL;
}

static int check_stop(const struct plan_op *op, struct error *err)
{
	for (size_t i = 0; i < op->boxes.n; i++) {
		const struct sandbox_row *row = &op->boxes.v[i];

		if (check_conflicts(op, row, err) < 0)
			return error_prefix(err, -ATOLL_E_STATE, "nothing was removed");
		if (!box_has_work(op->a, op->plan.name, row))
			continue;
		if (row->state == ATOLL_SANDBOX_ERRORED) {
			(void)error_set(
				err, -ATOLL_E_STATE,
				"'%s' is in error and may hold what was not restored (%s); nothing was "
				"removed",
				row->root, row->error);
			error_hint(
				err,
				"atoll recover %s, atoll rollback %s or atoll discard %s; atoll rm "
				"--force %s drops it",
				op->plan.name, op->plan.name, op->plan.name, op->plan.name);
			return -ATOLL_E_STATE;
		}
		(void)error_set(err, -ATOLL_E_STATE,
		                "'%s' has uncommitted work; nothing was removed", row->root);
		error_hint(err, "atoll commit %s, or atoll rm --force %s drops it", op->plan.name,
		           op->plan.name);
		return -ATOLL_E_STATE;
	}
	return 0;
}

/* ---- removing ---- */

static int write_marks(struct registry *reg, void *ctx, struct error *err)
{
	const struct plan_op *op = ctx;
	int r = 0;

	for (size_t i = 0; r == 0 && i < op->boxes.n; i++) {
		const struct sandbox_row *row = &op->boxes.v[i];

		/* By force only: a batch that can be neither finished nor withdrawn. */
		if (row->state == ATOLL_SANDBOX_PREPARED)
			r = registry_sandbox_set_state(reg, row->id, ATOLL_SANDBOX_ERRORED,
			                               "given up", err);
		if (r == 0 && row->state != ATOLL_SANDBOX_CLEANED_UP)
			r = registry_sandbox_set_state(reg, row->id, ATOLL_SANDBOX_CLEANED_UP, "",
			                               err);
	}
	return r;
}

static int release_batch(void *ctx, const struct batch_row *batch)
{
	struct atoll_participant *part = ctx;
	const struct participant_batch b = { .number = batch->number,
		                             .flags = batch->flags,
		                             .undoing = batch->state == BATCH_UNDONE };

	/* Released ones too: whoever did it may have been ended half-way. */
	/* What stays of it shows when the area is removed. */
	participant_set_batch(part, &b);
	(void)participant_release(part, NULL);
	return 0;
}

static int remove_one(struct plan_op *op, const struct sandbox_row *row, struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;

	if (sandbox_open(&s, op->a, op->plan.name, row, NULL) == 0)
		(void)registry_batch_list(op->a->reg, row->plan, release_batch, s.part, NULL);
	/* Late writes show only now. */
	if (check_conflicts(op, row, err) < 0)
		return -ATOLL_E_STATE;
	return sandbox_erase(op->a, op->plan.name, row, err);
}

static void report(struct stopping *st, const struct sandbox_row *row, struct error *cause)
{
	struct atoll_participant_result *line =
		result_row(st->res, row->id, row->root, row->strategy);

	if (line) {
		line->outcome = cause->code ? ATOLL_OUTCOME_FAILED : ATOLL_OUTCOME_REMOVED;
		line->state = ATOLL_SANDBOX_CLEANED_UP;
		if (cause->code) {
			result_row_error(st->res, line, cause);
			result_row_recovery_path(st->res, line, row->area);
		}
	}
	if (cause->code && st->n_left++ == 0)
		error_move(&st->first, cause);
}

static void remove_all(struct stopping *st)
{
	for (size_t i = 0; i < st->op->boxes.n; i++) {
		cleanup_error struct error cause = ERROR_INIT;
		const struct sandbox_row *row = &st->op->boxes.v[i];

		st->unfinished = progress_check() < 0;
		if (st->unfinished)
			return;
		st->n_done++;
		st->gone[i] = remove_one(st->op, row, &cause) == 0;
		report(st, row, &cause);
		crashpoint("plan.stop.after-remove");
	}
}

static int write_gone(struct registry *reg, void *ctx, struct error *err)
{
	const struct stopping *st = ctx;
	const struct plan_op *op = st->op;
	int r = 0;

	if (st->n_left == 0) {
		r = registry_plan_delete(reg, op->plan.id, err);
		return r < 0 ? r
		             : registry_event_add(reg, op->plan.id, "stop", 0,
		                                  op->why ? op->why : "", err);
	}
	for (size_t i = 0; r == 0 && i < op->boxes.n; i++)
		if (st->gone[i])
			r = sandbox_forget(reg, &op->boxes.v[i], err);
	return r;
}

int plan_op_remove(struct plan_op *op, struct atoll_result *res, struct error *err)
{
	struct stopping st = { .op = op, .res = res };
	int r = progress_enter(PROGRESS_DECIDED);

	if (r < 0)
		return error_set(err, r, "interrupted; nothing was changed");
	r = store_write(op->a, REGISTRY_DURABLE, write_marks, op, err);
	if (r < 0)
		return plan_op_refused(op, r, "nothing was removed", err);
	crashpoint("plan.stop.after-mark");
	remove_all(&st);
	if (st.unfinished) {
		error_done(&st.first);
		return plan_op_unfinished(op, st.n_done, err);
	}
	crashpoint("plan.stop.before-delete");
	r = store_write(op->a, REGISTRY_DURABLE, write_gone, &st, err);
	crashpoint("plan.stop.after-delete");
	if (r == 0 && st.n_left > 0) {
		r = st.first.code;
		error_move(err, &st.first);
		if (err && !err->hint)
			error_hint(err, "remove what is in the way, then atoll rm %s",
			           op->plan.name);
		return error_prefix(err, r,
		                    "%zu of %zu resources could not be removed from plan '%s'",
		                    st.n_left, op->boxes.n, op->plan.name);
	}
	error_done(&st.first);
	if (r < 0)
		return plan_op_refused(op, r, "the work is removed, but not the plan's record",
		                       err);
	op->flags |= OP_QUIET; /* its last line is written */
	resource_locks_forget(op->resources, op->a);
	plan_lock_forget(op->a, op->plan.id);
	owner_drop(op->a, op->plan.id);
	cleanup_moves(op->a);
	return 0;
}

/* A job would be waited for until it ends by itself. Not ended when the plan cannot go anyway. */
static int end_job(struct atoll_plan *p, bool force, const char *mirror, struct error *err)
{
	cleanup_plan_op struct plan_op look = PLAN_OP_INIT;
	char name[LIMIT_NAME + 1];
	int r = job_running(p, name, err);

	if (r <= 0)
		return r;
	look.a = p->a;
	(void)snprintf(look.plan.id, sizeof(look.plan.id), "%s", p->id);
	r = plan_op_reload(&look, err);
	if (r == 0 && !force)
		r = check_stop(&look, err);
	if (r == 0 && mirror)
		r = plan_op_check_mirror(&look, mirror, err);
	if (r < 0)
		return error_prefix(err, r, "job '%s' still runs", name);
	r = job_stop(p, name, err);
	return r < 0 ? r : 0;
}

static int stop_plan(struct atoll_plan *p, unsigned flags, const char *mirror,
                     struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	bool force = flags & ATOLL_FORCE;
	const struct plan_op_options opt = { .verb = "stop",
		                             .mirror = mirror,
		                             .flags = OP_RESOURCES | OP_AUDITED |
		                                      (force ? OP_UNRECOVERED | OP_FORCE : 0) };
	int r = end_job(p, force, mirror, err);

	if (r < 0)
		return r;
	r = plan_op_begin(&op, p, &opt, err);
	if (r == -ATOLL_E_NOT_FOUND) { /* stopped before: that is what was asked for */
		if (err)
			error_done(err);
		return 0;
	}
	if (r < 0)
		return r;
	if (!force)
		r = check_stop(&op, err);
	if (r == 0)
		r = plan_op_remove(&op, res, err);
	return plan_op_end(&op, r, err);
}

int plan_stop(struct atoll_plan *p, unsigned flags, struct atoll_result *res, struct error *err)
{
	return stop_plan(p, flags, NULL, res, err);
}

int plan_mirror_stop(struct atoll_plan *p, const char *root, struct atoll_result *res,
                     struct error *err)
{
	return stop_plan(p, ATOLL_FORCE, root, res, err);
}
