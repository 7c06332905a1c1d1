/* SPDX-License-Identifier: Apache-2.0 */
/* exec_run() with the real atoll-helper ($ATOLL_HELPER) and real commands. */
#include "exec/exec.h"

#include "exec/request.h"
#include "helper/run.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char scratch[] = "/tmp/atoll-exec-XXXXXX";

static int run_with(const struct exec_options *more, const char *script, struct exec_usage *usage)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	struct exec_options opt = *more;

	opt.argv = argv;
	opt.cwd = opt.cwd ? opt.cwd : scratch;
	return exec_run(&opt, usage, NULL);
}

static int exit_of(const char *script)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };

	assert_int_equal(run_with(&opt, script, &usage), 0);
	assert_false(usage.timed_out);
	return usage.exit_code;
}

static void path_in(char out[128], const char *name)
{
	(void)snprintf(out, 128, "%s/%s", scratch, name);
}

static void read_back(const char *name, char *out, size_t size)
{
	char path[128];
	ssize_t n;
	int fd;

	path_in(path, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = read(fd, out, size - 1);
	assert_true(n >= 0);
	out[n] = '\0';
	(void)close(fd);
}

/* Waits up to a minute for a file that a command makes. */
static void wait_for(const char *name)
{
	char path[128];

	path_in(path, name);
	for (unsigned i = 0; i < 60000 && access(path, F_OK) < 0; i++)
		clock_sleep_ns(1000000);
	assert_int_equal(access(path, F_OK), 0);
}

static bool is_there(const char *name)
{
	char path[128];

	path_in(path, name);
	return access(path, F_OK) == 0;
}

static void wait_until_gone(pid_t pid)
{
	for (unsigned i = 0; i < 60000 && kill(pid, 0) == 0; i++)
		clock_sleep_ns(1000000);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void exec_exit_codes(void **state)
{
	(void)state;
	assert_int_equal(exit_of("exit 0"), 0);
	assert_int_equal(exit_of("exit 1"), 1);
	assert_int_equal(exit_of("exit 255"), 255);
	assert_int_equal(exit_of("kill -KILL $$"), 128 + SIGKILL);
	assert_int_equal(exit_of("kill -SEGV $$"), 128 + SIGSEGV);
}

static void exec_cannot_start(void **state)
{
	static const char *const missing[] = { "atoll-no-such-command", NULL };
	static const char *const directory[] = { "/", NULL };
	struct exec_options opt = { .argv = missing, .cwd = scratch, .lock_fd = FD_NONE };
	cleanup_error struct error err = ERROR_INIT;
	struct exec_usage usage = { 0 };

	(void)state;
	assert_int_equal(exec_run(&opt, &usage, &err), -ENOENT);
	assert_string_equal(err.path, "atoll-no-such-command");
	error_done(&err);
	opt.argv = directory;
	assert_int_equal(exec_run(&opt, &usage, &err), -EACCES);
	error_done(&err);

	/* A missing directory is not a missing command. */
	opt.cwd = "/nonexistent";
	assert_int_equal(exec_run(&opt, &usage, &err), -ATOLL_E_NOT_FOUND);
	assert_int_equal(err.os_errno, ENOENT);
}

static void exec_without_helper(void **state)
{
	static const char *const argv[] = { "true", NULL };
	struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	cleanup_free char *saved = NULL;
	struct exec_usage usage = { 0 };

	(void)state;
	saved = strdup(getenv("ATOLL_HELPER"));
	assert_int_equal(setenv("ATOLL_HELPER", "/nonexistent/atoll-helper", 1), 0);
	assert_int_equal(exec_run(&opt, &usage, NULL), -ATOLL_E_UNSUPPORTED);
	assert_int_equal(setenv("ATOLL_HELPER", saved, 1), 0);
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
}

static void exec_environment_and_directory(void **state)
{
	static const char *const env[] = { "ATOLL_PLAN=fix=42", "EMPTY=", NULL };
	struct exec_options opt = { .setenv = env, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	char text[256], want[256];

	(void)state;
	assert_int_equal(
		run_with(&opt, "printf '%s' \"$ATOLL_PLAN/${EMPTY-unset}/$PWD\" >env", &usage), 0);
	read_back("env", text, sizeof(text));
	(void)snprintf(want, sizeof(want), "fix=42//%s", scratch);
	assert_string_equal(text, want);
	assert_null(getenv("ATOLL_PLAN"));
}

static void exec_time_limit(void **state)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	char text[64];

	(void)state;
	/* Time enough for the shell to read its first command; more of it if that was not enough. */
	for (opt.timeout_ms = 1000; opt.timeout_ms < 64000 && !is_there("term");
	     opt.timeout_ms *= 2) {
		usage = (struct exec_usage){ 0 };
		assert_int_equal(run_with(&opt,
		                          "trap 'echo asked >term; exit 3' TERM; sleep 60 & wait",
		                          &usage),
		                 0);
		assert_true(usage.timed_out);
		assert_int_equal(usage.exit_code, 124);
	}
	read_back("term", text, sizeof(text));
	assert_string_equal(text, "asked\n");

	/* One that will not go is killed. */
	usage = (struct exec_usage){ 0 };
	for (opt.timeout_ms = 1000; opt.timeout_ms < 64000 && usage.term_signal != SIGKILL;
	     opt.timeout_ms *= 2) {
		usage = (struct exec_usage){ 0 };
		assert_int_equal(
			run_with(&opt, "trap '' TERM; while :; do sleep 0.1; done", &usage), 0);
		assert_true(usage.timed_out);
		assert_int_equal(usage.exit_code, 124);
	}
	assert_int_equal(usage.term_signal, SIGKILL);
}

/* Whoever says when it must end is another process: until the command ignores what asks it to. */
static void let_go_when_ready(int keep_fd, int drop_fd)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(drop_fd);
		for (unsigned i = 0; i < 60000 && !is_there("ready"); i++)
			(void)poll(NULL, 0, 1);
		_exit(0);
	}
	(void)close(keep_fd);
}

