/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll-helper --sync WORK AREA N`: writing a workspace to disk while nobody waits for it. */
#ifndef HELPER_DURABLE_H
#define HELPER_DURABLE_H

/*
 * Detaches (the caller goes on at once, 0), syncs the filesystems of WORK and AREA, then durably
 * puts the text N into AREA/durable: "as of command N the workspace is on disk". -EINVAL when N
 * is no number, -errno when a directory cannot be opened.
 * Crash: the old mark or the new one; the mark is never ahead of the data.
 */
int durable_run(const char *work, const char *area, const char *n);

#endif
