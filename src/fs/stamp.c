/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps. A filesystem with multigrain timestamps (Linux 6.13) gives a fresh, fine ctime to an inode whose
 * last one a process has looked at, and never an older one to any inode afterwards. Others take
 * the kernel's coarse clock, which stands still for a tick (1 to 10 ms), unless another filesystem, in whichever
 * process, gives out a fine one: no later stamp of any filesystem is older than that.
 */
#include "fs/stamp.h"

#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define XFS_SUPER_MAGIC 0x58465342
#define SERIES          8 /* stamps that differ one after another */
#define ATTEMPTS        100
#define NS_PER_S        INT64_C(1000000000)
#define WAIT_MAX_NS     (5 * NS_PER_S)

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

/* Where another process moves the coarse clock, stamps differ on the other filesystems, too. These have fine ones
 * on every kernel that knows such: all of them have since Linux 6.13. */
static bool may_be_fine(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
	       fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC;
}

/* Stamps that differ within one tick of the coarse clock are fine ones. Several, since an ext2 has the number of
 * an ext4, and coarse ones. */
static int touch_often(int fd, int64_t *ret_t0, bool *ret_multigrain)
{
	bool fine = may_be_fine(fd), within_tick = false, differ = false;

	for (int i = 0; i < ATTEMPTS && !within_tick; i++) {
		int64_t tick = coarse_ns(), before = 0;

		differ = fine;
		for (int k = 0; k < (fine ? SERIES : 1); k++) {
			int r = touch(fd, ret_t0);

			if (r < 0)
				return r;
			differ = differ && *ret_t0 != before;
			before = *ret_t0;
		}
		within_tick = !fine || coarse_ns() == tick;
	}
	*ret_multigrain = within_tick && differ;
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
	r = touch_often(fd, &t0, &multigrain);
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
