/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repositories below a resource are files like any others, but git outside runs what their settings and hooks
 * name, as soon as the user types `git status` there. So what makes it do so is named, and does not leave a
 * plan unless it is allowed. What `git init`, `clone`, `remote`, `branch`, `worktree` and `submodule` write is
 * not meant: settings are judged by a list of keys that start nothing (git-settings.c).
 *
 * Directories are judged, not entries. Where a change set touches an entry that counts in a git directory
 * (HEAD, commondir, objects, refs, config, config.worktree, hooks), and the directory is one when the batch
 * is carried out (git-directory.h), all its settings and hooks as they are then are compared with those that
 * it has now:
 *
 *   config, config.worktree   each setting that is not on the list was there before
 *   hooks/NAME                each one that can be executed, but for NAME.sample, was there with this content
 *   config, hooks, a hook     a link was there before, with this target
 *   commondir                 was there before, or is that of a linked worktree: two directories up
 *
 * "Before" is nothing where it was no git directory: what an earlier batch put there was not judged. So it
 * does not matter in which order, by how many commits, and by whom the parts are brought together.
 *
 * Judged by their own path are, unless they were there with this content:
 *
 *   .git                      a file or link: leads below a `.git` of the resource
 *   .hg/hgrc ..., .jj/repo/config.toml ...   settings of Mercurial and Jujutsu (other-settings.h)
 *
 * Not judged: programs of the working tree that settings and hooks of the user run; files that settings of
 * the user include, and a directory that they name with core.hooksPath.
 */
#ifndef DIFF_GIT_PROGRAM_H
#define DIFF_GIT_PROGRAM_H

#include <stdbool.h>
#include "diff/tree-state.h"
#include "util/list.h"

/* In a change's `what`, and never outside diff/: it, or an entry below it, has such a name. */
#define CHANGE_GIT_NAMED 0x40000000u

/* Is it an entry that counts, by its name? */
bool git_program_named(const char *name, const char *path);
/* May git_programs_find() find anything at C or below it, in the resource at ROOT? */
bool git_programs_may_be(const struct change *c, const char *root);

/* Adds to RET the paths of changed entries that make git run a program, in the order of path_compare(); one may
 * be there twice. ROOT: path of the resource. AFTER: the tree with its change set. 0 or -errno. */
int git_programs_find(struct tree_state *after, const char *root, struct strlist *ret);
/* Is PATH among those found? */
bool git_programs_has(const struct strlist *found, const char *path);

#endif
