/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit protocol, who decides. txn_commit() is the whole of it; recover.c is what happens
 * when it is cut off anywhere.
 *
 * Invariants:
 *   1. Nothing visible changes before DECIDED is durable.
 *   2. Everything DECIDED needs (staged entries, manifests) is durable before it.
 *   3. Nothing old is released before COMMITTED is durable, and that only after the renames are.
 *   4. REVOKED is durable before anything is taken back, and only while nothing irrevocable is
 *      done and nothing was acknowledged. Those who cannot go back are asked before it whether they
 *      were committed, where that is not known; what one of them then lets go it refuses to commit,
 *      so that a death in between leads to REVOKED as well.
 *   5. Nothing irrevocable is done before what the others did is durable.
 *   6. Every participant is visited when going back, whatever the others answered.
 */
#include "txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "txn/txn-impl.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/remedy.h"
#include "util/mem.h"
#include "util/progress.h"

/* ---- who takes part ---- */

static int select_parts(struct txn *t, size_t *ret_n, struct error *err)
{
	*ret_n = 0;
	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		struct atoll_participant_result *row = step_row(t, p);

		if (t->selective && !p->select)
			continue;
		if (p->row.state == ATOLL_SANDBOX_ERRORED) {
			(void)error_set(err, -ATOLL_E_STATE, "'%s' is in error: %s", p->row.root,
			                p->row.error);
			error_hint(err, "atoll recover %s, or atoll discard %s", t->plan.name,
			           t->plan.name);
			return -ATOLL_E_STATE;
		}
		p->selected = sandbox_verb_allowed(p->row.state, SANDBOX_VERB_PREPARE);
		if (row)
			row->outcome =
				p->selected ? ATOLL_OUTCOME_NOT_ATTEMPTED : ATOLL_OUTCOME_SKIPPED;
		*ret_n += p->selected;
	}
	return 0;
}

/* Inside some resources a path means nothing to us. */
static int check_selection(struct txn *t, struct error *err)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct txn_part *p = &t->parts[i];

		if (!p->selected || !selection_is_inside(p->select) ||
		    participant_can(p->part, ATOLL_CAP_SELECT))
			continue;
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' (%s) can only be committed as a whole, not '%s' inside it; "
		                "nothing was changed",
		                p->row.root, p->row.strategy, p->select->paths.v[0]);
		error_hint(err, "atoll commit %s %s", t->plan.name, p->row.root);
		return -ATOLL_E_UNSUPPORTED;
	}
	return 0;
}

static int weaken(struct txn *t, const struct txn_part *p, unsigned flags, struct error *err)
{
	if (!(flags & ATOLL_ALLOW_PARTIAL)) {
		(void)error_set(err, -ATOLL_E_CANNOT_PREPARE,
		                "'%s' (%s) cannot be undone, so the others could not be "
		                "kept in step with it; nothing was changed",
		                p->row.root, p->row.strategy);
		error_hint(err, "atoll commit %s --allow partial commits it last", t->plan.name);
		return -ATOLL_E_CANNOT_PREPARE;
	}
	if (t->res && atoll_result_atomicity(t->res) == ATOLL_ATOMICITY_FULL)
		result_note(t->res, ATOLL_NOTE_WARNING, p->row.id, "",
		            "not atomic: a participant cannot be undone");
	result_set_atomicity(t->res, ATOLL_ATOMICITY_NONE);
	return 0;
}

/* A participant that cannot prepare weakens everybody's promise. One that can, but cannot be undone,
 * keeps it, since it comes after all that may fail; only the commit is for good. */
static int check_atomicity(struct txn *t, size_t n, unsigned flags, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r == 0; i++) {
		const struct txn_part *p = &t->parts[i];

		if (p->selected && !participant_can(p->part, ATOLL_CAP_PREPARE) && n > 1)
			r = weaken(t, p, flags, err);
	}
	return r;
}

/* ---- before the decision ---- */

