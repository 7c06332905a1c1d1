/* SPDX-License-Identifier: Apache-2.0 */
/* What sandboxes take on disk. */
#ifndef PLAN_USAGE_H
#define PLAN_USAGE_H

#include "fs/usage.h"
#include "plan/sandbox.h"

/* Adds PATH and all below it, measured whatever is known of it. */
void usage_add(const char *path, struct usage *u);
/* Bytes and entries of each. A copy counts as it was when it was made, what a commit displaced as it
 * was then: the cost follows the work in progress. */
void usage_measure(struct sandboxes *boxes);
/* Within a transaction. */
int usage_write(struct registry *reg, const struct sandboxes *boxes, struct error *err);

#endif
