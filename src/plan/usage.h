/* SPDX-License-Identifier: Apache-2.0 */
/* What sandboxes take on disk. */
#ifndef PLAN_USAGE_H
#define PLAN_USAGE_H

#include "plan/sandbox.h"

struct usage {
	uint64_t bytes, entries;
};

/* Adds PATH and all below it; what cannot be read does not count. */
void usage_add(const char *path, struct usage *u);
/* Bytes and entries of each, but for a whole copy that was measured before. */
void usage_measure(struct sandboxes *boxes);
/* Within a transaction. */
int usage_write(struct registry *reg, const struct sandboxes *boxes, struct error *err);

#endif
