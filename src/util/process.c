/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc and pidfds tell of other processes. */
#include "util/process.h"

#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_LEN 64

/* The beginning of /proc/PID/NAME, with a NUL behind it. */
static bool read_proc(pid_t pid, const char *name, char *out, size_t size)
{
	cleanup_close int fd = FD_NONE;
	char path[PATH_LEN];
	ssize_t n;

	if (pid == 0)
		(void)snprintf(path, sizeof(path), "/proc/self/%s", name);
	else
		(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	if (n <= 0)
		return false;
	out[n] = '\0';
	return true;
}

/* Its state, a letter, and when it started. */
static bool read_stat(pid_t pid, char *ret_state, uint64_t *ret_start)
{
	char text[1024];
	const char *p;

	if (!read_proc(pid, "stat", text, sizeof(text)))
		return false;
	/* The program's name, field 2, may hold spaces and brackets: count after the last. */
	p = strrchr(text, ')');
	if (!p || p[1] != ' ')
		return false;
	*ret_state = p[2];
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, " %" SCNu64, ret_start) == 1;
}

bool process_start_time(pid_t pid, uint64_t *ret)
{
	char state;

	return read_stat(pid, &state, ret);
}

bool process_is_stopped(pid_t pid, uint64_t start_time)
{
	uint64_t start;
	char state;

	return pid > 0 && read_stat(pid, &state, &start) && start == start_time && state == 'T';
}

bool process_uid(pid_t pid, uid_t *ret)
{
	char text[4096];
	const char *line;
	unsigned effective;

	if (!read_proc(pid, "status", text, sizeof(text)))
		return false;
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %*u %u", &effective) != 1)
		return false;
	*ret = effective;
	return true;
}

int process_open(pid_t pid, uint64_t start_time, int *ret_pidfd)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	uint64_t now;

	if (pidfd < 0)
		return errno == ESRCH ? 0 : -errno;
	/* Held by its pidfd now: the number cannot be given to another while we compare. */
	if (!process_start_time(pid, &now) || now != start_time)
		return 0;
	*ret_pidfd = take_fd(&pidfd);
	return 1;
}

int process_signal(int pidfd, int sig)
{
	return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int process_wait(int pidfd, int64_t deadline)
{
	struct pollfd pfd = { .fd = pidfd, .events = POLLIN };
	int n;

	do {
		n = poll(&pfd, 1, clock_left_ms(deadline));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* The kernel shows what lies between the first argument and the end of the last, one behind the other. */
void process_rename(char **argv, const char *name)
{
	char *end = argv[0];

	for (char **arg = argv; *arg && *arg == end; arg++)
		end += strlen(*arg) + 1;
	if (end > argv[0]) {
		memset(argv[0], 0, (size_t)(end - argv[0]));
		(void)snprintf(argv[0], (size_t)(end - argv[0]), "%s", name);
	}
	(void)prctl(PR_SET_NAME, name);
}
