/* SPDX-License-Identifier: Apache-2.0 */
/* A sign that somebody is at something. */
#include "lock/range.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <atoll.h>
#include "util/cleanup.h"

int range_try(int dir_fd, const char *name, uint64_t at)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct flock l = { .l_type = F_WRLCK,
		           .l_whence = SEEK_SET,
		           .l_start = (off_t)(at >> 2),
		           .l_len = 1 };

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &l) == 0)
		return take_fd(&fd);
	return errno == EAGAIN || errno == EACCES ? -ATOLL_E_BUSY : -errno;
}
