/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: a second fence around what a command may write, which stands also where a mount would
 * let it through (a descriptor of the caller's, a mount that somebody forgot). It knows directories,
 * not mounts: the rules are made when the command's tree is complete.
 */
#ifndef HELPER_LANDLOCK_H
#define HELPER_LANDLOCK_H

#include <stdbool.h>

/* What the kernel's version of it is good for, in the order they came. */
enum landlock_grade {
	LANDLOCK_NONE = 0, /* there is none, or it is switched off */
	LANDLOCK_NO_REFER, /* files could not be moved between directories: of no use */
	LANDLOCK_WRITES,   /* writing, moving, from the third version on truncating */
	LANDLOCK_SCOPES,   /* and signals and abstract sockets stay inside */
};
enum landlock_grade landlock_grade(void);

/* A set of rules without rules: nothing may be written. FD_NONE where there is none to be had. 0 or
 * -errno. */
int landlock_new(int *ret_fd);
/* PATH, and what is below it, may be written. What is not there needs no rule. */
int landlock_allow(int ruleset_fd, const char *path);
/* The file behind descriptor FD, if that may be written already. */
int landlock_allow_open(int ruleset_fd, int fd);
/* For this process and all that come of it. Privileges must be given up before. */
int landlock_enter(int ruleset_fd);

#endif
