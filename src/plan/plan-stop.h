/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a plan whose operation has begun, for stop and for purge. */
#ifndef PLAN_PLAN_STOP_H
#define PLAN_PLAN_STOP_H

#include "plan/plan-op.h"

/* Holds work that was not committed, or may: when it cannot be told, it does. */
bool plan_op_has_work(const struct plan_op *op);
/* Removes all sandboxes and the plan. What cannot be removed stays registered and is in RES. */
int plan_op_remove(struct plan_op *op, struct atoll_result *res, struct error *err);

#endif
