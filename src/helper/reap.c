/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that dies leaves its own children to us (child subreaper), so killing children until
 * there are none reaches every descendant, however it detached itself.
 */
#include "helper/reap.h"

#include "util/cleanup.h"
#include "util/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_NS 1000000 /* between two looks at what is still there */

int reap_adopt(void)
{
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Parent of a process, or -1. The name in the second field may hold spaces and brackets, so the
 * fields after it are counted from its last bracket. */
static pid_t parent_of(int proc_fd, const char *pid)
{
	cleanup_close int fd = FD_NONE;
	char path[64], text[512];
	const char *p;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/stat", pid);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	p = strrchr(text, ')');
	if (!p || strlen(p) < sizeof(") S ") - 1)
		return -1;
	return (pid_t)strtol(p + sizeof(") S ") - 1, NULL, 10);
}

static void kill_children(void)
{
	const struct dirent *d;
	pid_t self = getpid();
	DIR *proc;

	proc = opendir("/proc");
	if (!proc)
		return;
	while ((d = readdir(proc))) {
		if (isdigit((unsigned char)d->d_name[0]) &&
		    parent_of(dirfd(proc), d->d_name) == self)
			(void)kill((pid_t)strtol(d->d_name, NULL, 10), SIGKILL);
	}
	(void)closedir(proc);
}

/* Collects what has ended. False when no child is left. */
static bool collect(void)
{
	pid_t pid;

	do {
		pid = waitpid(-1, NULL, WNOHANG);
	} while (pid > 0 || (pid < 0 && errno == EINTR));
	return pid == 0;
}

/* Only processes of the namespace have a number there. */
static bool is_alone(int proc_fd)
{
	int fd = proc_fd == FD_NONE ? FD_NONE
	                            : openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *proc = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;
	bool alone;

	if (!proc) {
		close_fd(&fd);
		return false;
	}
	do {
		errno = 0;
		d = readdir(proc);
	} while (d && (!isdigit((unsigned char)d->d_name[0]) || strcmp(d->d_name, "1") == 0));
	alone = !d && errno == 0;
	(void)closedir(proc);
	return alone;
}

bool reap_namespace(int proc_fd)
{
	pid_t pid;

	if (getpid() != 1) /* elsewhere "all" would be the user's whole session */
		return false;
	/* The kernel looks at every process of the host for those that "all" are: not when there are
	 * none. In one go, so that nothing can fork its way out. */
	if (!collect() && is_alone(proc_fd))
		return true;
	do {
		(void)kill(-1, SIGKILL);
		pid = waitpid(-1, NULL, 0);
	} while (pid > 0 || errno == EINTR);
	return is_alone(proc_fd);
}

void reap_all(void)
{
	while (collect()) {
		kill_children();
		if (!collect())
			return;
		clock_sleep_ns(ROUND_NS);
	}
}
