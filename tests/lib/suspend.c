/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be loaded before everything else (LD_PRELOAD): once the file that ATOLL_TEST_SUSPENDED names is there, this
 * machine was suspended for an hour.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HOUR_S 3600

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ts)
{
	const char *file = getenv("ATOLL_TEST_SUSPENDED");
	int r = (int)syscall(SYS_clock_gettime, clock, ts);

	if (r == 0 && clock == CLOCK_BOOTTIME && file && access(file, F_OK) == 0)
		ts->tv_sec += HOUR_S;
	return r;
}
