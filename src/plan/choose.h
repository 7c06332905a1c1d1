/* SPDX-License-Identifier: Apache-2.0 */
/* Which strategy a directory gets when none was named. */
#ifndef PLAN_CHOOSE_H
#define PLAN_CHOOSE_H

#include "plan/plan.h"

/* `overlay` where it works for this user, on this host, over this directory; else `copy`, and a
 * note in RES says why. ROW's area and work directory are made already. That it works is
 * remembered in the store for this boot and filesystem, so it is tried once. */
int choose_strategy(struct atoll *a, const struct sandbox_row *row, int root_fd,
                    struct atoll_result *res, const char **ret, struct error *err);

/* The same for one that was named: -ATOLL_E_UNSUPPORTED when it cannot work there. */
int choose_check(struct atoll *a, const struct sandbox_row *row, int root_fd, struct error *err);

#endif
