/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workspace is not synced while a command waits. A process in the background does it afterwards:
 * it has no descriptor and no lock of anybody, and belongs to no terminal.
 */
#include "helper/durable.h"

#include "exec/request.h"
#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK       "durable"
#define DIGITS_MAX 20
#define FIRST      3  /* after the standard descriptors */
#define CALLER_MS  50 /* for the end of a command; one that takes longer has others to care for */

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Standard descriptors lead nowhere; after them come FDS, which are numbered anew; every other one
 * is closed. */
static int drop_descriptors(int *fds, int n)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null_fd < 0)
		return -errno;
	/* Beyond where they will be, then down. */
	for (int i = 0; i < n; i++) {
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST + n);
		if (fds[i] < 0)
			return -errno;
	}
	for (int fd = 0; fd < FIRST; fd++)
		if (dup2(null_fd, fd) < 0)
			return -errno;
	for (int i = 0; i < n; i++) {
		if (dup2(fds[i], FIRST + i) < 0)
			return -errno;
		fds[i] = FIRST + i;
	}
	return close_range((unsigned)(FIRST + n), ~0u, 0) < 0 ? -errno : 0;
}

static bool same_filesystem(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev;
}

/* Those of two commands are in no order: the number never gets smaller. */
static int mark(int area_fd, const char *n)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *before = NULL;
	size_t len = 0;

	if (flock(area_fd, LOCK_EX) < 0)
		return -errno;
	fd = openat(area_fd, MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fs_read_all(fd, DIGITS_MAX, &before, &len) >= 0 &&
	    strtoull(before, NULL, 10) > strtoull(n, NULL, 10))
		return 0;
	return fs_replace_file(area_fd, MARK, n, strlen(n), 0600);
}

static int sync_and_mark(int work_fd, int area_fd, const char *n)
{
	int r = fs_sync_filesystem(work_fd);

	if (r == 0 && !same_filesystem(work_fd, area_fd))
		r = fs_sync_filesystem(area_fd);
	if (r == 0)
		r = mark(area_fd, n);
	return r;
}

static bool is_number(const char *n)
{
	return *n && strlen(n) <= DIGITS_MAX && n[strspn(n, "0123456789")] == '\0';
}

/* ---- after a command ---- */

/* Without the mark the next boot is careful: a failure needs no other word. */
static void sync_one(const struct request *q, unsigned i)
{
	const char *area = request_get(q, REQUEST_SYNC_AREA, i);
	const char *n = request_get(q, REQUEST_SYNC_NUMBER, i);
	cleanup_close int work_fd = open_dir(request_get(q, REQUEST_SYNC_WORK, i));
	cleanup_close int area_fd = area ? open_dir(area) : FD_NONE;

	if (work_fd >= 0 && area_fd >= 0 && n && is_number(n))
		(void)sync_and_mark(work_fd, area_fd, n);
}

static void sync_all(const struct request *q)
{
	for (unsigned i = 0; i < request_count(q, REQUEST_SYNC_WORK); i++)
		sync_one(q, i);
}

/* The caller has something to write, too, and somebody waits for it: until it lets go of us, or has had
 * time enough. */
static void let_caller_end(int lifeline)
{
	struct pollfd pfd = { .fd = lifeline, .events = POLLIN };
	int64_t deadline = clock_deadline(CALLER_MS);
	ssize_t n = 1;
	char said;

	while (n != 0 && poll(&pfd, 1, clock_left_ms(deadline)) > 0) {
		n = recv(lifeline, &said, 1, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
}

static _Noreturn void sync_request(const struct request *q)
{
	int lifeline = LIFELINE_FD;
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (setsid() < 0 || chdir("/") < 0 || drop_descriptors(&lifeline, 1) < 0)
		_exit(EXIT_FAILURE);
	let_caller_end(lifeline);
	sync_all(q);
	_exit(EXIT_SUCCESS);
}

/* Signals may come first, for a command that has just ended. */
bool durable_wanted(const struct request *q)
{
	char said;
	ssize_t n;

	if (request_count(q, REQUEST_SYNC_WORK) == 0)
		return false;
	do {
		n = read(LIFELINE_FD, &said, 1);
	} while ((n == 1 && said != 's' && said != 'n') || (n < 0 && errno == EINTR));
	return n == 1 && said == 's';
}

void durable_later(const struct request *q)
{
	pid_t pid = fork();

	if (pid == 0)
		sync_request(q);
	/* Too many processes: here, rather than have the work doubted when the machine was switched off.
	 * Whoever waits for our end may wait for it, too. */
	if (pid < 0)
		sync_all(q);
}

/* ---- by itself ---- */

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
	int fds[2]; /* work, area; the end of the process closes them */
	pid_t pid;

	if (!is_number(n))
		return -EINVAL;
	fds[0] = open_dir(work);
	if (fds[0] < 0)
		return fds[0];
	fds[1] = open_dir(area);
	if (fds[1] < 0)
		return fds[1];
	if (chdir("/") < 0)
		return -errno;
	pid = detach();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(drop_descriptors(fds, 2) < 0 || sync_and_mark(fds[0], fds[1], n) < 0 ? 1 : 0);
	return 0;
}
