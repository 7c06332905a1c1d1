/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks that were set between two scans. */
#include "sync/scan-time.h"

#include "util/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOKS   16
#define LOOK_NS 100000  /* for both clocks, if nobody comes in between */
#define STEP_NS 1000000 /* less is how exactly it can be known */
#define TICK_NS \
	INT64_C(1000000000) /* more than files are late by, on any filesystem but the oldest */

static int64_t file_clock_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return timespec_ns(&ts);
}

static int64_t ahead_ns(void)
{
	int64_t before, real, after;
	int i = 0;

	do {
		before = clock_boot_ns();
		real = clock_real_ns();
		after = clock_boot_ns();
	} while (after - before > LOOK_NS && ++i < LOOKS);
	return real - after;
}

void sync_time_now(struct sync_time *ret)
{
	*ret = (struct sync_time){ .begin_ns = file_clock_ns(), .ahead_ns = ahead_ns() };
	(void)snprintf(ret->boot, sizeof(ret->boot), "%s", clock_boot_id());
}

int64_t sync_time_again(const struct sync_time *old, const struct sync_time *now)
{
	int64_t back = old->ahead_ns - now->ahead_ns;
	int64_t from = old->begin_ns - back - TICK_NS;

	if (old->begin_ns == 0)
		return INT64_MAX;
	if (strcmp(old->boot, now->boot) != 0)
		return now->ahead_ns < old->begin_ns ? now->ahead_ns - TICK_NS : INT64_MAX;
	return back > STEP_NS ? from : INT64_MAX;
}
