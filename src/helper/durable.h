/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a workspace to disk while nobody waits for it: after a command, and as
 * `atoll-helper --sync WORK AREA N`. */
#ifndef HELPER_DURABLE_H
#define HELPER_DURABLE_H

#include <stdbool.h>

/*
 * Detaches (the caller goes on at once, 0), syncs the filesystems of WORK and AREA, then durably
 * puts the text N into AREA/durable: "as of command N the workspace is on disk". -EINVAL when N
 * is no number, -errno when a directory cannot be opened.
 * Crash: the old mark or the new one; the mark is never ahead of the data.
 */
int durable_run(const char *work, const char *area, const char *n);

struct request;
/*
 * The same for the workspaces of a request (REQUEST_SYNC_*) that is answered, when the caller says
 * so on the lifeline; if it is gone by then, nothing is noted. ENDS: the helper has nothing more to do,
 * and its descriptors of the reply and of the lock are closed.
 */
void durable_later(const struct request *q, bool ends);

#endif
