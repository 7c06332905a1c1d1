/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a repository whole: does all that git writes when it is used there lie below the root of its
 * working tree? Of a linked worktree or a submodule the repository is elsewhere, where no commit of a
 * plan brings anything; one with submodules has repositories that no commit of a plan merges.
 */
#ifndef STRATEGY_GIT_WHOLE_H
#define STRATEGY_GIT_WHOLE_H

#include "util/error.h"

/* 0 also when there is no repository at ROOT. -ATOLL_E_UNSUPPORTED says why it is not whole, and the hint
 * where to work instead. Nothing is changed. */
int git_check_whole(const char *root, struct error *err);

#endif