static void exec_ended_by_its_caller_is_killed(void **state)
{
	struct control control = { 0 };
	struct exec_options opt = { .lock_fd = FD_NONE, .control = &control };
	struct exec_usage usage = { 0 };
	int ends[2];

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	control.fd = ends[0];
	let_go_when_ready(ends[1], ends[0]);
	assert_int_equal(
		run_with(&opt, "trap '' TERM; : >ready; while :; do sleep 0.1; done", &usage), 0);
	assert_int_equal(usage.exit_code, 128 + SIGKILL);
	assert_int_equal(usage.term_signal, SIGKILL);
	(void)close(ends[0]);
	(void)wait(NULL);
}

static void exec_usage_is_measured(void **state)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };

	(void)state;
	assert_int_equal(run_with(&opt, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done", &usage),
	                 0);
	assert_true(usage.user_us + usage.system_us > 0);
	assert_true(usage.max_rss_kb > 0);
}

static void der_14_daemons_do_not_outlive_their_command(void **state)
{
	char text[64];

	(void)state;
	/* In a session of its own, with its parent gone, ignoring what can be ignored. */
	assert_int_equal(exit_of("setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >daemon.tmp;"
	                         " mv daemon.tmp daemon; sleep 600' </dev/null >/dev/null 2>&1 &"
	                         " while [ ! -e daemon ]; do sleep 0.01; done"),
	                 0);
	read_back("daemon", text, sizeof(text));
	assert_int_equal(kill((pid_t)strtol(text, NULL, 10), 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void der_14_no_descriptor_reaches_the_command(void **state)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	char path[128], text[1024];

	(void)state;
	path_in(path, "the-lock");
	opt.lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(opt.lock_fd >= 0);
	assert_int_equal(run_with(&opt, "exec ls -l /proc/self/fd >fds", &usage), 0);
	(void)close(opt.lock_fd);
	assert_int_equal(usage.exit_code, 0);
	read_back("fds", text, sizeof(text));
	assert_non_null(strstr(text, " 3 -> /proc/")); /* the directory being listed */
	assert_null(strstr(text, " 4 -> "));
	assert_null(strstr(text, " 5 -> "));
	assert_null(strstr(text, " 6 -> "));
	assert_null(strstr(text, "memfd"));
	assert_null(strstr(text, "the-lock"));
}

static void exec_binary_through_stdin(void **state)
{
	unsigned char data[4096], back[4096];
	int in[2], out[2], saved_in, saved_out;
	ssize_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7 + i / 256);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(write(in[1], data, sizeof(data)), (ssize_t)sizeof(data));
	(void)close(in[1]);
	(void)fflush(stdout);
	saved_in = dup(0);
	saved_out = dup(1);
	assert_true(dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1);
	assert_int_equal(exit_of("exec cat"), 0);
	assert_true(dup2(saved_in, 0) == 0 && dup2(saved_out, 1) == 1);
	n = read(out[0], back, sizeof(back));
	assert_int_equal(n, (ssize_t)sizeof(back));
	assert_memory_equal(data, back, sizeof(data));
	for (unsigned i = 0; i < 2; i++)
		(void)close(out[i]);
	(void)close(in[0]);
	(void)close(saved_in);
	(void)close(saved_out);
}

/* A process that runs SCRIPT and nothing else. */
static pid_t start_caller(const char *script)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(run_with(&opt, script, &usage) < 0 ? 99 : usage.exit_code);
	return pid;
}

