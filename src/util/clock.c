/* SPDX-License-Identifier: Apache-2.0 */
/* Times: deadlines on CLOCK_BOOTTIME, stamps in UTC, and which boot this is. */
#include "util/clock.h"

#include "util/cleanup.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

#define BOOT_ID_LEN 36
#define LOOKS       16

static pthread_once_t boot_id_once = PTHREAD_ONCE_INIT;
static char boot_id[BOOT_ID_LEN + 1];

int64_t timespec_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * NS_PER_S + ts->tv_nsec;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		BUG("no clock %d: %s", (int)clock, error_code_name(errno));
	return timespec_ns(&ts);
}

int64_t clock_boot_ns(void)
{
	return now_ns(CLOCK_BOOTTIME);
}

/* Who is put aside between two looks at a clock looks again. */
int64_t clock_suspended_ns(void)
{
	int64_t before, boot, after;
	int i = 0;

	do {
		before = now_ns(CLOCK_MONOTONIC);
		boot = now_ns(CLOCK_BOOTTIME);
		after = now_ns(CLOCK_MONOTONIC);
	} while (after - before > NS_PER_MS && ++i < LOOKS);
	return boot - after;
}

int64_t clock_real_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}

int64_t clock_real_ms(void)
{
	return clock_real_ns() / NS_PER_MS;
}

int64_t clock_deadline(int64_t wait_ms)
{
	int64_t now;

	if (wait_ms < 0)
		return CLOCK_NEVER;
	now = clock_boot_ns();
	if (wait_ms > (INT64_MAX - now) / NS_PER_MS)
		return CLOCK_NEVER;
	return now + wait_ms * NS_PER_MS;
}

int clock_left_ms(int64_t deadline)
{
	int64_t now, left;

	if (deadline == CLOCK_NEVER)
		return -1;
	now = clock_boot_ns();
	if (deadline <= now)
		return 0;
	/* Rounded up: a wait that ends too early would be repeated with 0 until time is up. */
	left = (deadline - now - 1) / NS_PER_MS + 1;
	return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_sleep_ns(int64_t ns)
{
	int64_t until;
	struct timespec ts;

	if (ns <= 0)
		return;
	until = clock_boot_ns();
	until = ns > INT64_MAX - until ? INT64_MAX : until + ns;
	ts = (struct timespec){ .tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S };
	while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

void clock_format(int64_t real_ms, char out[CLOCK_TEXT_LEN])
{
	int64_t ms = real_ms % 1000;
	time_t s = real_ms / 1000;
	struct tm tm;
	size_t n;

	if (ms < 0) {
		ms += 1000;
		s--;
	}
	if (!gmtime_r(&s, &tm))
		BUG("no date for %lld ms", (long long)real_ms);
	n = strftime(out, CLOCK_TEXT_LEN, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_TEXT_LEN - n, ".%03dZ", (int)ms);
}

static void read_boot_id(void)
{
	cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (read(fd, boot_id, BOOT_ID_LEN) != BOOT_ID_LEN)
		memset(boot_id, 0, sizeof(boot_id));
}

const char *clock_boot_id(void)
{
	(void)pthread_once(&boot_id_once, read_boot_id);
	return boot_id;
}
