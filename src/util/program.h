/* SPDX-License-Identifier: Apache-2.0 */
/* Where the programs are that belong to this code, but are not it. */
#ifndef UTIL_PROGRAM_H
#define UTIL_PROGRAM_H

#include <stdbool.h>

struct program {
	const char *name;
	const char *folder;   /* of a build tree, where it is made */
	const char *variable; /* of the environment; installed code does not ask it */
};

/* For installed code, where it was installed. Else what the variable names, or what lies beside this
 * code in a build tree or an unpacked package. Whether it is there shows when it is started. Caller
 * frees. */
char *program_path(const struct program *p);
/* The variable names it, and is asked. */
bool program_is_named(const struct program *p);

#endif
