/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workspace is not synced while a command waits. This detached process does it afterwards: it
 * has no descriptor and no lock of anybody, and belongs to no terminal.
 */
#include "helper/durable.h"

#include "fs/atomic.h"
#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define MARK       "durable"
#define DIGITS_MAX 20

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Standard descriptors lead nowhere, every other one but the two is closed. */
static int drop_descriptors(int *work_fd, int *area_fd)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null_fd < 0)
		return -errno;
	/* Beyond the standard ones, then down to two known numbers. */
	*work_fd = fcntl(*work_fd, F_DUPFD_CLOEXEC, 5);
	*area_fd = fcntl(*area_fd, F_DUPFD_CLOEXEC, 5);
	if (*work_fd < 0 || *area_fd < 0)
		return -errno;
	for (int fd = 0; fd <= 2; fd++)
		if (dup2(null_fd, fd) < 0)
			return -errno;
	if (dup2(*work_fd, 3) < 0 || dup2(*area_fd, 4) < 0)
		return -errno;
	*work_fd = 3;
	*area_fd = 4;
	return close_range(5, ~0u, 0) < 0 ? -errno : 0;
}

static int sync_and_mark(int work_fd, int area_fd, const char *n)
{
	int r;

	r = drop_descriptors(&work_fd, &area_fd);
	if (r == 0)
		r = fs_sync_filesystem(work_fd);
	if (r == 0)
		r = fs_sync_filesystem(area_fd);
	if (r == 0)
		r = fs_replace_file(area_fd, MARK, n, strlen(n), 0600);
	return r;
}

/* Twice, so that it can get no terminal and its parent need not wait for it. */
static pid_t detach(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (setsid() < 0)
		_exit(1);
	pid = fork();
	if (pid != 0)
		_exit(pid < 0 ? 1 : 0);
	return 0;
}

int durable_run(const char *work, const char *area, const char *n)
{
	cleanup_close int work_fd = FD_NONE;
	cleanup_close int area_fd = FD_NONE;
	pid_t pid;

	if (!*n || strlen(n) > DIGITS_MAX || n[strspn(n, "0123456789")] != '\0')
		return -EINVAL;
	work_fd = open_dir(work);
	if (work_fd < 0)
		return work_fd;
	area_fd = open_dir(area);
	if (area_fd < 0)
		return area_fd;
	if (chdir("/") < 0)
		return -errno;
	pid = detach();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(sync_and_mark(work_fd, area_fd, n) < 0 ? 1 : 0);
	return 0;
}
