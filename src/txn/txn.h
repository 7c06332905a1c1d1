/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit protocol: a batch changes every resource of a plan or none.
 *
 *   P  prepare   every participant does all that can fail; nothing is visible
 *   B1 barrier   staged entries and manifests are durable
 *   R  re-check  the bases once more
 *   D  decide    the registry says DECIDED, synchronously          COMMIT POINT
 *   A  apply     participants make it visible; each step can be repeated
 *   B2 barrier   inside A, before the first that cannot go back: what the others did is durable
 *   B3 barrier   the renames are durable
 *   F  finish    the registry says COMMITTED; only now may anything old be released
 *
 * Before D every failure aborts the participants in reverse order and leaves the plan OPEN with
 * its work. After D a permanent failure, as long as nothing irrevocable was done, is recorded as
 * REVOKED, undone, and answered like a failure before D. docs/design/commit-protocol.md is the one
 * normative text.
 *
 * Undo and redo are the same steps with a prepare of their own, no workspace, and another decision:
 *
 *   batch      decision   carried out        end        withdrawn after the decision
 *   COMMITTED  UNDOING    new -> slots       UNDONE     REDOING, then COMMITTED again
 *   UNDONE     REDOING    slots -> new       COMMITTED  UNDOING, then UNDONE again
 *
 * Who owns what: a committed batch has the originals in its slots, an undone one what it had installed;
 * both stay until they are released, since each is what the way back needs. The batch's row alone says
 * which way it goes; the plan is UNDOING as long as it goes either way, and what it is afterwards
 * (TXN_OPEN) is written down with the decision. The batch's turn orders the batches of all plans.
 *
 * A rollback is an undo of every committed batch, newest first, with one decision for all, that drops
 * the uncommitted changes and releases what was taken back: it ends for good.
 *
 * Order: what is easily taken back first, then LATE ones, then those without undo, then those without
 * prepare; within each children before parents, then creation order. Undo is the exact reverse.
 *
 * Locking: the caller holds the plan's lock and its resources' locks for the whole call.
 * Crash: recover.h finishes or withdraws, from the registry and the manifests alone.
 */
#ifndef TXN_TXN_H
#define TXN_TXN_H

#include <stdint.h>
#include "registry/registry.h"
#include "strategy/strategy.h"
#include "util/error.h"

/* How long undo data is kept: a day (`atoll rm` and --no-undo release it earlier). */
#define TXN_RETAIN_MS (24 * 3600 * 1000ll)

/* In a batch's flags, besides the caller's: it did not ask for everything. */
#define TXN_SELECTIVE 0x10000u
/* Of an undo or redo under way: it is about this batch alone. Other batches, uncommitted changes and the
 * data in the slots stay. */
#define TXN_ALONE 0x20000u
/* With it: the plan has uncommitted changes, and is OPEN afterwards. */
#define TXN_OPEN 0x40000u
/* With it: it began as a redo, so what was not carried out is as the undo left it. */
#define TXN_REDO 0x80000u

struct txn_part {
	struct sandbox_row row;
	struct atoll_participant *part;
	struct part_row record;   /* of the batch at hand */
	bool selected;            /* takes part in the batch at hand */
	bool prepared;            /* prepare was called: abort must be too */
	bool turn;                /* commit was called, whatever came of it */
	bool done;                /* commit (or undo) succeeded */
	bool let_go;              /* it said, after the decision, that it was not committed */
	bool final;               /* it answered that it cannot promise this time */
	struct selection *select; /* what a commit takes of it; owned */
	/* Paths below the root left alone. The participant points at it, and parts are sorted. */
	struct strlist *excludes;
};

struct txn {
	struct registry *reg;
	struct plan_row plan;
	uint64_t epoch;         /* of the plan lock's grant */
	struct txn_part *parts; /* in commit order once txn_open() returned */
	size_t n;
	struct batch_row batch; /* at hand */
	struct syncset *sync;
	struct atoll_result *res;
	bool recovering;
	bool redoing;      /* a redo is prepared: its batch is not REDOING yet */
	bool selective;    /* a commit takes part of the plan: those with a selection */
	int64_t retain_ms; /* how long undo data is kept; 0: until stop */
	/* Asked last of all before the decision; a failure withdraws. NULL: nothing else is asked. */
	int (*confirm)(void *ctx, struct error *err);
	void *confirm_ctx;
	/* Asked of each that takes part before a recovery touches it. NULL: nothing else is asked. */
	int (*check_root)(const struct sandbox_row *row, struct error *err);
};

/* Loads the plan's sandboxes and puts them in order. CLEANED_UP ones are left out. -ATOLL_E_INVALID
 * for a cycle. RES may be NULL. */
int txn_open(struct txn *t, struct registry *reg, const struct plan_row *plan, uint64_t epoch,
             struct atoll_result *res, struct error *err);
void txn_done(struct txn *t);
#define cleanup_txn __attribute__((__cleanup__(txn_done)))
#define TXN_INIT    ((struct txn){ 0 })

/* FLAGS: ATOLL_ALLOW_*, ATOLL_DENY_*, ATOLL_NO_UNDO, ATOLL_DRY_RUN. What is taken is in the parts'
 * selections. 0: committed, or nothing to commit. Fills t->res with a row per participant. */
int txn_commit(struct txn *t, unsigned flags, struct error *err);
/* Undoes every committed batch that is not yet undone, newest first, as one. FLAGS:
 * ATOLL_ALLOW_PARTIAL, ATOLL_KEEP_THEIRS. Does not drop work. 0 when there is none. */
int txn_undo(struct txn *t, unsigned flags, struct error *err);
/* Undoes batch NUMBER, which is COMMITTED and not released, alone. FLAGS as above. Uncommitted changes
 * and the other batches stay, and so does what txn_redo_batch() needs. */
int txn_undo_batch(struct txn *t, uint32_t number, unsigned flags, struct error *err);
/* Carries batch NUMBER, which is UNDONE and not released, out again. -ATOLL_E_UNSUPPORTED, with nothing
 * changed, where a strategy cannot. */
int txn_redo_batch(struct txn *t, uint32_t number, struct error *err);
/* Batches that cannot be undone any more, because what that needs is gone, count as released from
 * here on. What is left of it stays until the plan is stopped. T needs no result. */
int txn_forgo_lost(struct txn *t, struct error *err);
/* Drops the undo data of BATCH. */
int txn_release(struct txn *t, uint32_t batch, struct error *err);

#endif