/* Every participant is asked, so that one answer names all conflicts. */
static int prepare_all(struct txn *t, size_t *ret_ready, struct error *err)
{
	int first = 0;

	*ret_ready = 0;
	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];
		cleanup_error struct error e = ERROR_INIT;
		int r = ATOLL_READY;

		if (progress_check() < 0)
			return -ECANCELED;
		if (!p->selected || (first < 0 && first != -ATOLL_E_CONFLICT))
			continue;
		if (participant_can(p->part, ATOLL_CAP_PREPARE)) {
			p->prepared = true;
			r = participant_prepare(p->part, &e);
		}
		p->final = r == ATOLL_FINAL;
		r = p->final ? ATOLL_READY : r;
		p->record.changes = participant_changes(p->part);
		p->record.answer = r == ATOLL_NO_CHANGE ? PART_NO_CHANGE : PART_READY;
		(void)memcpy(p->record.manifest, participant_manifest(p->part),
		             sizeof(p->record.manifest));
		step_say_answer(t, p, r, &e);
		p->selected = r == ATOLL_READY;
		*ret_ready += p->selected;
		if (r < 0 && first == 0) {
			error_move(err, &e);
			first = r;
		}
		crashpoint("txn.prepare.participant");
	}
	return first;
}

/* Those who found only in preparing that they cannot promise, as if they had never claimed it: not
 * beside others unless that is allowed, and last, behind all that may still go back. */
static int place_final(struct txn *t, size_t ready, unsigned flags, struct error *err)
{
	struct txn_part *sorted = xcalloc(t->n + 1, sizeof(*sorted));
	size_t n = 0;
	int r = 0;

	for (int final = 0; final <= 1; final++)
		for (size_t i = 0; i < t->n; i++)
			if (t->parts[i].final == final)
				sorted[n++] = t->parts[i];
	for (size_t i = 0; i < n; i++) {
		t->parts[i] = sorted[i];
		t->parts[i].record.position = (uint32_t)i;
		if (!t->parts[i].final)
			continue;
		result_row_last(t->res, t->parts[i].row.id);
		if (ready > 1 && r == 0)
			r = weaken(t, &t->parts[i], flags, err);
	}
	free(sorted);
	return r;
}

static int say_nothing_changed(const struct txn *t, int cause, struct error *err)
{
	if (cause < 0 && err && !err->hint)
		error_hint(err, "%s, then atoll commit %s; the work is kept",
		           remedy_for(err->os_errno), t->plan.name);
	return error_prefix(err, cause, "nothing was changed");
}

/* Ends a batch that was not decided. CAUSE is what the caller will hear; a failure in here
 * leaves the plan PREPARING, for recovery to try again. */
static int withdraw(struct txn *t, int cause, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;

	cause = cause < 0 && progress_check() < 0 ? step_interrupted(err)
	                                          : say_nothing_changed(t, cause, err);
	(void)progress_enter(PROGRESS_BEGUN); /* what is withdrawn is not stopped in its turn */
	if (step_abort(t, &e) >= 0)
		(void)record_withdrawn(t, &e);
	crashpoint("txn.withdrawn");
	return cause;
}

/* ---- after it ---- */

/* A permanent failure after the decision, before anybody was told: everything goes back. */
static int revoke(struct txn *t, int cause, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r;

	if (!step_may_revoke(t, cause, err))
		return step_in_doubt(t, cause, err);
	r = record_revoked(t, &e);
	if (r < 0)
		return step_in_doubt(t, cause, err);
	crashpoint("txn.revoke.recorded");
	r = step_undo(t, &e);
	if (r >= 0)
		r = step_unlock(t, &e);
	if (r >= 0)
		r = step_barrier(t, "barrier-revoke", &e);
	crashpoint("txn.revoke.undone");
	if (r >= 0)
		r = record_withdrawn(t, &e);
	if (r < 0)
		return step_in_doubt(t, cause, err);
	crashpoint("txn.revoke.withdrawn");
	for (size_t i = 0; i < t->n; i++)
		if (t->parts[i].selected)
			(void)participant_release(t->parts[i].part, NULL);
	return say_nothing_changed(t, cause, err);
}

