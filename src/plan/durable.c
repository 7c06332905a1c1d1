/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a workspace survived the machine. Commands run without waiting for the disk; atoll-helper
 * in the background then makes the workspace durable and writes the number of the last command into
 * "durable" in the area. Only if the machine went down in between does
 * the number fall short in the next boot.
 *
 * Of a workspace that begins empty nothing can be half on disk before a command has left something in
 * it, and until then the number of commands stays 0: nobody waits for the disk before a command, and
 * nothing is synced after it. In the next boot such a workspace is looked at instead.
 */
#include "plan/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/atomic.h"
#include "util/child.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define NOTE_NAME    "durable"
#define NOTE_MAX_LEN 32
#define NUMBER_LEN   24

static int run_helper(const char *file, const char *const *argv)
{
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const struct child_fd fds[] = { { null_fd, 0 }, { null_fd, 1 }, { null_fd, 2 } };
	const struct child_options opt = { .file = file, .argv = argv, .fds = fds, .n_fds = 3 };

	return null_fd < 0 ? -errno : child_spawn_detached(&opt);
}

static bool can(const struct sandbox_row *row, unsigned capability)
{
	const struct atoll_strategy *s = NULL;

	return strategy_find(row->strategy, &s, NULL) == 0 && (s->capabilities & capability) != 0;
}

/* What has no workspace of its own has nothing of ours to lose. */
static bool has_workspace(const struct sandbox_row *row)
{
	return can(row, ATOLL_CAP_PREPARE);
}

bool durable_unused(const struct sandbox_row *row)
{
	return row->exec_n == 0 && !row->stale && can(row, ATOLL_CAP_EMPTY);
}

void durable_notes_done(struct durable_notes *notes)
{
	for (unsigned i = 0; i < notes->n; i++)
		free(notes->numbers[i]);
}

void durable_notes_add(struct durable_notes *notes, const struct sandboxes *boxes)
{
	for (size_t i = 0; i < boxes->n && notes->n < LIMIT_SANDBOXES; i++) {
		const struct sandbox_row *row = &boxes->v[i];

		if (!has_workspace(row))
			continue;
		notes->numbers[notes->n] = xasprintf("%" PRIu64, row->exec_n);
		notes->v[notes->n] = (struct exec_sync){ .work = row->work,
			                                 .area = row->area,
			                                 .number = notes->numbers[notes->n] };
		notes->n++;
	}
}

void durable_count(struct sandbox_row *row)
{
	row->exec_n++;
	sandbox_written(row);
}

void durable_uncount(struct sandbox_row *row)
{
	row->exec_n--;
}

void durable_note_later(const struct sandbox_row *row)
{
	cleanup_free char *file = NULL;
	char number[NUMBER_LEN];
	const char *const argv[] = { "atoll-helper", "--sync", row->work, row->area, number, NULL };

	if (!has_workspace(row) || durable_unused(row))
		return;
	(void)snprintf(number, sizeof(number), "%" PRIu64, row->exec_n);
	file = exec_helper_path();
	(void)run_helper(file, argv);
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

bool durable_other_boot(const struct sandbox_row *row)
{
	if (row->state != ATOLL_SANDBOX_ACTIVE && row->state != ATOLL_SANDBOX_CREATED)
		return false;
	return !row->stale && *clock_boot_id() && strcmp(row->boot_id, clock_boot_id()) != 0 &&
	       has_workspace(row);
}

/* One whose directories never reached the disk holds nothing either. */
static bool holds_nothing(struct atoll *a, const char *plan_name, const struct sandbox_row *row)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	cleanup_error struct error e = ERROR_INIT;
	int r = sandbox_find_area(row, plan_name, &e);

	if (r == 0)
		r = sandbox_open(&s, a, plan_name, row, &e);
	if (r == 0)
		r = participant_observe(s.part, &e);
	return r == ATOLL_NO_CHANGE || r == -ENOENT;
}

enum durable_fate durable_fate(struct atoll *a, const char *plan_name,
                               const struct sandbox_row *row)
{
	if (!durable_other_boot(row))
		return DURABLE_KEPT;
	if (durable_unused(row)) {
		/* With the resource, what lies beside it may be away, too: looked at once it is back. */
		if (sandbox_verify_root(row, NULL) < 0)
			return DURABLE_KEPT;
		return holds_nothing(a, plan_name, row) ? DURABLE_ANEW : DURABLE_LOST;
	}
	return durable_noted(row) ? DURABLE_KEPT : DURABLE_LOST;
}
