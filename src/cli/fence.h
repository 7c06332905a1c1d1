/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `exec`, `shell` and `run` that say what a command sees besides the plan's resources. */
#ifndef CLI_FENCE_H
#define CLI_FENCE_H

#include <atoll.h>
#include <stddef.h>
#include "cli/options.h"

/* Rows for the option table of a command that calls fence_read(). */
/* clang-format off */
#define FENCE_OPTIONS                                                                           \
	{ "home", "scratch|real|none",                                                          \
	  "the home directory for the command: scratch, the user's, written to privately\n"     \
	  "(the default); real, the user's, written to for real; none, an empty one" },         \
		{ "rw", "PATH", "let the command write to PATH, for real; may be repeated" },   \
		{ "ro", "PATH",                                                                 \
		  "let the command read PATH where it would be hidden; may be repeated" },      \
		{ "hide", "PATH", "hide PATH from the command; may be repeated" },              \
		{ "profile", "NAME",                                                            \
		  "let the command write to the files of a tool, for real: claude, npm, ...;\n" \
		  "may be repeated" },                                                          \
		{ "unfenced", NULL,                                                             \
		  "run it also where this host has no namespaces to fence it in" },             \
	{                                                                                       \
		"strict", NULL, "run nothing where this host lacks a part of the isolation"     \
	}
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
