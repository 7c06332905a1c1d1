/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeing a dead caller's command to its end. When the helper is killed, pid 1 of the namespace is
 * too, and the kernel lets go of its lock before it has ended the rest of the namespace: for an
 * instant the plan is free while processes of the old command can still write. So the helper
 * writes down who pid 1 is, and whoever comes after a dead holder waits for it first: a pid 1
 * has ended only when everything in its namespace has.
 */
#include "exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "exec/exec-impl.h"
#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

#define BURY_WAIT_MS 10000
#define RECORD_MAX   (16u << 10)
#define JOINABLE     "joinable\n"

int exec_write_running(int dir_fd, pid_t pid, const char *groups)
{
	cleanup_close int fd = FD_NONE;
	char text[128];
	uint64_t start;
	int r;

	if (!process_start_time(pid, &start))
		return -ESRCH;
	(void)snprintf(text, sizeof(text), "%d %" PRIu64 " %s\n", (int)pid, start, clock_boot_id());
	(void)fs_unlink_at(dir_fd, EXEC_RUNNING);
	r = fs_create_at(dir_fd, EXEC_RUNNING, 0600, &fd);
	if (r == 0)
		r = fs_write_all(fd, text, strlen(text));
	return r < 0 ? r : fs_write_all(fd, groups, strlen(groups));
}

int exec_mark_joinable(int dir_fd)
{
	cleanup_close int fd =
		openat(dir_fd, EXEC_RUNNING, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fs_write_all(fd, JOINABLE, sizeof(JOINABLE) - 1);
}

/* Control groups that nobody is in any more: nothing else can be removed by it. */
static void remove_groups(char *lines)
{
	char *line, *rest = NULL;

	for (line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct statfs fs;

		if (*line == '/' && statfs(line, &fs) == 0 &&
		    (fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC))
			(void)fs_rmdir_at(AT_FDCWD, line);
	}
}

/* 1: *ret is the process recorded, and it lives. *ret_rest: the lines after its own. */
static int find_running(int dir_fd, int *ret_pidfd, char **ret_rest)
{
	cleanup_close int fd = openat(dir_fd, EXEC_RUNNING, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *text = NULL;
	uint64_t was;
	char boot[40];
	size_t len;
	int pid;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fs_read_all(fd, RECORD_MAX, &text, &len) < 0 ||
	    sscanf(text, "%d %" SCNu64 " %39s", &pid, &was, boot) != 3 ||
	    strcmp(boot, clock_boot_id()) != 0)
		return 0;
	*ret_rest = xstrdup(text + strcspn(text, "\n"));
	return process_open(pid, was, ret_pidfd);
}

int exec_joinable(const char *dir, char **ret)
{
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char boot[40];
	uint64_t start;
	size_t len;
	int pid;

	if (dir_fd < 0)
		return 0;
	fd = openat(dir_fd, EXEC_RUNNING, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fs_read_all(fd, RECORD_MAX, &text, &len) < 0 ||
	    sscanf(text, "%d %" SCNu64 " %39s", &pid, &start, boot) != 3 ||
	    strcmp(boot, clock_boot_id()) != 0)
		return 0;
	if (!strstr(text, "\n" JOINABLE))
		return -EAGAIN;
	*ret = xasprintf("%d %" PRIu64, pid, start);
	return 1;
}

int exec_bury(const char *dir, struct error *err)
{
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int pidfd = FD_NONE;
	cleanup_free char *groups = NULL;
	int r;

	if (dir_fd < 0)
		return 0; /* no area, no command */
	r = find_running(dir_fd, &pidfd, &groups);
	if (r < 0)
		return error_sys(err, r, "look for a command left running by", dir);
	if (r > 0) {
		(void)process_signal(pidfd, SIGKILL);
		r = process_wait(pidfd, clock_deadline(BURY_WAIT_MS));
		if (r <= 0)
			return error_set(err, -ATOLL_E_BUSY,
			                 "a command of a process that died is still ending");
	}
	if (groups)
		remove_groups(groups);
	(void)fs_unlink_at(dir_fd, EXEC_RUNNING);
	return 0;
}
