/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Undo and redo. The same steps as a commit, with a prepare of their own: UNDOING is the decision of an
 * undo, REDOING that of a redo. txn.h has the table of what is on record and on disk.
 *
 * An undo is about one batch alone, or, for a rollback, about every committed batch as one, newest first.
 */
#include "txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "txn/txn-impl.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/progress.h"
#include "util/remedy.h"

/* The result speaks of participants, not of batches: the worst outcome of a participant stays. */
static void say_prepared(struct txn *t, const struct txn_part *p, int r, const struct error *e)
{
	struct atoll_participant_result *row = step_row(t, p);

	if (!row || r >= 0)
		return;
	row->outcome = r == -ATOLL_E_NOT_UNDOABLE ? ATOLL_OUTCOME_NOT_UNDOABLE
	                                          : ATOLL_OUTCOME_ROLLBACK_FAILED;
	result_row_error(t->res, row, e);
	/* Who was only refused needs no repair. */
	if (r == -ATOLL_E_RECOVERY_MISSING)
		result_row_recovery_path(t->res, row, p->row.area);
}

static int prepare_part(struct txn *t, struct txn_part *p, unsigned flags, struct error *e)
{
	int r;

	if (p->record.irrevocable) {
		r = error_set(e, -ATOLL_E_NOT_UNDOABLE, "'%s' (%s): what was committed is final",
		              p->row.root, p->row.strategy);
		error_hint(e, "atoll %s %s --allow partial undoes the others",
		           flags & TXN_ALONE ? "undo" : "rollback", t->plan.name);
		say_prepared(t, p, r, e);
		p->selected = false;
		return flags & ATOLL_ALLOW_PARTIAL ? 0 : r;
	}
	if (t->batch.released) {
		r = error_set(e, -ATOLL_E_RECOVERY_MISSING,
		              "the originals of '%s' were released, they cannot be put back",
		              p->row.root);
		say_prepared(t, p, r, e);
		return r;
	}
	if (flags & ATOLL_KEEP_WORK && !participant_can(p->part, ATOLL_CAP_KEEP)) {
		r = error_set(e, -ATOLL_E_UNSUPPORTED,
		              "'%s' (%s) cannot make work again of what was committed", p->row.root,
		              p->row.strategy);
		error_hint(e, "atoll rollback %s drops the work", t->plan.name);
		say_prepared(t, p, r, e);
		return r;
	}
	r = participant_can(p->part, ATOLL_CAP_PREPARE) ? participant_prepare(p->part, e) : 0;
	say_prepared(t, p, r, e);
	return r;
}

/* A sandbox whose undo data is gone is in error from now on: somebody must look at it. */
static void mark_errored(struct txn *t, struct txn_part *p, const char *why)
{
	cleanup_error struct error e = ERROR_INIT;

	if (registry_begin(t->reg, REGISTRY_DURABLE, &e) < 0)
		return;
	if (registry_sandbox_set_state(t->reg, p->row.id, ATOLL_SANDBOX_ERRORED, why, &e) < 0) {
		registry_rollback(t->reg);
		return;
	}
	if (registry_commit(t->reg, &e) >= 0) {
		struct atoll_participant_result *row = step_row(t, p);

		p->row.state = ATOLL_SANDBOX_ERRORED;
		if (row)
			row->state = ATOLL_SANDBOX_ERRORED;
	}
}

static int prepare_batch(struct txn *t, const struct batch_row *batch, unsigned flags,
                         struct error *err)
{
	int first = 0, r = step_load(t, batch, true, err);

	if (r < 0)
		return r;
	t->batch.flags = flags;
	step_aim(t, true);
	for (size_t i = t->n; i-- > 0;) {
		cleanup_error struct error e = ERROR_INIT;

		if (!t->parts[i].selected)
			continue;
		r = prepare_part(t, &t->parts[i], flags, &e);
		if (r == -ATOLL_E_RECOVERY_MISSING)
			mark_errored(t, &t->parts[i], e.msg);
		if (r < 0 && first == 0) {
			error_move(err, &e);
			first = r;
		}
	}
	return first;
}

