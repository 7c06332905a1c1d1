/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command in the namespaces of another that runs: the same mounts, processes, network, users. It
 * ends when it ends, at the latest when pid 1 of those namespaces does. What it leaves running is
 * given to that pid 1 and ends with it.
 */
#ifndef HELPER_JOIN_H
#define HELPER_JOIN_H

#include "helper/run-impl.h"

bool join_wanted(const struct request *q);
/* Runs RUN->request there. */
void join_run(struct run *run, struct reply *reply);

/* In the child: the last step, into the user namespace. 0 or -errno. */
int join_enter_user(const struct run *run);

#endif
