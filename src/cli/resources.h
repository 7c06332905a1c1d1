/* SPDX-License-Identifier: Apache-2.0 */
/* What `start` and `run` have in common: the options that name resources. */
#ifndef CLI_RESOURCES_H
#define CLI_RESOURCES_H

#include "cli/cli.h"

/* Rows for the option table of a command that calls resources_start(). */
/* clang-format off */
#define RESOURCE_OPTIONS                                                                          \
	{ "dir", "DIR", "a directory; may be given again (default: the project's root)" },        \
		{ "git", "DIR", "a git repository with its working tree" },                       \
		{ "sqlite", "FILE", "an SQLite database; may be given again" },                   \
		{ "postgres", "URL", "a PostgreSQL database: postgres://USER@HOST/DATABASE" },    \
		{ "none", "PATH", "a resource worked on in place, without protection" },          \
		{ "here", NULL, "the current directory, not the root of its project" },           \
		{ "strategy", "NAME", "how it is isolated (default: what fits)" },                \
		{ "parent", "CHILD=PARENT",                                                       \
		  "CHILD is committed before PARENT, and undone after it" },                      \
		{ "file", "FILE", "resources written down in a file; its name, too, for start" }, \
		{ "work-in-store", NULL, "keep the work in the store; a commit then copies it" }
/* clang-format on */

/* Opens the store and makes c->plan of what the options name; nothing, or of `run` nothing but
 * databases: the project of the current directory (plan/project-root.h) comes first.
 * HOW says the rest: name, ATOLL_START_OWNED, where `run` is. With --or-open an existing plan is
 * opened. 0 or an exit status: everything was said then, and there is no plan that is not whole. */
int resources_start(struct cli *c, const struct atoll_start *how, bool *ret_opened);
/* Adds the one that the options name to c->plan, which is opened first. 0 or an exit status. */
int resources_add(struct cli *c);

#endif
