/* SPDX-License-Identifier: Apache-2.0 */
/* What participants do in each step of the protocol, and what is said about them. */
#include "txn/txn-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/progress.h"
#include "util/strbuf.h"

struct atoll_participant_result *step_row(struct txn *t, const struct txn_part *p)
{
	struct atoll_participant_result *row =
		result_row(t->res, p->row.id, p->row.root, p->row.strategy);

	if (row) {
		row->state = p->row.state;
		row->final = !participant_can(p->part, ATOLL_CAP_UNDO);
	}
	return row;
}

static void say(struct txn *t, const struct txn_part *p, enum atoll_outcome outcome,
                const struct error *err)
{
	struct atoll_participant_result *row = step_row(t, p);

	if (!row)
		return;
	row->outcome = outcome;
	row->changes = p->record.changes;
	if (err && err->code)
		result_row_error(t->res, row, err);
}

/* Keeps the first error, drops later ones (their rows have them). */
static int keep_first(struct error *first, int r, struct error *err, int code)
{
	if (r >= 0) {
		if (first)
			error_move(first, err);
		r = code;
	}
	error_done(err);
	return r;
}

int step_in_doubt(struct txn *t, int cause, struct error *err)
{
	(void)error_prefix(err, cause, "plan '%s' is in doubt", t->plan.name);
	if (err)
		err->code = -ATOLL_E_NEEDS_RECOVERY;
	error_hint(err, "atoll recover %s", t->plan.name);
	return -ATOLL_E_NEEDS_RECOVERY;
}

int step_interrupted(struct error *err)
{
	if (err)
		error_done(err);
	return error_set(err, -ECANCELED, "interrupted; nothing was changed");
}

int step_unfinished(const struct txn *t, struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	uint64_t files, total;

	progress_count(&files, &total);
	if (total) {
		strbuf_puts(&sb, ": ");
		strbuf_number(&sb, files);
		strbuf_puts(&sb, " of ");
		strbuf_number(&sb, total);
		strbuf_puts(&sb, total == 1 ? " file" : " files");
	}
	if (err)
		error_done(err);
	(void)error_set(err, -ATOLL_E_NEEDS_RECOVERY, "not finished%s; atoll recover finishes it",
	                strbuf_str(&sb));
	error_hint(err, "atoll recover %s", t->plan.name);
	return -ATOLL_E_NEEDS_RECOVERY;
}

void step_aim(struct txn *t, bool undoing)
{
	for (size_t i = 0; i < t->n; i++)
		participant_set_batch(
			t->parts[i].part,
			&(struct participant_batch){
				.number = t->batch.number,
				.flags = t->batch.flags,
				.undoing = undoing,
				.recovering = t->recovering,
				.redoing = t->redoing || t->batch.state == BATCH_REDOING,
				.alone = t->batch.flags & TXN_ALONE,
				.again = t->batch.flags & TXN_REDO,
				.decided = t->batch.state == BATCH_DECIDED,
				.select = t->parts[i].select,
				.manifest = t->parts[i].record.manifest,
				.sync = t->sync,
				.res = t->res,
			});
}

static int load_part(void *ctx, const struct part_row *row)
{
	struct txn *t = ctx;

	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->parts[i].row.id, row->sandbox) != 0)
			continue;
		t->parts[i].record = *row;
		/* What is final was not undone, so it is not done again. */
		t->parts[i].selected = row->answer != PART_NO_CHANGE &&
		                       !(t->batch.flags & TXN_REDO && row->irrevocable);
		t->parts[i].prepared = true;
	}
	return 0;
}

static int by_position(const void *a, const void *b)
{
	const struct txn_part *x = a, *y = b;

	return x->record.position < y->record.position ? -1
	                                               : x->record.position > y->record.position;
}

int step_load(struct txn *t, const struct batch_row *batch, bool undoing, struct error *err)
{
	int r;

	t->batch = *batch;
	for (size_t i = 0; i < t->n; i++) {
		t->parts[i].selected = t->parts[i].prepared = t->parts[i].done = false;
		t->parts[i].turn = t->parts[i].let_go = false;
		t->parts[i].record = (struct part_row){ .position = UINT32_MAX };
	}
	r = registry_part_list(t->reg, t->plan.id, batch->number, load_part, t, err);
	if (r < 0)
		return r;
	/* The order that was committed, not the one parents would give today. */
	if (t->n)
		qsort(t->parts, t->n, sizeof(*t->parts), by_position);
	step_aim(t, undoing);
	return 0;
}

int step_verify(struct txn *t, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++) {
		if (!t->parts[i].selected)
			continue;
		if (t->check_root)
			r = t->check_root(&t->parts[i].row, err);
		if (r >= 0)
			r = participant_check(t->parts[i].part, err);
	}
	return r;
}

