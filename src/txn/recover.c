/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery: the registry says what was decided, the manifests what that means. See recover.h. */
#include "txn/recover.h"

#include <stdlib.h>
#include <string.h>

#include "fs/remove.h"
#include "txn/txn-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/list.h"
#include "util/mem.h"

#define OPEN_BATCHES                                                                               \
	(1u << BATCH_PREPARING | 1u << BATCH_DECIDED | 1u << BATCH_REVOKED | 1u << BATCH_UNDOING | \
	 1u << BATCH_REDOING)

/* ---- is there anything to do? ---- */

static int is_pending(void *ctx, const struct sandbox_row *row)
{
	bool *found = ctx;

	if (row->state == ATOLL_SANDBOX_PENDING)
		*found = true;
	return 0;
}

bool recover_unsettled(const struct plan_row *plan)
{
	enum atoll_plan_state s = plan->state;

	return s == ATOLL_PLAN_PREPARING || s == ATOLL_PLAN_DECIDED || s == ATOLL_PLAN_REVOKED ||
	       s == ATOLL_PLAN_UNDOING;
}

bool recover_needed(struct registry *reg, const struct plan_row *plan, struct error *err)
{
	bool found = recover_unsettled(plan);

	if (!found)
		(void)registry_sandbox_list(reg, plan->id, is_pending, &found, err);
	return found;
}

/* ---- a batch ---- */

static int finish_preparing(struct txn *t, struct error *err)
{
	int r = step_abort(t, err);

	return r < 0 ? r : record_withdrawn(t, err);
}

