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
/*
 * In pid 1, while there is no request: forks what command_start() then need not. Where it cannot,
 * that forks. RUN is complete but for what the request says; the Landlock rules in RUN->ruleset_fd
 * may be added to until the start.
 */
void command_ahead(struct run *run, bool user_ns);
/* The request is there: to whoever was forked ahead, if it will do. */
void command_inform(struct run *run);
/* fork() with namespaces: CLONE_NEW* of the child. -1 and errno. */
pid_t command_fork(unsigned long flags);

#endif