int step_barrier(struct txn *t, const char *name, struct error *err)
{
	int r = 0;

	(void)name; /* where sabotage() is the constant false */
	if (!sabotage(name))
		r = syncset_run(t->sync);
	return r < 0 ? error_sys(err, r, "make durable what belongs to plan", t->plan.name) : 0;
}

/* Before the first that is final, what the others did is on disk: after a power cut they have nothing
 * left to do that somebody could stand in the way of by then. */
static int barrier_before(struct txn *t, const struct txn_part *p, bool *others, struct error *err)
{
	int r = 0;

	if (*others && !participant_can(p->part, ATOLL_CAP_UNDO)) {
		r = step_barrier(t, "barrier-2", err);
		crashpoint("txn.after-barrier-2");
		*others = false;
	}
	*others |= participant_can(p->part, ATOLL_CAP_UNDO);
	return r;
}

void step_say_answer(struct txn *t, const struct txn_part *p, int r, const struct error *e)
{
	struct atoll_participant_result *row = step_row(t, p);

	if (!row)
		return;
	row->changes = p->record.changes;
	if (r == ATOLL_NO_CHANGE)
		row->outcome = ATOLL_OUTCOME_UNCHANGED;
	if (r < 0) {
		row->outcome = ATOLL_OUTCOME_FAILED;
		result_row_error(t->res, row, e);
	}
}

int step_check(struct txn *t, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++) {
		cleanup_error struct error e = ERROR_INIT;

		if (!t->parts[i].selected)
			continue;
		r = participant_check(t->parts[i].part, &e);
		if (r >= 0)
			continue;
		step_say_answer(t, &t->parts[i], r, &e);
		error_move(err, &e);
	}
	return r;
}

int step_apply(struct txn *t, struct error *err)
{
	bool others = false; /* can go back, and are perhaps not on disk */

	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		cleanup_error struct error e = ERROR_INIT;
		int r;

		if (!p->selected)
			continue;
		r = progress_check();
		if (r >= 0)
			r = barrier_before(t, p, &others, &e);
		p->turn = r >= 0;
		if (r >= 0)
			r = participant_commit(p->part, &e);
		if (r < 0) {
			if (progress_check() >= 0)
				say(t, p, ATOLL_OUTCOME_FAILED, &e);
			if (err)
				error_move(err, &e);
			return r;
		}
		p->done = true;
		say(t, p, ATOLL_OUTCOME_COMMITTED, NULL);
		crashpoint("txn.apply.participant");
	}
	return 0;
}

int step_unlock(struct txn *t, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++)
		if (t->parts[i].selected)
			r = participant_unlock(t->parts[i].part, err);
	crashpoint("txn.unlocked");
	return r;
}

int step_unlock_all(struct txn *t, const struct batch_row *batches, size_t n, bool undoing,
                    struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = step_load(t, &batches[i], undoing, err);
		if (r >= 0)
			r = step_unlock(t, err);
	}
	return r;
}

/* Has its turn come? Then it cannot go back. Who recovers does not know that, and neither does who had
 * no answer to the commit; it lets go what it had only prepared. 1: yes, it was committed. */
static int was_committed(struct txn *t, struct txn_part *p, struct error *e)
{
	int r;

	if (p->done || (!p->turn && !t->recovering) || !participant_can(p->part, ATOLL_CAP_PREPARE))
		return p->done;
	r = participant_abort(p->part, e);
	p->let_go = r >= 0;
	if (r != -ATOLL_E_NOT_UNDOABLE)
		return r;
	if (!p->turn)
		say(t, p, ATOLL_OUTCOME_COMMITTED, NULL);
	return 1;
}

bool step_may_revoke(struct txn *t, int cause, struct error *err)
{
	if (t->batch.flags & ATOLL_ALLOW_PARTIAL)
		return true;
	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		cleanup_error struct error e = ERROR_INIT;
		int r;

		if (!p->selected || participant_can(p->part, ATOLL_CAP_UNDO))
			continue;
		r = was_committed(t, p, &e);
		if (r == 0)
			continue;
		if (r < 0)
			(void)error_prefix(err, cause,
			                   "'%s' (%s) cannot say whether it was committed (%s)",
			                   p->row.root, p->row.strategy, e.msg);
		else
			(void)error_prefix(err, cause, "'%s' (%s) was committed for good",
			                   p->row.root, p->row.strategy);
		return false;
	}
	return true;
}

/* Its turn had not come when the batch was revoked: what it prepared is let go. */
static bool only_prepared(const struct txn *t, const struct txn_part *p)
{
	return t->batch.state == BATCH_REVOKED && !p->done &&
	       participant_can(p->part, ATOLL_CAP_PREPARE);
}