static void finish_all(struct txn *t)
{
	step_finish(t);
	if (t->batch.flags & ATOLL_NO_UNDO) {
		cleanup_error struct error e = ERROR_INIT;

		(void)txn_release(t, t->batch.number, &e);
	}
}

int txn_commit(struct txn *t, unsigned flags, struct error *err)
{
	size_t selected, ready;
	int r;

	/* Who takes part, and may they do it together? */
	r = select_parts(t, &selected, err);
	if (r >= 0)
		r = check_selection(t, err);
	if (r >= 0)
		r = check_atomicity(t, selected, flags, err);
	if (r < 0 || selected == 0)
		return r;

	/* P: the registry knows that we begin; then all that can fail. */
	t->batch = (struct batch_row){ .flags = flags | (t->selective ? TXN_SELECTIVE : 0),
		                       .created_ms = clock_real_ms() };
	t->batch.retain_until_ms = t->retain_ms ? t->batch.created_ms + t->retain_ms : 0;
	(void)memcpy(t->batch.plan, t->plan.id, sizeof(t->batch.plan));
	if (progress_enter(PROGRESS_PREPARING) < 0)
		return step_interrupted(err);
	r = record_preparing(t, err);
	if (r < 0)
		return say_nothing_changed(t, r, err);
	crashpoint("txn.after-preparing");
	step_aim(t, false);
	r = prepare_all(t, &ready, err);
	if (r == 0)
		r = place_final(t, ready, flags, err);
	crashpoint("txn.prepared");
	if (r < 0 || ready == 0 || flags & ATOLL_DRY_RUN)
		return withdraw(t, r, err);

	/* B1: what the decision relies on is on disk. */
	r = step_barrier(t, "barrier-1", err);
	crashpoint("txn.after-barrier-1");

	/* R: nobody moved the base meanwhile. */
	if (r >= 0)
		r = step_check(t, err);
	if (r >= 0 && t->confirm)
		r = t->confirm(t->confirm_ctx, err);
	crashpoint("txn.checked");
	if (r >= 0)
		r = progress_check();
	if (r >= 0)
		r = progress_enter(PROGRESS_DECIDED);
	if (r < 0)
		return withdraw(t, r, err);

	/* Before this line the batch never happened; after it, it will be carried out, by us or by
	 * whoever comes next. */
	r = record_decided(t, err); /* COMMIT POINT */
	if (r == -ATOLL_E_NEEDS_RECOVERY)
		return r; /* nobody knows: the next start reads what became of it */
	if (r < 0)
		return withdraw(t, r, err);
	crashpoint("txn.after-decision");

	/* A: make it visible. */
	r = step_apply(t, err);
	if (r < 0 && progress_check() < 0)
		return step_unfinished(t, err);
	if (r < 0)
		return revoke(t, r, err);
	crashpoint("txn.after-apply");
	r = step_unlock(t, err);
	if (r < 0)
		return step_in_doubt(t, r, err);

	/* B3, F: the renames are on disk; then it is recorded; only then is anything released. */
	r = step_barrier(t, "barrier-3", err);
	if (r < 0)
		return step_in_doubt(t, r, err);
	crashpoint("txn.after-barrier-3");
	r = record_committed(t, err);
	if (r < 0)
		return step_in_doubt(t, r, err);
	crashpoint("txn.after-committed");
	finish_all(t);
	return 0;
}

int txn_release(struct txn *t, uint32_t batch, struct error *err)
{
	struct batch_row row;
	int r = registry_batch_get(t->reg, t->plan.id, batch, &row, err);
	int first = 0;

	if (r >= 0)
		r = step_load(t, &row, row.state == BATCH_UNDONE, err);
	/* Recorded first: from here on nobody counts on it. */
	if (r >= 0)
		r = record_released(t, batch, err);
	if (r < 0)
		return r;
	crashpoint("txn.release.recorded");
	for (size_t i = 0; i < t->n; i++) {
		cleanup_error struct error e = ERROR_INIT;

		if (!t->parts[i].selected)
			continue;
		r = participant_release(t->parts[i].part, &e);
		if (r < 0 && first == 0) {
			first = r;
			error_move(err, &e);
		}
	}
	return first;
}
