/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a tree was looked at. A clock that is set back gives its times once more, so an edit made then may look
 * like what was there before it, also to who compares the time of change. How the clock stood to the time since
 * boot, which nobody sets, shows that afterwards; and in another boot what the clock said at its beginning.
 */
#ifndef SYNC_SCAN_TIME_H
#define SYNC_SCAN_TIME_H

#include <stdint.h>

#define SYNC_BOOT_LEN 40

struct sync_time {
	int64_t begin_ns;         /* by the clock of files; 0: nothing was looked at */
	int64_t ahead_ns;         /* that clock, before the time since boot */
	char boot[SYNC_BOOT_LEN]; /* in which that is so */
};

void sync_time_now(struct sync_time *ret);
/* The earliest time that an edit made after OLD and before NOW can bear, if that is one which may have been seen
 * at OLD already; else INT64_MAX. What bears that or a later one is to be read. */
int64_t sync_time_again(const struct sync_time *old, const struct sync_time *now);

#endif
