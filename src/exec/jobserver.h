/* SPDX-License-Identifier: Apache-2.0 */
/* What make hands to the commands of its recipes, so that all of them together run no more jobs than it was
 * given: the two ends of a pipe, or a FIFO (GNU make's manual, "POSIX Jobserver Interaction"). */
#ifndef EXEC_JOBSERVER_H
#define EXEC_JOBSERVER_H

#include <stdbool.h>

/* The last one that FLAGS, a value of MAKEFLAGS or NULL, names as two descriptors, which this process was
 * started with and which are the ends of a pipe. Not what it opened itself: that is close-on-exec. */
bool jobserver_pipe(const char *flags, int ret_fds[2]);
/* The FIFO that it names by an absolute path, or NULL; the caller frees. */
char *jobserver_fifo(const char *flags);

#endif