static void der_10_caller_killed_command_gone(void **state)
{
	char text[64];
	pid_t caller;

	(void)state;
	caller = start_caller("trap '' TERM HUP; echo $$ >pid.tmp; mv pid.tmp pid; sleep 600");
	wait_for("pid");
	read_back("pid", text, sizeof(text));
	assert_int_equal(kill(caller, SIGKILL), 0);
	assert_int_equal(waitpid(caller, NULL, 0), caller);
	wait_until_gone((pid_t)strtol(text, NULL, 10));
}

static void exec_passes_signals_on(void **state)
{
	char text[64];
	pid_t caller, helper;
	int status;

	(void)state;
	caller = start_caller("trap 'exit 42' USR1; echo $PPID >ppid.tmp; mv ppid.tmp ppid;"
	                      " while :; do sleep 0.05; done");
	wait_for("ppid");
	read_back("ppid", text, sizeof(text));
	helper = (pid_t)strtol(text, NULL, 10);
	assert_int_equal(kill(helper, SIGUSR1), 0);
	assert_int_equal(waitpid(caller, &status, 0), caller);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
}

static void exec_ignored_stays_ignored(void **state)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;

	(void)state;
	/* As under nohup. And a caller that ignores SIGCHLD still hears the exit code. */
	assert_int_equal(sigaction(SIGHUP, &ignore, &before), 0);
	assert_int_equal(exit_of("kill -HUP $$; exit 5"), 5);
	assert_int_equal(sigaction(SIGHUP, &before, NULL), 0);
	assert_int_equal(exit_of("kill -HUP $$; exit 5"), 128 + SIGHUP);
	assert_int_equal(sigaction(SIGCHLD, &ignore, &before), 0);
	assert_int_equal(exit_of("exit 6"), 6);
	assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
	/* Those that the helper ignores itself are as usual in the command. */
	assert_int_equal(exit_of("kill -PIPE $$; exit 5"), 128 + SIGPIPE);
}

static void exec_helper_killed(void **state)
{
	struct exec_options opt = { .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };

	(void)state;
	assert_int_equal(run_with(&opt, "kill -KILL $PPID; exec sleep 600", &usage), -EIO);
}

