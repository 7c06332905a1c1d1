/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash points. They are armed before main, so each case runs this program again with its own
 * environment; as "pass" it goes through two points three times in two threads.
 */
#include "util/crashpoint.h"

#include "util/child.h"
#include "util/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSES 3

static char self[PATH_MAX];

static void *pass_points(void *arg)
{
	(void)arg;
	for (int i = 0; i < PASSES; i++) {
		crashpoint("test.first");
		crashpoint("test.second-one");
	}
	return NULL;
}

static int pass(void)
{
	const struct rlimit no_core = { 0, 0 };
	pthread_t thread;

	(void)setrlimit(RLIMIT_CORE, &no_core);
	if (pthread_create(&thread, NULL, pass_points, NULL) != 0)
		return 1;
	(void)pass_points(NULL);
	pthread_join(thread, NULL);
	return 42;
}

/* Wait status of "self WHAT" with VARIABLE in the environment. */
static int run_self(const char *what, const char *variable)
{
	const char *const argv[] = { self, what, NULL };
	const char *const envp[] = { variable, NULL };
	const struct child_options opt = { .file = self, .argv = argv, .envp = envp };
	struct child c = CHILD_INIT;
	int status;

	assert_int_equal(child_spawn(&c, &opt), 0);
	assert_int_equal(child_wait(&c, clock_deadline(60000), &status), 0);
	return status;
}

static void dies_where_told(void **state)
{
	static const struct {
		const char *variable;
		int sig; /* 0: passes */
	} rows[] = {
		{ NULL, 0 },
		{ "ATOLL_CRASHPOINT=", 0 },
		{ "ATOLL_CRASHPOINT=test.third", 0 },
		{ "ATOLL_CRASHPOINT=test.firs", 0 },
		{ "ATOLL_CRASHPOINT=test.first.x", 0 },
		{ "ATOLL_CRASHPOINT=test.first", SIGKILL },
		{ "ATOLL_CRASHPOINT=test.second-one", SIGKILL },
		{ "ATOLL_CRASHPOINT=test.first:1", SIGKILL },
		/* Both threads count together. */
		{ "ATOLL_CRASHPOINT=test.first:6", SIGKILL },
		{ "ATOLL_CRASHPOINT=test.first:7", 0 },
		{ "ATOLL_CRASHPOINT=test.first:0", SIGABRT },
		{ "ATOLL_CRASHPOINT=test.first:x", SIGABRT },
		{ "ATOLL_CRASHPOINT=test.first:", SIGABRT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int status = run_self("pass", rows[i].variable);

		if (rows[i].sig == 0) {
			assert_true(WIFEXITED(status));
			assert_int_equal(WEXITSTATUS(status), 42);
		} else {
			assert_true(WIFSIGNALED(status));
			assert_int_equal(WTERMSIG(status), rows[i].sig);
		}
	}
}

/* Every point passed is a line, of all threads. */
static void logs_what_was_passed(void **state)
{
	char path[] = "/tmp/test-crashpoint-XXXXXX";
	char variable[64], line[64];
	int fd = mkstemp(path);
	FILE *log = fdopen(fd, "r");
	int n = 0, status;

	(void)state;
	assert_non_null(log);
	(void)snprintf(variable, sizeof(variable), "ATOLL_CRASHPOINT_LOG=%s", path);
	status = run_self("pass", variable);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	for (; fgets(line, sizeof(line), log); n++)
		assert_true(strcmp(line, "test.first\n") == 0 ||
		            strcmp(line, "test.second-one\n") == 0);
	assert_int_equal(n, 2 * 2 * PASSES);
	(void)fclose(log);
	assert_int_equal(unlink(path), 0);

	/* A log that cannot be written would look like no points. */
	status = run_self("pass", variable);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static int sabotaged(void)
{
	return sabotage("barrier-1") ? 1 : 0;
}

/* Only a build made for it leaves steps out. */
static void sabotage_is_told_by_the_build(void **state)
{
#ifdef ATOLL_SABOTAGE
	const int built = 1;
#else
	const int built = 0;
#endif
	static const struct {
		const char *variable;
		bool named;
	} rows[] = {
		{ NULL, false },
		{ "ATOLL_SABOTAGE=", false },
		{ "ATOLL_SABOTAGE=barrier-1", true },
		{ "ATOLL_SABOTAGE=x,barrier-1", true },
		{ "ATOLL_SABOTAGE=barrier-1,x", true },
		{ "ATOLL_SABOTAGE=barrier-11,arrier-1,,barrier", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int status = run_self("sabotaged", rows[i].variable);

		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), rows[i].named ? built : 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dies_where_told),
		cmocka_unit_test(logs_what_was_passed),
		cmocka_unit_test(sabotage_is_told_by_the_build),
	};

	if (argc > 1)
		return strcmp(argv[1], "pass") == 0 ? pass() : sabotaged();
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
