/* SPDX-License-Identifier: Apache-2.0 */
/* What of the caller's own a command of a plan does not get, and what it gets only in private. */
#ifndef PLAN_FENCE_H
#define PLAN_FENCE_H

#include "util/list.h"

/* Names of variables that lead to the caller's agents and buses, or into the store: taken away
 * before anything is added. */
void fence_env(struct strlist *ret);

#endif
