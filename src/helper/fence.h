/* SPDX-License-Identifier: Apache-2.0 */
/* What a command in views may do, beyond what it sees. */
#ifndef HELPER_FENCE_H
#define HELPER_FENCE_H

#include "helper/failure.h"
#include "helper/run-impl.h"

#include <stdint.h>

/* In pid 1 of an ordinary user, before there is a request: what of the fence need not wait
 * for it. 0 or -errno. */
int fence_ahead(struct run *run);
/* In pid 1, before there is a request: a set of rules in RUN->ruleset_fd, where there are to be some, that
 * lets nothing be written but standard output; so that a process which is forked now has it, too. 0 or
 * -errno. */
int fence_begin(struct run *run);
/* In the process that becomes the command, before there is a request: what of fence_self() can be done by
 * then. What fails is left to that. */
void fence_self_ahead(struct run *run);
struct views;
/* In pid 1, when the tree is complete: the rules for what may be written, into RUN->ruleset_fd. 0 or
 * -errno and F. */
int fence_make(struct run *run, const struct views *views, struct failure *f);
/*
 * For a command that joins another: fence_begin() before it enters, with our own /proc, and this in the other's
 * namespaces. MOUNTS_FD: the mountinfo of its pid 1. What is mounted to be written to there may be written. 0 or
 * -errno and F.
 */
int fence_join(struct run *run, int mounts_fd, struct failure *f);
/*
 * In the child, last before execve: no program gives it more privileges than it has, it writes
 * where the rules allow it, its system calls are filtered, and its capabilities are few (RUN->is_root) or none. 0 or -errno and F.
 */
int fence_self(struct run *run, struct failure *f);
/* This process has no other capabilities than those of SET (1 << CAP_*) from now on. 0 or -errno. */
int fence_keep_caps(uint64_t set);

#endif
