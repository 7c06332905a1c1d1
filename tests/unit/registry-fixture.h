/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a temporary directory, and small ways to fill it. */
#ifndef UNIT_REGISTRY_FIXTURE_H
#define UNIT_REGISTRY_FIXTURE_H

#include "registry/registry.h"

#include "lock/ticket.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[64];
static int home_fd = FD_NONE;
static bool in_child; /* of a test: a failure must end it, not go on with the next test */

static inline int store_setup(void **state)
{
	(void)state;
	(void)snprintf(home, sizeof(home), "/tmp/atoll-registry-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	home_fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return home_fd < 0 ? -1 : 0;
}

static inline int store_teardown(void **state)
{
	static const char *const names[] = { "locks/store.lk", "atoll.db-wal", "atoll.db-shm",
		                             "atoll.db-journal", "atoll.db" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlinkat(home_fd, names[i], 0);
	(void)unlinkat(home_fd, "atoll.db", AT_REMOVEDIR);
	(void)unlinkat(home_fd, "locks", AT_REMOVEDIR);
	close_fd(&home_fd);
	return rmdir(home);
}

static inline void check_code(int code, const char *call, struct error *err)
{
	if (code < 0 && in_child) {
		(void)fprintf(stderr, "# %s: %s (%s)\n", call, error_code_name(code),
		              err->msg ? err->msg : "no message");
		_exit(99);
	}
	if (code < 0)
		fail_msg("%s: %s (%s)", call, error_code_name(code),
		         err->msg ? err->msg : "no message");
	error_done(err);
}

/* Says what went wrong, and where. CALL ends with `err`. */
#define check_ok(call)                                 \
	do {                                           \
		struct error check_err = ERROR_INIT;   \
		struct error *err = &check_err;        \
		check_code((call), #call, &check_err); \
	} while (0)

static inline struct registry *open_store(void)
{
	struct registry *r = NULL;

	check_ok(registry_open(home_fd, home, &r, err));
	return r;
}

static inline struct plan_row new_plan(const char *name)
{
	struct plan_row row = { .created_ms = 1700000000123 };

	random_hex(row.id, PLAN_ID_LEN);
	(void)snprintf(row.name, sizeof(row.name), "%s", name);
	return row;
}

/* One durable transaction; the plan's row as stored. */
static inline struct plan_row add_plan(struct registry *r, const char *name)
{
	struct plan_row row = new_plan(name);

	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	check_ok(registry_commit(r, err));
	return row;
}

static inline int count_plan(void *ctx, const struct plan_row *row)
{
	(void)row;
	++*(int *)ctx;
	return 0;
}

static inline int plans_in(struct registry *r)
{
	int n = 0;

	check_ok(registry_plan_list(r, count_plan, &n, err));
	return n;
}

/* 0 when nobody holds the store lock. */
static inline int try_store_lock(void)
{
	cleanup_close int locks = openat(home_fd, "locks", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct ticket_options opt = { .command = "test", .deadline = 0 };
	struct ticket t = TICKET_INIT;
	int r = ticket_acquire(&t, locks, "store.lk", &opt);

	ticket_release(&t);
	return r;
}

static inline int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

#endif
