/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command in namespaces of its own: user, mount, pid, ipc, uts. Three processes: the helper
 * outside, pid 1 of the namespace, and the command. Pid 1 builds the tree (helper/tree.h), follows
 * the command, ends all it left behind, freezes the overlays and answers. The helper passes signals
 * on and waits. Whichever of the two dies, the kernel ends everything inside.
 */
#ifndef HELPER_SPACE_H
#define HELPER_SPACE_H

#include "helper/failure.h"
#include "helper/run-impl.h"

/* Stages of notes from pid 1, before its answer: what the command did. */
enum { SPACE_STOPPED = REPLY_STAGE_END_, SPACE_CONTINUED, SPACE_BEGUN };

bool space_wanted(const struct request *q);
/* Runs it, or INSIDE (in pid 1, when the tree is built) instead of a command. *REPLY tells of
 * failures too, also when pid 1 is killed. */
void space_run(struct run *run, int (*inside)(const struct request *q, struct failure *f),
               struct reply *reply);

/* What keeps this host from making namespaces, as a sentence, or NULL. */
const char *space_why_not(void);

#endif
