/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a workspace survived the machine. Commands run without waiting for the disk; a program
 * in the background (atoll-helper --sync) then makes the workspace durable and writes the number
 * of the last command into "durable" in the area. Only if the machine went down in between does
 * the number fall short in the next boot.
 */
#include "plan/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/child.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#ifndef ATOLL_HELPER_PATH
#define ATOLL_HELPER_PATH "/usr/libexec/atoll/atoll-helper"
#endif

#define NOTE_NAME     "durable"
#define NOTE_MAX_LEN  32
#define NUMBER_LEN    24
#define START_WAIT_MS 2000

/* The program puts itself into the background, so its first process ends at once. */
static int run_helper(const char *file, const char *const *argv)
{
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const struct child_fd fds[] = { { null_fd, 0 }, { null_fd, 1 }, { null_fd, 2 } };
	const struct child_options opt = { .file = file, .argv = argv, .fds = fds, .n_fds = 3 };
	struct child c = CHILD_INIT;
	int status = 0;
	int r;

	if (null_fd < 0)
		return -errno;
	r = child_spawn(&c, &opt);
	if (r < 0)
		return r;
	(void)child_wait(&c, clock_deadline(START_WAIT_MS), &status);
	child_done(&c);
	return 0;
}

/* Where exec/ looks for it too. */
static int run_found(const char *const *argv)
{
	static const char *const beside[] = { "atoll-helper", "../helper/atoll-helper" };
	const char *named = secure_getenv("ATOLL_HELPER");
	cleanup_free char *dir = child_self_dir();

	if (named && *named)
		return run_helper(named, argv);
	for (size_t i = 0; dir && i < sizeof(beside) / sizeof(beside[0]); i++) {
		cleanup_free char *file = xasprintf("%s/%s", dir, beside[i]);
		int r = run_helper(file, argv);

		if (r != -ENOENT && r != -ENOTDIR)
			return r;
	}
	return run_helper(ATOLL_HELPER_PATH, argv);
}

/* What has no workspace of its own has nothing of ours to lose. */
static bool has_workspace(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return strategy_find(row->strategy, &s, NULL) == 0 &&
	       (s->capabilities & ATOLL_CAP_PREPARE) != 0;
}

void durable_note_later(const struct sandbox_row *row)
{
	char number[NUMBER_LEN];
	const char *const argv[] = { "atoll-helper", "--sync", row->work, row->area, number, NULL };

	if (!has_workspace(row))
		return;
	(void)snprintf(number, sizeof(number), "%" PRIu64, row->exec_n);
	(void)run_found(argv);
}

bool durable_noted(const struct sandbox_row *row)
{
	cleanup_free char *path = xasprintf("%s/%s", row->area, NOTE_NAME);
	cleanup_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len = 0;
	char *end = NULL;

	if (fd < 0 || fs_read_all(fd, NOTE_MAX_LEN, &text, &len) < 0 || len == 0)
		return false;
	errno = 0;
	return strtoull(text, &end, 10) == row->exec_n && end != text && errno == 0;
}

bool durable_lost(const struct sandbox_row *row)
{
	if (row->state != ATOLL_SANDBOX_ACTIVE && row->state != ATOLL_SANDBOX_CREATED)
		return false;
	if (row->stale || !*clock_boot_id() || strcmp(row->boot_id, clock_boot_id()) == 0)
		return false;
	return has_workspace(row) && !durable_noted(row);
}
