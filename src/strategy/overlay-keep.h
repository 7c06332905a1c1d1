/* SPDX-License-Identifier: Apache-2.0 */
/* An undo that keeps the work: what a batch had installed returns to the upper. */
#ifndef STRATEGY_OVERLAY_KEEP_H
#define STRATEGY_OVERLAY_KEEP_H

#include "strategy/dir.h"

/* B is undone on the resource. Repeatable. */
int overlay_keep_batch(struct atoll_participant *p, struct dir_batch *b, enum overlay_marks marks);

#endif
