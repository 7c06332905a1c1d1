/* SPDX-License-Identifier: Apache-2.0 */
/* Points in a filesystem's own time, for telling what changed since. */
#ifndef FS_STAMP_H
#define FS_STAMP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Creates (or touches) the file NAME and gives its ctime T0. When the filesystem has multigrain
 * timestamps (stamps with a stat between them differ) any later change has ctime >= T0 and
 * no wait is needed; else waits out one clock tick, so that any later change has ctime > T0.
 */
int stamp_make(int dir_fd, const char *name, int64_t *ret_t0, bool *ret_multigrain);

/* Waits until whatever changes from now on has a later ctime than CTIME_NS, which was read from the filesystem:
 * not at all, or for the rest of a tick. -ETIMEDOUT: it comes from another clock, or from the future. */
int stamp_wait_past(int64_t ctime_ns);

#endif
