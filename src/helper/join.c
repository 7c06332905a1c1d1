/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pid 1 is held by a pidfd while its namespaces are entered, so that a number that was given out again
 * cannot be meant. Of root's commands only they, not pid 1, are in a user namespace of their own; it
 * is entered last, by the child, since from there the others could not be.
 */
#include "helper/join.h"

#include "helper/command.h"
#include "helper/failure.h"
#include "helper/fence.h"
#include "helper/terminal.h"
#include "util/cleanup.h"
#include "util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

bool join_wanted(const struct request *q)
{
	return request_get(q, REQUEST_JOIN, 0) != NULL;
}

static int open_ns(const char *pid, const char *name)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%s/ns/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool is_same(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

/* The user namespace of the command, which is the first child of its pid 1. */
static int open_user_ns(const char *pid)
{
	cleanup_close int list = FD_NONE;
	char path[64], text[32] = { 0 };

	(void)snprintf(path, sizeof(path), "/proc/%s/task/%s/children", pid, pid);
	list = open(path, O_RDONLY | O_CLOEXEC);
	if (list < 0 || read(list, text, sizeof(text) - 1) <= 0)
		return -ESRCH;
	text[strcspn(text, " ")] = '\0';
	return open_ns(text, "user");
}

static const struct {
	const char *name;
	int flag;
} spaces[] = {
	{ "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS },  { "pid", CLONE_NEWPID },
	{ "ipc", CLONE_NEWIPC },   { "uts", CLONE_NEWUTS }, { "net", CLONE_NEWNET },
};
#define SPACES (sizeof(spaces) / sizeof(spaces[0]))

/* Opens those that are not ours already; all at first, since afterwards /proc is another. */
static int open_all(const char *pid, int fds[SPACES])
{
	int r = 0;

	for (size_t i = 0; i < SPACES; i++) {
		cleanup_close int own = open_ns("self", spaces[i].name);

		fds[i] = open_ns(pid, spaces[i].name);
		if ((fds[i] < 0 || own < 0) && r == 0)
			r = fds[i] < 0 ? fds[i] : own;
		if (r == 0 && is_same(own, fds[i]))
			close_fd(&fds[i]);
	}
	return r;
}

/* The namespaces of pid 1; in its user namespace, where it has one, one may enter the others. */
static int enter(struct run *run, const char *pid)
{
	cleanup_close int own = open_ns("self", "user");
	int fds[SPACES];
	int r = open_all(pid, fds);

	/* The command is in the same one as pid 1, or as we. */
	if (r == 0 && fds[0] != FD_NONE && is_same(fds[0], run->user_ns_fd))
		close_fd(&run->user_ns_fd);
	if (r == 0 && run->user_ns_fd != FD_NONE && is_same(own, run->user_ns_fd)) {
		close_fd(&run->user_ns_fd);
		run->no_user_ns = geteuid() == 0;
	}
	for (size_t i = 0; i < SPACES; i++) {
		if (r == 0 && fds[i] >= 0 && setns(fds[i], spaces[i].flag) < 0)
			r = -errno;
		close_fd(&fds[i]);
	}
	return r;
}

int join_enter_user(const struct run *run)
{
	if (run->user_ns_fd == FD_NONE)
		return 0;
	return setns(run->user_ns_fd, CLONE_NEWUSER) < 0 ? -errno : 0;
}

static int open_mounts(const char *pid)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%s/mountinfo", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int join(struct run *run, struct failure *f)
{
	cleanup_close int pidfd = FD_NONE, mounts_fd = FD_NONE;
	char pid[16];
	uint64_t start;
	int number, r;

	if (sscanf(request_get(run->request, REQUEST_JOIN, 0), "%d %" SCNu64, &number, &start) != 2)
		return failure_set(f, REPLY_REQUEST, -EPROTO, "read whom to join");
	(void)snprintf(pid, sizeof(pid), "%d", number);
	r = process_open(number, start, &pidfd);
	if (r == 0)
		r = -ESRCH;
	if (r > 0)
		r = run->user_ns_fd = open_user_ns(pid);
	if (r >= 0)
		r = mounts_fd = open_mounts(pid);
	if (r >= 0)
		r = fence_begin(run);
	if (r >= 0)
		r = enter(run, pid);
	/* That it is still the one whose number we used. */
	if (r >= 0)
		r = process_signal(pidfd, 0);
	if (r < 0)
		return failure_set(f, REPLY_JOIN, r, "join what runs in the plan");
	return fence_join(run, take_fd(&mounts_fd), f);
}

void join_run(struct run *run, struct reply *reply)
{
	struct failure f = FAILURE_NONE;

	run->user_ns_fd = FD_NONE;
	run->joined = true;
	run->fenced = true;
	if (terminal_take(run, &f) == 0 && join(run, &f) == 0 && run_may_begin(run) &&
	    command_start(run, false, &f) == 0) {
		run_tell(run->request);
		run_follow(run);
		if (!run->ended) {
			(void)kill(run->pid, SIGKILL);
			(void)waitpid(run->pid, &run->wait_status, 0);
		}
		run_fill_reply(run, reply, &f);
	}
	close_fd(&run->user_ns_fd);
	failure_reply(&f, reply);
}
