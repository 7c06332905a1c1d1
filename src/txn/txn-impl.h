/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the protocol, shared by txn.c (who decides) and recover.c (who finishes). */
#ifndef TXN_TXN_IMPL_H
#define TXN_TXN_IMPL_H

#include "txn/txn.h"

/* Points every selected participant at the batch at hand. */
void step_aim(struct txn *t, bool undoing);
/* The batch at hand becomes BATCH: its parts are loaded and selected, in commit order. */
int step_load(struct txn *t, const struct batch_row *batch, bool undoing, struct error *err);

/* Before anything of a recovery is carried out: everybody's record of it is whole. */
int step_verify(struct txn *t, struct error *err);

/* Runs a barrier over all that was collected. NAME is for the negative controls. */
int step_barrier(struct txn *t, const char *name, struct error *err);

/* Every selected participant that is ready commits, in order; irrevocable ones last. Stops at
 * the first failure, whose row says FAILED. */
int step_apply(struct txn *t, struct error *err);
/* All have committed, or gone back: others may come to the resources again. */
int step_unlock(struct txn *t, struct error *err);
/* Of BATCHES, the last of which is then the one at hand. */
int step_unlock_all(struct txn *t, const struct batch_row *batches, size_t n, bool undoing,
                    struct error *err);
/* Nothing was done that cannot be taken back, or the caller allowed for it. Where that is not known it
 * is asked, so this comes before REVOKED is recorded. If not, ERR, about CAUSE, says who stands in the
 * way. */
bool step_may_revoke(struct txn *t, int cause, struct error *err);
/* Every selected participant takes back what it did, in reverse; all are visited. Rows say
 * ROLLED_BACK or ROLLBACK_FAILED; the first error is returned. */
int step_undo(struct txn *t, struct error *err);
/* Every participant whose prepare was called aborts, in reverse; all are visited. */
int step_abort(struct txn *t, struct error *err);

/* One durable transaction each: states of batch, plan and sandboxes together. */
int record_preparing(struct txn *t, struct error *err);
int record_decided(struct txn *t, struct error *err);
int record_revoked(struct txn *t, struct error *err);
int record_withdrawn(struct txn *t, struct error *err);
int record_committed(struct txn *t, struct error *err);
/* The undo of BATCHES (newest first). */
int record_undoing(struct txn *t, struct batch_row *batches, size_t n, unsigned flags,
                   struct error *err);
int record_redoing(struct txn *t, const struct batch_row *batches, size_t n, struct error *err);
int record_undone(struct txn *t, const struct batch_row *batches, size_t n, struct error *err);
int record_redone(struct txn *t, const struct batch_row *batches, size_t n, struct error *err);
/* The decision of a redo: BATCH gets its flags, REDOING. */
int record_redo(struct txn *t, struct batch_row *batch, struct error *err);
/* The redo is withdrawn after its decision. */
int record_redo_withdrawn(struct txn *t, const struct batch_row *batch, struct error *err);
int record_released(struct txn *t, uint32_t batch, struct error *err);

/* Batches of the plan in one of the states of MASK (1u << state), newest first; caller frees. */
int batches_in(struct txn *t, unsigned mask, struct batch_row **ret, size_t *ret_n,
               struct error *err);

/* Every sandbox's work is dropped; rows say whether. First error returned, all visited. Registry
 * untouched: participant_stale() tells what to record. */
int step_drop_work(struct txn *t, struct error *err);

/* Of BATCHES, newest first, what they had installed becomes work again. Repeatable. */
int step_keep_work(struct txn *t, const struct batch_row *batches, size_t n, struct error *err);

/* The batch at hand is on record as what it is now: participants tidy up what only the steps needed. */
void step_finish(struct txn *t);

/* The caller asked to stop before the decision. Replaces what ERR says. */
int step_interrupted(struct error *err);
/* The same after it: what is left is recovery's. */
int step_unfinished(const struct txn *t, struct error *err);
/* It cannot be finished now: says so, with the cause in ERR, and what to do. */
int step_in_doubt(struct txn *t, int cause, struct error *err);

/* What participant P answered in its prepare or check, R, as its row. */
void step_say_answer(struct txn *t, const struct txn_part *p, int r, const struct error *e);
/* Right before the decision every selected participant is asked once more; the first that refuses is the answer. */
int step_check(struct txn *t, struct error *err);

/* Row of a participant in the result. */
struct atoll_participant_result *step_row(struct txn *t, const struct txn_part *p);

#endif