static void exec_sync_marks_when_done(void **state)
{
	char command[512], text[64];

	(void)state;
	(void)snprintf(command, sizeof(command), "\"$ATOLL_HELPER\" --sync . %s 17", scratch);
	assert_int_equal(exit_of(command), 0);
	/* exec_run ends what a command leaves behind, so ask outside of it. */
	(void)snprintf(command, sizeof(command), "exec \"$ATOLL_HELPER\" --sync %s %s 17", scratch,
	               scratch);
	assert_int_equal(system(command), 0);
	wait_for("durable");
	read_back("durable", text, sizeof(text));
	assert_string_equal(text, "17");
	assert_int_not_equal(exit_of("\"$ATOLL_HELPER\" --sync . . x 2>/dev/null"), 0);
	assert_int_not_equal(exit_of("\"$ATOLL_HELPER\" --sync /nonexistent . 1 2>/dev/null"), 0);
	assert_int_equal(exit_of("\"$ATOLL_HELPER\" --help 2>/dev/null"), 2);
}

static void exec_begins_when_told(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "echo x >began", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	struct exec *e = NULL;

	(void)state;
	assert_int_equal(exec_start(&opt, &e, NULL), 0);
	clock_sleep_ns(100000000);
	assert_false(is_there("began"));
	exec_close(e); /* nobody said go: it never begins */
	assert_false(is_there("began"));
	assert_int_equal(exec_start(&opt, &e, NULL), 0);
	exec_go(e);
	assert_int_equal(exec_wait(e, &usage, NULL), 0);
	exec_close(e);
	assert_true(is_there("began"));
}

static int be_helper(void *ctx)
{
	(void)ctx;
	return run_helper();
}

static int be_nobody(void *ctx)
{
	(void)ctx;
	return EXIT_SUCCESS;
}

/* As where nobody names another helper; it is named again afterwards. */
static void start_ahead(int (*helper)(void *ctx))
{
	cleanup_free char *named = strdup(getenv("ATOLL_HELPER"));

	assert_non_null(named);
	assert_int_equal(unsetenv("ATOLL_HELPER"), 0);
	exec_ahead(helper, NULL);
	assert_int_equal(setenv("ATOLL_HELPER", named, 1), 0);
}

static bool has_child(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void exec_ahead_waits_for_its_request(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "exit 7", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };

	(void)state;
	start_ahead(be_helper);
	start_ahead(be_helper); /* one is enough */
	assert_true(has_child());
	assert_int_equal(exec_listener(), 0);
	clock_sleep_ns(200000000); /* as long as it takes, while nothing is mounted */
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
	assert_int_equal(usage.exit_code, 7);
	assert_true(has_child());
	assert_int_equal(exec_listener(), 0);
	exec_end(); /* nobody waited for it until now */
	assert_false(has_child());
	assert_int_equal(exec_run(&opt, &usage, NULL), 0); /* and none: a new one */
	assert_int_equal(usage.exit_code, 7);
	assert_false(has_child()); /* which was waited for */
}

/* Whoever names a helper gets that one, and what is wrong with it is said. */
static void exec_ahead_is_not_for_one_that_is_named(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "exit 7", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	cleanup_free char *helper = exec_helper_path();
	struct exec_usage usage = { 0 };
	struct error err = ERROR_INIT;

	(void)state;
	assert_int_equal(setenv("ATOLL_HELPER", "/dev/null", 1), 0);
	exec_ahead(be_helper, NULL);
	assert_false(has_child());
	assert_int_equal(exec_run(&opt, &usage, &err), -ATOLL_E_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "'/dev/null' cannot be started"));
	error_done(&err);
	assert_int_equal(setenv("ATOLL_HELPER", helper, 1), 0);
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
	assert_int_equal(usage.exit_code, 7);
}

/* It would not have them. */
static void exec_ahead_is_not_used_after_a_mount(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "exit 7", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };

	(void)state;
	if (geteuid() != 0)
		skip();
	start_ahead(be_helper);
	assert_int_equal(mount("none", "/mnt", "tmpfs", 0, NULL), 0);
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
	assert_int_equal(usage.exit_code, 7);
	assert_false(has_child()); /* a new one, which was waited for, and so was the other */
	assert_int_equal(umount("/mnt"), 0);
}

