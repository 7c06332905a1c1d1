/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan changed, on part of a screen, above the question what to do with it: by directory and kind
 * as far as there is room, and apart from that what is to be seen before a decision.
 *
 *   2,041 new below node_modules/   M package.json   A package-lock.json   branch main: 2 commits
 *   git would run a program (not committed without --allow git-programs): .git/hooks/post-commit
 *
 * Where that does not fit, what is apart becomes numbers, too: "conflicts: 2   git programs: 1".
 */
#ifndef ANSWER_SUMMARY_H
#define ANSWER_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <atoll.h>
#include "answer/paint.h"
#include "util/strbuf.h"

struct summary_view {
	const char *
		here; /* current directory: what lies below it is named from there. NULL: nothing is */
	size_t width; /* of a line */
	size_t lines; /* to fill at most; what is apart and one line of changes are always there */
	const char *paint[PAINT_END_]; /* "" each: none */
};

/* Appends lines about CHANGES (N of them, in the order of atoll_plan_diff()) to SB. A directory's changes
 * become one number as soon as they do not fit. */
void summary_add(struct strbuf *sb, const struct summary_view *v,
                 const struct atoll_change *changes, size_t n);
/* Nothing but times of change differs (and something does). *RET_FILES: how many that are no directory. */
bool summary_only_times(const struct atoll_change *changes, size_t n, size_t *ret_files);

#endif
