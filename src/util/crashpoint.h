/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named places to die. crashpoint("txn.after-decision") kills the process with SIGKILL when
 * $ATOLL_CRASHPOINT names it ("name" the first time, "name:N" the N-th). The crash matrix lists
 * the names from the source, so no point can be added untested. A point costs one load.
 * $ATOLL_CRASHPOINT_LOG names an existing file that gets a line for every point passed: how often
 * there is something to kill, and marks between the system calls of a trace.
 *
 * sabotage("barrier-1") is true when a build with -Dsabotage=true is told by $ATOLL_SABOTAGE
 * (comma-separated) to leave that step out: negative controls for the tests. In other builds it
 * is the constant false.
 */
#ifndef UTIL_CRASHPOINT_H
#define UTIL_CRASHPOINT_H

#include <stdbool.h>

extern bool crashpoint_armed; /* set once, before main */
void crashpoint_reached(const char *name);

#define crashpoint(name)                          \
	do {                                      \
		if (crashpoint_armed)             \
			crashpoint_reached(name); \
	} while (0)

#ifdef ATOLL_SABOTAGE
bool sabotage(const char *step);
#else
#define sabotage(step) (false)
#endif

#endif
