/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes: known by number and start, never by number alone. */
#include "util/process.h"

#include "util/cleanup.h"
#include "util/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start_sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void a_process_is_known_by_its_start(void **state)
{
	cleanup_close int pidfd = FD_NONE;
	pid_t pid = start_sleeper();
	uint64_t started = 0;
	uid_t uid = 12345;

	(void)state;
	assert_true(process_start_time(pid, &started));
	assert_true(process_uid(pid, &uid));
	assert_int_equal(uid, geteuid());
	/* The number was given out again: that is somebody else. */
	assert_int_equal(process_open(pid, started + 1, &pidfd), 0);
	assert_int_equal(pidfd, FD_NONE);
	assert_int_equal(process_open(pid, started, &pidfd), 1);
	assert_int_equal(process_wait(pidfd, clock_deadline(10)), 0);
	assert_int_equal(process_signal(pidfd, SIGKILL), 0);
	assert_int_equal(process_wait(pidfd, clock_deadline(60000)), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close_fd(&pidfd);
	assert_int_equal(process_open(pid, started, &pidfd), 0);
	assert_false(process_start_time(pid, &started));
}

static void this_process_has_a_start(void **state)
{
	uint64_t self = 0, named = 1;

	(void)state;
	assert_true(process_start_time(0, &self));
	assert_true(process_start_time(getpid(), &named));
	assert_int_equal(self, named);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_is_known_by_its_start),
		cmocka_unit_test(this_process_has_a_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
