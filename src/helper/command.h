/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the command of a request. */
#ifndef HELPER_COMMAND_H
#define HELPER_COMMAND_H

#include "helper/failure.h"
#include "helper/run-impl.h"

/*
 * Forks; the child becomes the command, with the caller's ways of taking signals and none of our
 * descriptors. Returns when it runs (RUN->pid is set) or has failed. USER_NS: in a user namespace
 * of its own that maps every id to itself; where that is not possible, without
 * (RUN->no_user_ns). 0 or -errno and F.
 */
int command_start(struct run *run, bool user_ns, struct failure *f);
/* fork() with namespaces: CLONE_NEW* of the child. -1 and errno. */
pid_t command_fork(unsigned long flags);

#endif