int txn_forgo_lost(struct txn *t, struct error *err)
{
	cleanup_free struct batch_row *batches = NULL;
	size_t n = 0;
	int r = batches_in(t, 1u << BATCH_COMMITTED, &batches, &n, err);

	for (size_t i = 0; i < n && r >= 0; i++) {
		cleanup_error struct error e = ERROR_INIT;

		if (!batches[i].released &&
		    prepare_batch(t, &batches[i], 0, &e) == -ATOLL_E_RECOVERY_MISSING)
			r = record_released(t, batches[i].number, err);
	}
	return r < 0 ? r : 0;
}

static int undo_batch(struct txn *t, const struct batch_row *batch, struct error *err)
{
	int r = step_load(t, batch, true, err);

	return r < 0 ? r : step_undo(t, err);
}

/* Nothing was decided. */
static void let_go(struct txn *t)
{
	for (size_t i = 0; i < t->n; i++)
		participant_let_go(t->parts[i].part);
}

static int say_nothing_undone(const struct txn *t, unsigned flags, int cause, struct error *err)
{
	if (cause < 0 && err && !err->hint && cause != -ATOLL_E_RECOVERY_MISSING)
		error_hint(err, "%s, then atoll %s %s", remedy_for(err->os_errno),
		           flags & TXN_ALONE ? "undo" : "rollback", t->plan.name);
	return error_prefix(err, cause, "nothing was undone");
}

/* The undo met a permanent failure after its decision: everything goes forward again. */
static int withdraw_undo(struct txn *t, const struct batch_row *batches, size_t n, int cause,
                         struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r = record_redoing(t, batches, n, &e);

	crashpoint("txn.redo.recorded");
	t->recovering = true;
	for (size_t i = n; i-- > 0 && r >= 0;) {
		struct batch_row batch = batches[i];

		batch.state = BATCH_REDOING;
		r = step_load(t, &batch, false, &e);
		if (r >= 0)
			r = step_apply(t, &e);
	}
	t->recovering = false;
	if (r >= 0)
		r = step_unlock_all(t, batches, n, false, &e);
	if (r >= 0)
		r = step_barrier(t, "barrier-redo", &e);
	if (r >= 0)
		r = record_redone(t, batches, n, &e);
	if (r < 0)
		return step_in_doubt(t, cause, err);
	if (batches[0].flags & TXN_ALONE)
		step_finish(t);
	return say_nothing_undone(t, batches[0].flags, cause, err);
}

/* Rows for participants no batch touched: nothing to undo is a success, and no work. */
static void say_unchanged(struct txn *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct atoll_participant_result *row = step_row(t, &t->parts[i]);

		if (row && row->outcome == ATOLL_OUTCOME_NOT_ATTEMPTED)
			row->outcome = ATOLL_OUTCOME_UNCHANGED;
	}
}

/* *ret_dropped: how dropping the work went, which is another matter than the undo. */
static int carry_out(struct txn *t, const struct batch_row *batches, size_t n, int *ret_dropped,
                     struct error *drop_err, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = undo_batch(t, &batches[i], err);
	if (r < 0 && progress_check() < 0)
		return step_unfinished(t, err);
	if (r < 0)
		return withdraw_undo(t, batches, n, r, err);
	crashpoint("txn.undo.undone");
	r = step_unlock_all(t, batches, n, true, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-undo", err);
	if (r >= 0 && batches[0].flags & TXN_ALONE) {
		r = record_undone(t, batches, n, err);
	} else if (r >= 0 && batches[0].flags & ATOLL_KEEP_WORK) {
		r = step_keep_work(t, batches, n, err);
		if (r >= 0)
			r = step_barrier(t, "barrier-keep", err);
		crashpoint("txn.undo.kept");
		if (r >= 0)
			r = record_undone(t, batches, n, err);
	} else if (r >= 0) {
		*ret_dropped = step_drop_work(t, drop_err);
		crashpoint("txn.undo.after-barrier");
		r = record_undone(t, batches, n, err);
	}
	if (r < 0)
		return step_in_doubt(t, r, err);
	crashpoint("txn.undo.recorded");
	return 0;
}

static void release_all(struct txn *t, const struct batch_row *batches, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		cleanup_error struct error e = ERROR_INIT;

		(void)txn_release(t, batches[i].number, &e);
	}
	crashpoint("txn.undo.released");
}

