/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first of a plan's directories shown to a command at another path than its own: that of the directory it is
 * a mirror of, on another machine. Only where the command loses nothing by it that it needs; else it
 * stays at its own path, and a note says why.
 */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "plan/plan-view.h"

/* AT: absolute, in its shortest form; NULL: nobody wishes anything. VIEWS are those of the resources of
 * OP; where it can be, they are moved (views_seen()), else *RET_WHY says why not; the caller frees. FENCE
 * (or NULL): what it shows as it is takes no new directories. */
int place_choose(const struct plan_op *op, const char *at, const struct atoll_fence *fence,
                 struct views *views, char **ret_why);
/* The same for a command that has no mounts of its own. */
char *place_none(const char *at);

#endif
