/* SPDX-License-Identifier: Apache-2.0 */
/* Project ids: FS_IOC_FSGETXATTR, and file_getattr(2) for what cannot be opened. */
#include "fs/project.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/stat.h"
#include "util/cleanup.h"

/* Since Linux 6.17; the same number everywhere. */
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#endif

struct attributes { /* struct file_attr, which older headers do not have */
	uint64_t xflags;
	uint32_t extsize;
	uint32_t nextents;
	uint32_t projid;
	uint32_t cowextsize;
};

/* No filesystem with projects answers so. */
static bool knows_none(int r)
{
	return r == -ENOTTY || r == -EOPNOTSUPP || r == -EINVAL;
}

static int of_fd(int fd, struct fs_project *ret)
{
	struct fsxattr x;
	int r = ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0 ? -errno : 0;

	if (r == 0)
		*ret = (struct fs_project){ x.fsx_projid, x.fsx_xflags & FS_XFLAG_PROJINHERIT };
	return r;
}

static int of_name(int dir_fd, const char *name, struct fs_project *ret)
{
	struct attributes a = { 0 };

	if (syscall(SYS_file_getattr, dir_fd, name, &a, sizeof(a), AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*ret = (struct fs_project){ a.projid, a.xflags & FS_XFLAG_PROJINHERIT };
	return 0;
}

int fs_project_at(int dir_fd, const char *name, struct fs_project *ret)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;
	int r;

	if (!*name) {
		r = of_fd(dir_fd, ret);
	} else {
		r = fs_stat_at(dir_fd, name, 0, &st);
		if (r < 0)
			return r;
		/* Devices and the like are never opened. */
		if (S_ISREG(st.mode) || S_ISDIR(st.mode))
			fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		r = fd == FD_NONE ? of_name(dir_fd, name, ret) : of_fd(fd, ret);
		if (r < 0 && fd == FD_NONE)
			return -EOPNOTSUPP;
	}
	if (!knows_none(r))
		return r;
	*ret = (struct fs_project){ 0 };
	return 0;
}

int fs_project_copy(int from_fd, int to_fd)
{
	struct fs_project from;
	struct fs_stat a, b;
	struct fsxattr x;
	int r = fs_project_at(from_fd, "", &from);

	if (r < 0 || !from.inherits)
		return r;
	r = fs_stat_at(from_fd, "", 0, &a);
	if (r >= 0)
		r = fs_stat_at(to_fd, "", 0, &b);
	if (r < 0 || a.dev != b.dev)
		return r;
	if (ioctl(to_fd, FS_IOC_FSGETXATTR, &x) < 0)
		return -errno;
	x.fsx_projid = from.id;
	x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
	return ioctl(to_fd, FS_IOC_FSSETXATTR, &x) < 0 ? -errno : 0;
}