/* The plan has changes that neither an undo nor a redo is about. */
static unsigned open_flag(const struct txn *t)
{
	return t->plan.state == ATOLL_PLAN_OPEN ? TXN_OPEN : 0;
}

/* BATCHES, newest first. */
static int undo(struct txn *t, struct batch_row *batches, size_t n, unsigned flags,
                struct error *err)
{
	cleanup_error struct error drop_err = ERROR_INIT;
	int dropped = 0, r = 0;

	/* Everything that can fail, for every batch, before anything moves. */
	if (progress_enter(PROGRESS_PREPARING) < 0)
		return step_interrupted(err);
	for (size_t i = 0; i < n && progress_check() >= 0; i++) {
		cleanup_error struct error e = ERROR_INIT;
		int one = prepare_batch(t, &batches[i], flags, &e);

		if (one < 0 && r >= 0) {
			error_move(err, &e);
			r = one;
		}
	}
	if (r >= 0)
		r = step_barrier(t, "barrier-undo-1", err);
	crashpoint("txn.undo.prepared");
	if (progress_check() < 0 || (r >= 0 && progress_enter(PROGRESS_DECIDED) < 0)) {
		let_go(t);
		return step_interrupted(err);
	}
	if (r >= 0)
		r = record_undoing(t, batches, n, flags, err); /* the decision of an undo */
	if (r == -ATOLL_E_NEEDS_RECOVERY)
		return r; /* it is unknown: the next start reads what became of it */
	if (r < 0) {
		let_go(t);
		return say_nothing_undone(t, flags, r, err);
	}
	crashpoint("txn.undo.after-decision");
	r = carry_out(t, batches, n, &dropped, &drop_err, err);
	if (r < 0)
		return r;
	say_unchanged(t);
	if (flags & TXN_ALONE) {
		step_finish(t);
		return 0;
	}
	release_all(t, batches, n);
	/* What cannot be undone says so itself, in its row. */
	if (dropped >= 0 || dropped == -ATOLL_E_NOT_UNDOABLE)
		return 0;
	error_move(err, &drop_err);
	return error_prefix(err, dropped,
	                    "the originals are back, but a workspace could not be reset");
}

int txn_undo(struct txn *t, unsigned flags, struct error *err)
{
	cleanup_free struct batch_row *batches = NULL;
	size_t n = 0;
	int r = batches_in(t, 1u << BATCH_COMMITTED, &batches, &n, err);

	return r < 0 || n == 0 ? r : undo(t, batches, n, flags, err);
}

int txn_undo_batch(struct txn *t, uint32_t number, unsigned flags, struct error *err)
{
	struct batch_row batch;
	int r = registry_batch_get(t->reg, t->plan.id, number, &batch, err);

	return r < 0 ? r : undo(t, &batch, 1, flags | TXN_ALONE | open_flag(t), err);
}

/* ---- redo ---- */

static int say_nothing_redone(const struct txn *t, int cause, struct error *err)
{
	if (cause < 0 && err && !err->hint && cause != -ATOLL_E_RECOVERY_MISSING)
		error_hint(err, "%s, then atoll redo %s", remedy_for(err->os_errno), t->plan.name);
	return error_prefix(err, cause, "nothing was changed");
}

