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
/* Waits for the caller's word on the lifeline: are the workspaces of a request (REQUEST_SYNC_*) that is
 * answered to be synced? False when there are none, or when he is gone. */
bool durable_wanted(const struct request *q);
/* The same as above for those: the last that a helper does, when it has let go of the lock and the reply,
 * which whoever comes after it must not have to wait for. Here and now where no process can be made. */
void durable_later(const struct request *q);

#endif
