/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources on their way into a plan: all of them arrive, or none does. `start` and `add` are made
 * of these steps:
 *
 *   additions_identify()   what they are, and whether they may be resources at all. No lock
 *   (the caller takes the plan's lock, and the resources' shared: plan-op.h)
 *   additions_relate()     against one another and against what the plan has: twice, overlapping,
 *                          in a circle; who is whose parent; their ids and areas. Nothing is made
 *   additions_record()     in a transaction: PENDING, with the list of what will be made
 *   additions_make()       areas and workspaces
 *   additions_complete()   in a transaction: CREATED, all at once
 *
 * Crash: before record nothing is there. Between record and complete every one of them is PENDING
 * and lists what to remove. After complete none is.
 */
#ifndef PLAN_ADDITION_H
#define PLAN_ADDITION_H

#include "plan/plan-op.h"
#include "plan/sandbox.h"

struct addition {
	const struct atoll_resource *resource; /* the caller's */
	const struct atoll_strategy *strategy;
	int root_fd; /* FD_NONE: the resource is no file */
	struct area area;
	char *outer; /* root of its parent, when that is another addition */
};

struct additions {
	struct sandboxes rows; /* rows.v[i] belongs to v[i] */
	struct addition *v;
};
#define ADDITIONS_INIT ((struct additions){ .v = NULL })
void additions_done(struct additions *adds);
#define cleanup_additions __attribute__((__cleanup__(additions_done)))

int additions_identify(struct additions *adds, struct atoll *a,
                       const struct atoll_resource *resources, size_t n, struct error *err);
/* Is the resource of ROW, which has no id yet, among BOXES? */
bool additions_present(const struct sandboxes *boxes, const struct sandbox_row *row);
/* Leaves out what is among BOXES already. */
void additions_skip_present(struct additions *adds, const struct sandboxes *boxes);
/* One that lies in another, or in a sandbox of the plan, is its child without being told; a note in
 * RES says so. */
int additions_relate(struct additions *adds, const struct plan_op *op, struct atoll_result *res,
                     struct error *err);
/* Will all that is made lie in the store, where what is on no record is found? Then a record that is not
 * on disk yet when it is made will do: it is by the time of the next one that is. */
bool additions_in_store(const struct additions *adds, const struct atoll *a);
/* The transaction's part of it. */
int additions_record(struct additions *adds, struct registry *reg, struct error *err);
/* On failure the caller takes back what there is. */
int additions_make(struct additions *adds, struct plan_op *op, struct atoll_result *res,
                   struct error *err);
int additions_complete(struct additions *adds, struct registry *reg, struct error *err);
/* After success: a row each in RES, and what was made is made durable in the background. */
void additions_report(const struct additions *adds, struct atoll_result *res);

/* plan-add.c: all of it, in a plan that is there and whose lock the caller holds. */
int plan_op_add(struct plan_op *op, struct additions *adds, struct atoll_result *res,
                struct error *err);

#endif
