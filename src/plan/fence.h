/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the caller's own a command of a plan does not get, and what it gets only in private: the
 * home directory, secrets, the store. All of it is more views (plan-view.h), none of which is a
 * resource's; a longer path lies over a shorter one.
 */
#ifndef PLAN_FENCE_H
#define PLAN_FENCE_H

#include "plan/exec-option.h"
#include "plan/plan-view.h"
#include "util/list.h"

/* Names of variables that lead to the caller's agents and buses, or into the store: taken away
 * before anything is added. */
void fence_env(struct strlist *ret);
/* PATH (canonical) is in the default list of secrets, or below one of it. */
bool fence_is_secret(const char *path);
/* The canonical home directory that a command gets a layer over; the caller frees. NULL: there is none. */
char *fence_home(void);
/* Without namespaces nothing is kept from a command; who asks for any of this wants them. */
bool fence_is_strict(const struct atoll_fence *fence);
/*
 * Adds to VIEWS, which are those of the resources, what FENCE (NULL: as zeros) and the default list
 * say. The scratch layer of the home lies with the plan's first resource. -ATOLL_E_NOT_FOUND: there is no such
 * profile; -ATOLL_E_INVALID: a path cannot be given what is asked for; -errno: it is not there. Nothing but the layer's
 * directories is made.
 */
int fence_views(const struct plan_op *op, const struct atoll_fence *fence,
                const struct exec_wishes *wishes, struct views *views, struct error *err);

#endif
