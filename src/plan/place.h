/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first of a plan's directories shown to a command at another path than its own: that of the directory it is
 * a mirror of, on another machine. Only where the command loses nothing by it that it needs; else it
 * stays at its own path, and a note says why.
 */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "plan/plan-view.h"

struct place {
	const char *from; /* the resource's own path; NULL: it is not moved */
	char *to;
	char *why; /* it is not, although somebody wished it: what to say; or NULL */
};
#define PLACE_INIT ((struct place){ 0 })
void place_done(struct place *p);
#define cleanup_place __attribute__((__cleanup__(place_done)))

/* AT: absolute, in its shortest form; NULL: nobody wishes anything. VIEWS are those of the resources of
 * OP, and are moved with it. FENCE (or NULL): what it shows as it is takes no new directories. */
int place_choose(const struct plan_op *op, const char *at, const struct atoll_fence *fence,
                 struct views *views, struct place *ret);
/* Nothing can be shown elsewhere: there are no mounts of its own for the command. */
void place_forget(struct place *p, const char *at);
/* PATH as the command will see it; the caller frees. */
char *place_map(const struct place *p, const char *path);

#endif
