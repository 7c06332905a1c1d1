/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `exec`, `shell` and `run` that say what a command sees besides the plan's resources. */
#ifndef CLI_FENCE_H
#define CLI_FENCE_H

#include <atoll.h>
#include <stddef.h>
#include "cli/options.h"

/* Rows for the option table of a command that calls fence_read(). */
/* clang-format off */
#define FENCE_OPTIONS                                                                         \
	{ "home", "scratch|real|none",                                                        \
	  "of the home directory: a private layer over it, as without; itself; nothing" },    \
		{ "rw", "PATH", "let the command write to PATH, for real; may be repeated" }, \
		{ "ro", "PATH", "let it see PATH, though it were hidden; may be repeated" },  \
		{ "hide", "PATH", "do not let it see PATH; may be repeated" },                \
		{ "profile", "NAME",                                                          \
		  "leave the state of a tool real: claude, npm, ...; may be repeated" },      \
		{ "unfenced", NULL,                                                           \
		  "run it also where this host has no namespaces to fence it in" },           \
		{ "strict", NULL, "do not run it where this host lacks a part of the isolation" }
/* clang-format on */

enum fence_list { FENCE_RW = 0, FENCE_RO, FENCE_HIDE, FENCE_PROFILE, FENCE_LIST_END_ };

struct fence_args {
	struct atoll_fence fence;
	const char **lists[FENCE_LIST_END_]; /* of argv's strings */
};

/* What was given, into F, which is all zeros. STRICT: the settings want it so. */
void fence_read(struct fence_args *f, const struct args *a, bool strict);
void fence_done(struct fence_args *f);

#endif
