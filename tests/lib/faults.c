/* SPDX-License-Identifier: Apache-2.0 */
/* FULL and IMM: a filesystem without room, and entries that nobody may change. */
#include "lib/atest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *fix_tmpfs(struct fix *f, const char *name, size_t size)
{
	const char *path = fix_dir(f, name);
	char options[64];

	(void)snprintf(options, sizeof(options), "size=%zu,mode=0755", size);
	expect_msg(mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0,
	           "mount a tmpfs at '%s': %s", path, strerror(errno));
	f->mounts[f->n_mounts++] = fix_path(f, "%s", path);
	return path;
}

static off_t free_beyond(const char *dir, size_t leave)
{
	struct statvfs v;

	expect_eq(statvfs(dir, &v), 0);
	return (off_t)(v.f_bavail * v.f_frsize) - (off_t)leave;
}

/* What is free may change between the look and the taking: then once more. */
void fill_up(const char *dir, const char *name, size_t leave)
{
	off_t size = free_beyond(dir, leave);
	char path[PATH_MAX];
	int r = ENOSPC;
	int fd;

	if (size <= 0)
		return;
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	expect(fd >= 0);
	for (int i = 0; i < 10 && r == ENOSPC && size > 0; i++) {
		r = posix_fallocate(fd, 0, size);
		size = free_beyond(dir, leave);
	}
	(void)close(fd);
	expect_eq(r, 0);
}

void set_immutable(const char *path, bool on)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	int flags = 0;
	int r = fd < 0 ? -1 : ioctl(fd, FS_IOC_GETFLAGS, &flags);

	if (r == 0 && on)
		flags |= FS_IMMUTABLE_FL;
	if (r == 0 && !on && (flags & FS_IMMUTABLE_FL))
		flags &= ~FS_IMMUTABLE_FL;
	else if (r == 0 && !on)
		goto out; /* nothing to lift */
	if (r == 0)
		r = ioctl(fd, FS_IOC_SETFLAGS, &flags);
	if (on)
		expect_msg(r == 0, "make '%s' immutable: %s", path, strerror(errno));
out:
	if (fd >= 0)
		(void)close(fd);
}
