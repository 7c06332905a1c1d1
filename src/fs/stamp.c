/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps. A filesystem with multigrain timestamps gives a fresh, fine ctime to an inode whose
 * last one somebody has looked at, and never an older one to any inode afterwards. Others take
 * the kernel's coarse clock, which stands still for a tick (1 to 10 ms).
 */
#include "fs/stamp.h"

#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define PAIR_ATTEMPTS 100
#define NS_PER_S      INT64_C(1000000000)
#define WAIT_MAX_NS   (5 * NS_PER_S)

static int64_t coarse_ns(void)
{
	struct timespec ts = { 0 };

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return timespec_ns(&ts);
}

static int touch(int fd, int64_t *ret_ctime)
{
	struct fs_stat st;
	int r;

	if (futimens(fd, NULL) < 0)
		return -errno;
	r = fs_stat_at(fd, "", 0, &st);
	if (r == 0)
		*ret_ctime = st.ctime_ns;
	return r;
}

/* Two stamps that differ within one tick of the coarse clock can only be fine ones. */
static int touch_twice(int fd, int64_t *ret_t0, bool *ret_multigrain)
{
	bool within_tick = false;
	int64_t first = 0;

	for (int i = 0; i < PAIR_ATTEMPTS && !within_tick; i++) {
		int64_t tick = coarse_ns();
		int r = touch(fd, &first);

		if (r == 0)
			r = touch(fd, ret_t0);
		if (r < 0)
			return r;
		within_tick = coarse_ns() == tick;
	}
	*ret_multigrain = within_tick && first != *ret_t0;
	return 0;
}

static int wait_past(int64_t t0)
{
	/* Whole seconds: the filesystem stores no more than that (or, rarely, we were lucky). */
	int64_t until = t0 % NS_PER_S == 0 ? t0 + 2 * NS_PER_S : t0;
	int64_t deadline = clock_boot_ns() + WAIT_MAX_NS;
	struct timespec tick = { .tv_nsec = 4000000 };

	(void)clock_getres(CLOCK_REALTIME_COARSE, &tick);
	while (coarse_ns() <= until) {
		if (clock_boot_ns() > deadline)
			return -ETIMEDOUT; /* not our clock that stamps there */
		clock_sleep_ns(timespec_ns(&tick) / 4);
	}
	return 0;
}

int stamp_make(int dir_fd, const char *name, int64_t *ret_t0, bool *ret_multigrain)
{
	cleanup_close int fd = FD_NONE;
	bool multigrain = false;
	int64_t t0 = 0;
	int r;

	fd = openat(dir_fd, name, O_CREAT | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = touch_twice(fd, &t0, &multigrain);
	if (r == 0 && !multigrain)
		r = wait_past(t0);
	if (r < 0)
		return r;
	*ret_t0 = t0;
	*ret_multigrain = multigrain;
	return 0;
}

int stamp_wait_past(int64_t ctime_ns)
{
	if (ctime_ns < coarse_ns() - 2 * NS_PER_S)
		return 0;
	return ctime_ns > coarse_ns() + NS_PER_S ? -ETIMEDOUT : wait_past(ctime_ns);
}