/* Nothing was asked of it yet. */
static void exec_ahead_that_was_killed_is_done_without(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "exit 7", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	siginfo_t info;

	(void)state;
	start_ahead(be_nobody);
	assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
	assert_int_equal(usage.exit_code, 7);
	assert_false(has_child());
}

/* Signals are the caller's own until there is a command, and after it. */
static void exec_has_a_listener_while_its_command_runs(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "exit 7", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = scratch, .lock_fd = FD_NONE };
	struct exec_usage usage = { 0 };
	struct exec *e = NULL;

	(void)state;
	assert_int_equal(exec_start(&opt, &e, NULL), 0);
	assert_int_equal(exec_listener(), 0);
	exec_go(e);
	assert_true(exec_listener() > 0);
	assert_int_equal(exec_wait(e, &usage, NULL), 0);
	assert_true(exec_listener() > 0); /* how it ended is still to be told */
	exec_close(e);
	assert_int_equal(exec_listener(), 0);
}

/* The caller's word, and the data, come before the mark. */
static void exec_notes_when_told(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c", "rm -f durable", NULL };
	const struct exec_sync sync = { .work = scratch, .area = scratch, .number = "18" };
	const struct exec_options opt = { .argv = argv,
		                          .cwd = scratch,
		                          .lock_fd = FD_NONE,
		                          .syncs = &sync,
		                          .n_syncs = 1 };
	struct exec_usage usage = { 0 };
	struct exec *e = NULL;
	char text[64];

	(void)state;
	assert_int_equal(exec_run(&opt, &usage, NULL), 0);
	clock_sleep_ns(100000000);
	assert_false(is_there("durable"));
	assert_int_equal(exec_start(&opt, &e, NULL), 0);
	exec_go(e);
	assert_int_equal(exec_wait(e, &usage, NULL), 0);
	exec_note(e, false);
	exec_close(e);
	clock_sleep_ns(100000000);
	assert_false(is_there("durable"));
	assert_int_equal(exec_start(&opt, &e, NULL), 0);
	exec_go(e);
	assert_int_equal(exec_wait(e, &usage, NULL), 0);
	clock_sleep_ns(100000000);
	assert_false(is_there("durable"));
	exec_note(e, true);
	exec_close(e);
	wait_for("durable");
	read_back("durable", text, sizeof(text));
	assert_string_equal(text, "18");
}

/* Where only root can: what others mount beside us is not for us. */
static int make_scratch(void **state)
{
	(void)state;
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", scratch);
	return system(command);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(exec_exit_codes),
		cmocka_unit_test(exec_cannot_start),
		cmocka_unit_test(exec_without_helper),
		cmocka_unit_test(exec_environment_and_directory),
		cmocka_unit_test(exec_time_limit),
		cmocka_unit_test(exec_ended_by_its_caller_is_killed),
		cmocka_unit_test(exec_usage_is_measured),
		cmocka_unit_test(der_14_daemons_do_not_outlive_their_command),
		cmocka_unit_test(der_14_no_descriptor_reaches_the_command),
		cmocka_unit_test(exec_binary_through_stdin),
		cmocka_unit_test(der_10_caller_killed_command_gone),
		cmocka_unit_test(exec_passes_signals_on),
		cmocka_unit_test(exec_ignored_stays_ignored),
		cmocka_unit_test(exec_helper_killed),
		cmocka_unit_test(exec_sync_marks_when_done),
		cmocka_unit_test(exec_begins_when_told),
		cmocka_unit_test(exec_ahead_waits_for_its_request),
		cmocka_unit_test(exec_ahead_is_not_for_one_that_is_named),
		cmocka_unit_test(exec_ahead_is_not_used_after_a_mount),
		cmocka_unit_test(exec_ahead_that_was_killed_is_done_without),
		cmocka_unit_test(exec_has_a_listener_while_its_command_runs),
		cmocka_unit_test(exec_notes_when_told),
	};

	return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
