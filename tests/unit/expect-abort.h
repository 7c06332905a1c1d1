/* SPDX-License-Identifier: Apache-2.0 */
/* For functions whose misuse is a BUG(): runs FN(ARG) in a child, which must die of SIGABRT. */
#ifndef UNIT_EXPECT_ABORT_H
#define UNIT_EXPECT_ABORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void expect_abort(void (*fn)(void *arg), void *arg)
{
	const struct rlimit no_core = { 0, 0 };
	int status, null_fd;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)signal(SIGABRT, SIG_DFL);
		null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		(void)dup2(null_fd, STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

#endif