static int finish_revoked(struct txn *t, struct error *err)
{
	int r = step_verify(t, err);

	if (r >= 0)
		r = step_undo(t, err);
	if (r >= 0)
		r = step_unlock(t, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-revoke", err);
	crashpoint("recover.undone");
	if (r >= 0)
		r = record_withdrawn(t, err);
	for (size_t i = 0; r >= 0 && i < t->n; i++)
		if (t->parts[i].selected)
			(void)participant_release(t->parts[i].part, NULL);
	return r;
}

/* For the history; who recovers in passing shows nobody a result. */
static void tell(struct txn *t, int code, const char *message)
{
	if (registry_begin(t->reg, REGISTRY_NORMAL, NULL) < 0)
		return;
	if (registry_event_add(t->reg, t->plan.id, "recover", code, message, NULL) < 0)
		registry_rollback(t->reg);
	else
		(void)registry_commit(t->reg, NULL);
}

/* Somebody refuses for good what was decided, which only those can who hold nothing in between, such
 * as a database that others write to; as long as nobody was told and nothing is final, which was asked
 * before, all go back. */
static int take_back(struct txn *t, int cause, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r = record_revoked(t, &e);

	crashpoint("recover.revoked");
	if (r >= 0)
		r = finish_revoked(t, &e);
	if (r < 0)
		return cause;
	if (err) {
		tell(t, cause, err->msg);
		result_note(t->res, ATOLL_NOTE_WARNING, "", "", err->msg);
		error_done(err);
	}
	return 0;
}

static int finish_decided(struct txn *t, struct error *err)
{
	int r = step_verify(t, err);

	if (r >= 0 && !sabotage("recover-redo")) {
		r = step_apply(t, err);
		if (r == -ATOLL_E_CONFLICT && step_may_revoke(t, r, err))
			return take_back(t, r, err);
	}
	if (r >= 0)
		r = step_unlock(t, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-3", err);
	crashpoint("recover.applied");
	if (r >= 0)
		r = record_committed(t, err);
	/* The commit stands; what fails here is only housekeeping. */
	for (size_t i = 0; r >= 0 && i < t->n; i++)
		if (t->parts[i].selected)
			(void)participant_finish(t->parts[i].part, NULL);
	/* Nobody wanted to undo it. What cannot be released now is when its time has passed. */
	if (r >= 0 && t->batch.flags & ATOLL_NO_UNDO)
		(void)txn_release(t, t->batch.number, NULL);
	return r;
}

static int recover_batch(struct txn *t, const struct batch_row *batch, struct error *err)
{
	int r = step_load(t, batch, false, err);

	if (r < 0)
		return r;
	switch (batch->state) {
	case BATCH_PREPARING:
		return finish_preparing(t, err);
	case BATCH_DECIDED:
		return finish_decided(t, err);
	case BATCH_REVOKED:
		return finish_revoked(t, err);
	case BATCH_UNDOING:
	case BATCH_REDOING:
	case BATCH_COMMITTED:
	case BATCH_UNDONE:
	case BATCH_WITHDRAWN:
	case BATCH_STATE_END_:
		break;
	}
	return 0;
}

/* ---- an undo, which covers several batches ---- */

static int verify_all(struct txn *t, const struct batch_row *batches, size_t n, bool undoing,
                      struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = step_load(t, &batches[i], undoing, err);
		if (r >= 0)
			r = step_verify(t, err);
	}
	return r;
}

/* What was decided is refused for good, by a resource that others changed while no process held it: the undo
 * or redo of one batch is withdrawn then, for which that resource need do nothing. */
static bool is_refused(const struct batch_row *batches, size_t n, int r, unsigned direction)
{
	return r == -ATOLL_E_CONFLICT && n == 1 && batches[0].flags & TXN_ALONE &&
	       (batches[0].flags & TXN_REDO) == direction;
}

static int recover_redoing(struct txn *t, const struct batch_row *batches, size_t n,
                           struct error *err);

static int recover_undoing(struct txn *t, const struct batch_row *batches, size_t n,
                           struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r = verify_all(t, batches, n, true, err);

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = step_load(t, &batches[i], true, err);
		if (r >= 0)
			r = step_undo(t, err);
	}
	if (r >= 0)
		r = step_unlock_all(t, batches, n, true, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-undo", err);
	crashpoint("recover.undo.undone");
	if (is_refused(batches, n, r, 0) && record_redoing(t, batches, n, &e) >= 0) {
		struct batch_row back = batches[0];

		back.state = BATCH_REDOING;
		tell(t, r, err ? err->msg : "");
		if (err)
			error_done(err);
		return recover_redoing(t, &back, 1, err);
	}
	if (r < 0)
		return r;
	if (n && batches[0].flags & TXN_ALONE) {
		r = record_undone(t, batches, n, err);
		if (r >= 0)
			step_finish(t);
		return r;
	}
	if (n && batches[0].flags & ATOLL_KEEP_WORK) {
		r = step_keep_work(t, batches, n, err);
		if (r >= 0)
			r = step_barrier(t, "barrier-keep", err);
		if (r < 0)
			return r;
	} else {
		(void)step_drop_work(t, &e);
	}
	r = record_undone(t, batches, n, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		(void)txn_release(t, batches[i].number, NULL);
	return r;
}

static int recover_redoing(struct txn *t, const struct batch_row *batches, size_t n,
                           struct error *err)
{
	int r = verify_all(t, batches, n, false, err);

	for (size_t i = n; i-- > 0 && r >= 0;) {
		r = step_load(t, &batches[i], false, err);
		if (r >= 0)
			r = step_apply(t, err);
	}
	if (r >= 0)
		r = step_unlock_all(t, batches, n, false, err);
	if (is_refused(batches, n, r, TXN_REDO) &&
	    record_redo_withdrawn(t, &batches[0], NULL) >= 0) {
		struct batch_row back = batches[0];

		back.state = BATCH_UNDOING;
		tell(t, r, err ? err->msg : "");
		if (err)
			error_done(err);
		return recover_undoing(t, &back, 1, err);
	}
	if (r >= 0)
		r = step_barrier(t, "barrier-redo", err);
	if (r >= 0)
		r = record_redone(t, batches, n, err);
	if (r >= 0 && n && batches[0].flags & TXN_ALONE)
		step_finish(t);
	return r;
}

/* ---- sandboxes whose creation was cut off ---- */

struct removal {
	const char *sandbox;
	struct strlist paths;
};

static int collect_path(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	struct removal *rm = ctx;

	(void)plan;
	if (strcmp(sandbox, rm->sandbox) == 0)
		strlist_add(&rm->paths, path);
	return 0;
}

static int remove_pending(struct txn *t, struct txn_part *p, struct error *err)
{
	struct removal rm = { .sandbox = p->row.id };
	int r = registry_path_list(t->reg, t->plan.id, collect_path, &rm, err);

	for (size_t i = 0; i < rm.paths.n && r >= 0; i++) {
		r = remove_tree(rm.paths.v[i]);
		if (r < 0)
			r = error_sys(err, r, "remove", rm.paths.v[i]);
	}
	crashpoint("recover.pending.removed");
	if (r >= 0)
		r = registry_begin(t->reg, REGISTRY_DURABLE, err);
	if (r >= 0) {
		for (size_t i = 0; i < rm.paths.n && r >= 0; i++)
			r = registry_path_remove(t->reg, rm.paths.v[i], err);
		if (r >= 0)
			r = registry_sandbox_delete(t->reg, p->row.id, err);
		if (r >= 0)
			r = registry_commit(t->reg, err);
		else
			registry_rollback(t->reg);
	}
	strlist_done(&rm.paths);
	return r;
}

/* ---- the whole ---- */

/* A synchronous write of our own, before anything is touched: it proves that we may write, and
 * counts the attempt. */
static int announce(struct txn *t, struct error *err)
{
	int r = registry_begin(t->reg, REGISTRY_DURABLE, err);

	if (r < 0)
		return r;
	t->plan.attempts++;
	t->plan.epoch = t->epoch > t->plan.epoch ? t->epoch : t->plan.epoch;
	r = registry_plan_update(t->reg, &t->plan, err);
	if (r < 0) {
		registry_rollback(t->reg);
		return r;
	}
	return registry_commit(t->reg, err);
}

/* Others that pass by need not try again at once. */
static void back_off(struct txn *t)
{
	cleanup_error struct error e = ERROR_INIT;
	unsigned shift = t->plan.attempts < 7 ? t->plan.attempts : 7;

	t->plan.retry_at_ms = clock_real_ms() + (1000ll << shift);
	if (registry_begin(t->reg, REGISTRY_NORMAL, &e) < 0)
		return;
	if (registry_plan_update(t->reg, &t->plan, &e) < 0)
		registry_rollback(t->reg);
	else
		(void)registry_commit(t->reg, &e);
}

static int recover_open(struct txn *t, struct error *err)
{
	cleanup_free struct batch_row *open = NULL, *undoing = NULL, *redoing = NULL;
	size_t n_open = 0, n_undoing = 0, n_redoing = 0;
	int r = batches_in(t, OPEN_BATCHES, &open, &n_open, err);

	if (r >= 0)
		r = batches_in(t, 1u << BATCH_UNDOING, &undoing, &n_undoing, err);
	if (r >= 0)
		r = batches_in(t, 1u << BATCH_REDOING, &redoing, &n_redoing, err);
	for (size_t i = 0; i < n_open && r >= 0; i++)
		r = recover_batch(t, &open[i], err);
	if (r >= 0 && n_undoing)
		r = recover_undoing(t, undoing, n_undoing, err);
	if (r >= 0 && n_redoing)
		r = recover_redoing(t, redoing, n_redoing, err);
	for (size_t i = 0; i < t->n && r >= 0; i++)
		if (t->parts[i].row.state == ATOLL_SANDBOX_PENDING)
			r = remove_pending(t, &t->parts[i], err);
	return r;
}

int recover_plan(struct registry *reg, const char *plan_id, uint64_t epoch,
                 int (*check_root)(const struct sandbox_row *row, struct error *err),
                 struct atoll_result *res, struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	struct plan_row plan;
	int r = registry_plan_get(reg, plan_id, &plan, err);

	if (r < 0 || !recover_needed(reg, &plan, err))
		return r;
	r = txn_open(&t, reg, &plan, epoch, res, err);
	t.recovering = true;
	t.check_root = check_root;
	if (r >= 0)
		r = announce(&t, err);
	crashpoint("recover.announced");
	if (r >= 0)
		r = recover_open(&t, err);
	crashpoint("recover.done");
	if (r >= 0)
		return 1;
	if (r != -ATOLL_E_NEEDS_RECOVERY)
		back_off(&t);
	error_prefix(err, r, "plan '%s' needs recovery, nothing more was touched", plan.name);
	if (err)
		err->code = -ATOLL_E_NEEDS_RECOVERY;
	error_hint(err, "fix the problem above, then atoll recover %s", plan.name);
	return -ATOLL_E_NEEDS_RECOVERY;
}
