/* SPDX-License-Identifier: Apache-2.0 */
/* Undo and redo of one commit, and which commit is meant. */
#ifndef PLAN_PLAN_UNDO_H
#define PLAN_PLAN_UNDO_H

#include "plan/plan.h"

/* The commits of all plans are a stack: undo takes the last of those that stand, redo the last of those that
 * were undone. */
enum undo_way { UNDO_WAY_UNDO = 0, UNDO_WAY_REDO };

/*
 * The plan whose commit would be next, among the plans with a resource that holds the directory DIR (absolute,
 * canonical); of a resource that is a file its directory holds it. -ATOLL_E_NOT_FOUND: there is none. The
 * caller frees *ret. Takes no lock.
 */
int plan_undo_next(struct atoll *a, const char *dir, enum undo_way way, struct atoll_plan **ret,
                   struct error *err);
/* Does the resource at ROOT hold the directory DIR, as above? */
bool plan_undo_holds(const char *root, const char *dir);

/* The commits of P that can go this way, the next one first. FN's negative code ends it. */
int plan_undo_list(struct atoll_plan *p, enum undo_way way, registry_batch_fn fn, void *ctx,
                   struct error *err);

/* Undoes the last commit of P alone; UNDO as in atoll.h. Uncommitted changes stay as they are. -ATOLL_E_CONFLICT,
 * naming the plan, where the commit of another one stands on the same entries. */
int plan_undo(struct atoll_plan *p, const struct atoll_undo *undo, struct atoll_result *res,
              struct error *err);
/* Carries the last commit of P that was undone out again. */
int plan_redo(struct atoll_plan *p, const struct atoll_undo *redo, struct atoll_result *res,
              struct error *err);

#endif
