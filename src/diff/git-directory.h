/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a directory a git directory? This is the only place that says so, by git's own rule: a HEAD that git
 * takes for one, and `objects` and `refs` beside it, or in the directory that `commondir` names. Names of
 * directories do not matter to git, so they do not matter here.
 *
 * What the answer depends on may lie outside the tree, or change without a batch: permissions, and what a
 * link or `commondir` leads to. There the answer is yes.
 *
 * tests/security/test-git-directory.c compares it with git.
 */
#ifndef DIFF_GIT_DIRECTORY_H
#define DIFF_GIT_DIRECTORY_H

#include <stdbool.h>
#include "diff/tree-state.h"

/* 1, 0 or -errno. DIR "" is the root. */
int git_directory_is(const struct tree_state *s, const char *dir);
/* Or may it be the common directory of one that lies elsewhere, or become a git directory by `git init`, which
 * keeps the settings and hooks that it finds: what is named `.git`, or ends so. NAME: of the directory. */
int git_directory_may_be(const struct tree_state *s, const char *dir, const char *name);
/* ".git", or a name that ends so, as on filesystems that ignore case. */
bool git_directory_name(const char *name, size_t len);

#endif