static int undo_part(struct txn *t, struct txn_part *p, struct error *e)
{
	struct atoll_participant_result *row;
	enum atoll_outcome outcome = ATOLL_OUTCOME_ROLLED_BACK;
	int r = 0;

	if (participant_can(p->part, ATOLL_CAP_UNDO)) {
		r = participant_undo(p->part, e);
		if (r < 0 && progress_check() < 0)
			return r; /* nothing failed */
	} else if (only_prepared(t, p)) {
		r = p->let_go ? 0 : participant_abort(p->part, e);
		/* Its turn had come, then, which is allowed for. */
		p->done = r == -ATOLL_E_NOT_UNDOABLE;
		if (p->done) {
			say(t, p, ATOLL_OUTCOME_NOT_UNDOABLE, e);
			error_done(e);
			return 0;
		}
	} else {
		if (p->done || t->recovering)
			say(t, p, ATOLL_OUTCOME_NOT_UNDOABLE, NULL);
		return 0;
	}
	row = step_row(t, p);
	/* The participant that failed in commit stays the one that failed, put back or not. */
	if (r < 0)
		outcome = ATOLL_OUTCOME_ROLLBACK_FAILED;
	else if (row && row->outcome == ATOLL_OUTCOME_FAILED)
		outcome = ATOLL_OUTCOME_FAILED;
	say(t, p, outcome, r < 0 ? e : NULL);
	if (row)
		row->resource_restored = r < 0 ? ATOLL_FACT_NO : ATOLL_FACT_YES;
	if (r < 0)
		result_row_recovery_path(t->res, row, p->row.area);
	return r;
}

int step_undo(struct txn *t, struct error *err)
{
	int first = 0;

	for (size_t i = t->n; i-- > 0;) {
		cleanup_error struct error e = ERROR_INIT;
		int r;

		if (!t->parts[i].selected)
			continue;
		if (progress_check() < 0)
			return first < 0 ? first : -ECANCELED;
		r = undo_part(t, &t->parts[i], &e);
		if (r < 0)
			first = keep_first(err, first, &e, r);
		crashpoint("txn.undo.participant");
	}
	return first;
}

int step_abort(struct txn *t, struct error *err)
{
	int first = 0;

	for (size_t i = t->n; i-- > 0;) {
		struct txn_part *p = &t->parts[i];
		struct atoll_participant_result *row = step_row(t, p);
		cleanup_error struct error e = ERROR_INIT;
		int r;

		if (!p->prepared)
			continue;
		r = participant_abort(p->part, &e);
		if (row && row->outcome != ATOLL_OUTCOME_FAILED &&
		    row->outcome != ATOLL_OUTCOME_UNCHANGED)
			row->outcome = ATOLL_OUTCOME_ROLLED_BACK;
		if (r >= 0)
			continue;
		say(t, p, ATOLL_OUTCOME_ROLLBACK_FAILED, &e);
		result_row_recovery_path(t->res, row, p->row.area);
		first = keep_first(err, first, &e, r);
	}
	return first;
}

int step_drop_work(struct txn *t, struct error *err)
{
	int first = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		struct atoll_participant_result *row = step_row(t, p);
		cleanup_error struct error e = ERROR_INIT;
		int r = participant_reset(p->part, &e);

		if (row)
			row->workspace_reset = r < 0 ? ATOLL_FACT_NO : ATOLL_FACT_YES;
		if (r >= 0) {
			p->row.stale = participant_stale(p->part);
			continue;
		}
		if (row && row->outcome == ATOLL_OUTCOME_NOT_ATTEMPTED)
			row->outcome = r == -ATOLL_E_NOT_UNDOABLE ? ATOLL_OUTCOME_NOT_UNDOABLE
			                                          : ATOLL_OUTCOME_FAILED;
		result_row_error(t->res, row, &e);
		first = keep_first(err, first, &e, r);
	}
	return first;
}

void step_finish(struct txn *t)
{
	for (size_t i = 0; i < t->n; i++) {
		cleanup_error struct error e = ERROR_INIT;

		/* It stands; what fails here is only housekeeping. */
		if (t->parts[i].selected && participant_finish(t->parts[i].part, &e) < 0)
			result_note(t->res, ATOLL_NOTE_WARNING, t->parts[i].row.id, "", e.msg);
	}
}

int step_keep_work(struct txn *t, const struct batch_row *batches, size_t n, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = step_load(t, &batches[i], true, err);
		for (size_t k = t->n; k-- > 0 && r >= 0;) {
			struct txn_part *p = &t->parts[k];
			struct atoll_participant_result *row = step_row(t, p);

			if (!p->selected || !participant_can(p->part, ATOLL_CAP_KEEP))
				continue;
			r = participant_keep(p->part, err);
			if (row)
				row->workspace_reset = ATOLL_FACT_NO;
			crashpoint("txn.keep.participant");
		}
	}
	return r;
}
