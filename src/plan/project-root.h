/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the project of a directory begins: what is worked on when no resource was named.
 *
 * In a git repository that is the root of its working tree, else the nearest directory from there upwards
 * that holds a workspace (a table in project-root.c), else the directory itself. The search goes upwards
 * within one filesystem, as git's does. It never takes "/", a user's home directory or anything above that:
 * settings that are kept as a repository in the home do not make everything below it one project.
 */
#ifndef PLAN_PROJECT_ROOT_H
#define PLAN_PROJECT_ROOT_H

#include <stdbool.h>
#include "util/error.h"

/* What is looked for; the values of the setting run.root, in their order. */
enum project_scope { PROJECT_AUTO = 0, PROJECT_GIT, PROJECT_HERE, PROJECT_SCOPE_END_ };

struct project_root {
	char *path;
	const char *kind; /* "git", "npm workspace", ...; NULL: a directory like any other */
	bool is_git;
};

/* DIR: absolute, canonical. Of the scope PROJECT_HERE it is DIR, whatever lies above. -errno when DIR
 * cannot be looked at. The caller frees ret->path. */
int project_root_find(const char *dir, enum project_scope scope, struct project_root *ret);

/* Can ROOT be worked on as it is? -ATOLL_E_UNSUPPORTED names a linked worktree, a submodule, or a repository
 * that has some, and where to work instead. */
int project_root_check(const struct project_root *root, struct error *err);

#endif
