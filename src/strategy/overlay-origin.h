/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that the upper has and the resource has not, or another in its place, though it was copied up from
 * there, has two explanations: a command gave it this name, or somebody else deleted or replaced the original
 * below it. It was the command when its original is known under another name: among what the upper hides or covers,
 * or in a record of what was below the upper earlier.
 *
 * The kernel notes in the upper what a file was copied up from; of an ordinary user's mount it only
 * says that it was. Then an entry of the same kind, mode, size and time is taken for the original, and what is
 * in its place for the one that was.
 */
#ifndef STRATEGY_OVERLAY_ORIGIN_H
#define STRATEGY_OVERLAY_ORIGIN_H

#include "diff/upper.h"
#include "strategy/manifest.h"

/* What the upper hides or covers, read at the first question. */
struct overlay_hidden {
	struct fs_stat *v; /* with identities */
	size_t n, cap;
	bool read;
};
void overlay_hidden_done(struct overlay_hidden *h);

/* Does the resource miss what C, no directory, was copied up from? 1, 0 or -errno. */
int overlay_misses_origin(const struct upper_compare *u, const struct manifest *records,
                          const struct change *c, struct overlay_hidden *h);

#endif
