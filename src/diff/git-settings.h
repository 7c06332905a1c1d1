/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of a git repository by which git may run a program. A list of keys that start nothing, whatever
 * their value or with such a value, decides: what is not on it may.
 */
#ifndef DIFF_GIT_SETTINGS_H
#define DIFF_GIT_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include "util/list.h"

/* The git directory that has them. */
struct git_settings_at {
	/* Is VALUE a working tree that belongs to it? NULL: none does. */
	bool (*is_worktree)(const void *ctx, const char *value);
	const void *ctx;
};

/* Adds to RET, as "key=value", those of a file's text that may start a program. 0; -EINVAL: git, too,
 * cannot read it as settings, or reads it otherwise. */
int git_settings_programs(const char *text, size_t len, const struct git_settings_at *at,
                          struct strlist *ret);
/* An address of a repository, not a program ("ext::sh -c ...") nor an option. */
bool git_is_address(const char *value);

#endif
