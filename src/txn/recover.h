/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: what a dead process left unfinished is finished or withdrawn, from the registry and
 * the manifests alone. Idempotent; may itself be killed anywhere.
 *
 *   found                     done
 *   PREPARING, no decision    presumed abort: every participant aborts; plan OPEN, work kept
 *   DECIDED                   manifests must match their hashes; carried out; COMMITTED
 *   REVOKED                   undone; plan OPEN
 *   UNDOING                   undone; plan ROLLED_BACK
 *   REDOING                   carried out again; COMMITTED
 *   sandbox PENDING           exactly what its record lists is removed
 *
 * It begins with a synchronous write of its own (attempt, epoch): if that fails nothing is
 * touched. If it cannot go on (EIO, an immutable file) the plan stays as it is, the answer is
 * -ATOLL_E_NEEDS_RECOVERY with the cause, and nothing is deleted. The same when another directory
 * stands where one was that took part: what was begun in the one is not finished in the other.
 */
#ifndef TXN_RECOVER_H
#define TXN_RECOVER_H

#include <stdbool.h>
#include "txn/txn.h"

/* Has the plan a batch that is neither decided nor withdrawn to its end? */
bool recover_unsettled(const struct plan_row *plan);
/* Does the plan, as read from the registry, have anything for recovery to do? Takes no lock. */
bool recover_needed(struct registry *reg, const struct plan_row *plan, struct error *err);
/* The caller holds the plan's lock and the resources' locks. CHECK_ROOT: as in struct txn. 1: something
 * was done, 0: nothing. */
int recover_plan(struct registry *reg, const char *plan_id, uint64_t epoch,
                 int (*check_root)(const struct sandbox_row *row, struct error *err),
                 struct atoll_result *res, struct error *err);

#endif
