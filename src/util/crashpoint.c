/* SPDX-License-Identifier: Apache-2.0 */
/* Named places to die, and steps to leave out, for the tests. */
#include "util/crashpoint.h"

#include "util/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool crashpoint_armed;

static char *wanted; /* NULL: none, the points are only logged */
static atomic_long passes_left;
static int log_fd = -1;

static void arm(void) __attribute__((__constructor__));

static void open_log(void)
{
	const char *path = getenv("ATOLL_CRASHPOINT_LOG");

	if (!path || !*path)
		return;
	log_fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
	if (log_fd < 0)
		abort();
	crashpoint_armed = true;
}

/* Before main, so before any thread: what it sets is read without a lock. */
static void arm(void)
{
	const char *told = getenv("ATOLL_CRASHPOINT");
	const char *colon;
	char *end;
	long n = 1;

	open_log();
	if (!told || !*told)
		return;
	colon = strrchr(told, ':');
	if (colon) {
		n = strtol(colon + 1, &end, 10);
		/* A number that is none would make a test pass without having crashed. */
		if (end == colon + 1 || *end || n < 1)
			abort();
	}
	/* A copy: the program may change its environment. */
	wanted = xstrndup(told, colon ? (size_t)(colon - told) : strlen(told));
	atomic_store(&passes_left, n);
	crashpoint_armed = true;
}

static void log_point(const char *name)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s\n", name);

	/* One write, so that lines of several processes do not mix. */
	if (log_fd >= 0 && write(log_fd, line, (size_t)n) != n)
		abort();
}

void crashpoint_reached(const char *name)
{
	log_point(name);
	if (!wanted)
		return;
	if (strcmp(name, wanted) != 0 || atomic_fetch_sub(&passes_left, 1) != 1)
		return;
	(void)kill(getpid(), SIGKILL);
	/* Nothing after the point may run, however late the signal arrives. */
	for (;;)
		pause();
}

#ifdef ATOLL_SABOTAGE
bool sabotage(const char *step)
{
	const char *at = getenv("ATOLL_SABOTAGE");
	size_t len = strlen(step);

	while (at && *at) {
		size_t n = strcspn(at, ",");

		if (n == len && memcmp(at, step, len) == 0)
			return true;
		at += n + (at[n] == ',');
	}
	return false;
}
#endif
