/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a repository whole: does all that git writes when it is used there lie below the root of its
 * working tree? Of a linked worktree or a submodule the repository is elsewhere, where no commit of a
 * plan brings anything; one with submodules has repositories that no commit of a plan merges. It has some when
 * the index names a directory that holds a repository or leads to one, or when another directory still leads to a
 * repository in .git/modules. What `git submodule deinit` and `git rm` leave in .git/modules is none.
 */
#ifndef STRATEGY_GIT_WHOLE_H
#define STRATEGY_GIT_WHOLE_H

#include "util/error.h"

/* 0 also when there is no repository at ROOT. -ATOLL_E_UNSUPPORTED says why it is not whole, and the hint
 * where to work instead. Nothing is changed. */
int git_check_whole(const char *root, struct error *err);

#endif
