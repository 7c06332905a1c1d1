/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repositories below a resource are files like any others, but git outside runs what their settings and
 * hooks name, as soon as somebody types `git status` there. So an entry that makes it do so is named,
 * and does not leave a plan unless it is allowed. What `git init`, `git clone`, `git remote`,
 * `git branch` and the like write is not meant: settings are judged by a list of keys that are known
 * to start nothing.
 *
 * A git directory is what lies below `.git`, or below a name that ends so, or beside a HEAD. Judged are
 *
 *   config, config.worktree   settings that are not on the list, or not as they were
 *   hooks/NAME                what can be executed; but for NAME.sample
 *   .git                      a file or link that leads to a directory of another name
 *   hooks, config             a link
 *   commondir                 any but that of a linked worktree
 *   HEAD                      a new one without settings beside it: they may be there already
 */
#ifndef DIFF_GIT_PROGRAM_H
#define DIFF_GIT_PROGRAM_H

#include <stdbool.h>

struct tree_new;
/* Is it an entry to be judged, by its name? */
bool git_program_named(const char *name, const char *path);
/* Would git run a program because of it? 0 or -errno. */
int git_program(const struct tree_new *e, bool *ret);

#endif
