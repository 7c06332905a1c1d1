/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's lock, held across several operations: atoll_plan_hold() in atoll.h says what it promises.
 *
 *   free -> plan_hold() -> held -> [an operation borrows it -> returns it]... -> plan_let_go() -> free
 *
 * Locking: plan_hold() waits for the plan as any operation does. The operations made under it wait
 * for each other, and at their beginning for plans that share a resource and are in the middle of a
 * batch; such a one waits for no plan itself.
 * Crash: the kernel lets go, and the next holder is told that its predecessor died.
 */
#ifndef PLAN_HOLD_H
#define PLAN_HOLD_H

#include "plan/plan.h"

/* VERB and DETAIL: for those who wait, as in struct plan_op_options. */
int plan_hold(struct atoll_plan *p, const char *verb, const char *detail, struct error *err);
int plan_let_go(struct atoll_plan *p, struct error *err);
/* The handle is about to be freed: nobody else uses it any more. */
void plan_hold_end(struct atoll_plan *p);

/* lock.c: the lock of one operation. 1: L has what is held through P, until hold_return(); 0: nothing
 * is. */
int hold_borrow(struct plan_lock *l, struct atoll_plan *p, int64_t deadline, struct error *err);
void hold_return(struct plan_lock *l);

#endif
