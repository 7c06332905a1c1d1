/* SPDX-License-Identifier: Apache-2.0 */
/* From the paths a caller names to what each sandbox of a plan is asked for. */
#ifndef PLAN_PLAN_SELECT_H
#define PLAN_PLAN_SELECT_H

#include <atoll.h>
#include "txn/txn.h"

/* Gives the parts of T their selections. A path belongs to the innermost root it lies in; one above
 * roots means all of those. -ATOLL_E_NOT_FOUND for one that names nothing, -ATOLL_E_INVALID. */
int plan_select(struct txn *t, const struct atoll_commit *commit, struct error *err);
/* Only how conflicts are settled: OURS and THEIRS as there. */
int plan_select_sides(struct txn *t, const char *const *ours, const char *const *theirs,
                      struct error *err);
/* After a commit: a warning in its result for each pattern that left nothing out. */
void plan_select_report(const struct txn *t, const struct atoll_commit *commit);

#endif