static int prepare_redo_part(struct txn_part *p, struct error *e)
{
	int r;

	if (!participant_can_redo(p->part)) {
		(void)error_set(e, -ATOLL_E_UNSUPPORTED, "'%s' (%s) cannot be done again",
		                p->row.root, p->row.strategy);
		error_hint(e, "run the command again");
		return -ATOLL_E_UNSUPPORTED;
	}
	r = participant_prepare(p->part, e);
	p->record.changes = participant_changes(p->part);
	return r;
}

/* Every participant is asked, so that one answer names all conflicts. */
static int prepare_redo(struct txn *t, struct error *err)
{
	int first = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		cleanup_error struct error e = ERROR_INIT;
		int r;

		if (!p->selected)
			continue;
		if (progress_check() < 0)
			return -ECANCELED;
		r = prepare_redo_part(p, &e);
		if (r >= 0)
			continue;
		step_say_answer(t, p, r, &e);
		if (first == 0) {
			error_move(err, &e);
			first = r;
		}
	}
	return first;
}

/* The redo met a permanent failure after its decision: what was done again goes back. */
static int withdraw_redo(struct txn *t, struct batch_row *batch, int cause, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r = record_redo_withdrawn(t, batch, &e);

	batch->state = BATCH_UNDOING;
	t->recovering = true;
	if (r >= 0)
		r = step_load(t, batch, true, &e);
	if (r >= 0)
		r = step_undo(t, &e);
	t->recovering = false;
	if (r >= 0)
		r = step_unlock(t, &e);
	if (r >= 0)
		r = step_barrier(t, "barrier-undo", &e);
	if (r >= 0)
		r = record_undone(t, batch, 1, &e);
	if (r < 0)
		return step_in_doubt(t, cause, err);
	step_finish(t);
	return say_nothing_redone(t, cause, err);
}

/* BATCH is REDOING. */
static int carry_out_redo(struct txn *t, struct batch_row *batch, struct error *err)
{
	int r = step_load(t, batch, false, err);

	if (r >= 0)
		r = step_apply(t, err);
	if (r < 0 && progress_check() < 0)
		return step_unfinished(t, err);
	if (r < 0)
		return withdraw_redo(t, batch, r, err);
	crashpoint("txn.redo.done");
	r = step_unlock(t, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-redo", err);
	crashpoint("txn.redo.after-barrier");
	if (r >= 0)
		r = record_redone(t, batch, 1, err);
	if (r < 0)
		return step_in_doubt(t, r, err);
	crashpoint("txn.redo.committed");
	step_finish(t);
	return 0;
}

int txn_redo_batch(struct txn *t, uint32_t number, struct error *err)
{
	struct batch_row batch;
	int r = registry_batch_get(t->reg, t->plan.id, number, &batch, err);

	if (r < 0)
		return r;
	if (progress_enter(PROGRESS_PREPARING) < 0)
		return step_interrupted(err);
	batch.flags &= ~(unsigned)(TXN_OPEN | ATOLL_KEEP_WORK | ATOLL_KEEP_THEIRS);
	batch.flags |= TXN_ALONE | TXN_REDO | open_flag(t);
	t->redoing = true;
	r = step_load(t, &batch, false, err);
	if (r >= 0)
		r = prepare_redo(t, err);
	if (r >= 0)
		r = step_barrier(t, "barrier-redo-1", err);
	crashpoint("txn.redo.prepared");
	if (r >= 0)
		r = step_check(t, err);
	t->redoing = false;
	if (progress_check() < 0 || (r >= 0 && progress_enter(PROGRESS_DECIDED) < 0)) {
		let_go(t);
		return step_interrupted(err);
	}
	if (r >= 0)
		r = record_redo(t, &batch, err); /* the decision of a redo */
	if (r == -ATOLL_E_NEEDS_RECOVERY)
		return r; /* it is unknown: the next start reads what became of it */
	if (r < 0) {
		let_go(t);
		return say_nothing_redone(t, r, err);
	}
	crashpoint("txn.redo.after-decision");
	r = carry_out_redo(t, &batch, err);
	if (r >= 0)
		say_unchanged(t);
	return r;
}
