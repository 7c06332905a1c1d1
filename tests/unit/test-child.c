/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program. The program is this one again, told by its first argument to say what it
 * finds: "fds" lists its descriptors and what is in them, "mask" whether signals are blocked.
 */
#include "util/child.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_END 1100

static char self[PATH_MAX];

/* "0 1 2 5:a " - numbers of open descriptors, with the first byte of those that hold one. */
static int say_fds(void)
{
	char byte;

	for (int fd = 0; fd < FDS_END; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			continue;
		if (fd > 2 && pread(fd, &byte, 1, 0) == 1)
			printf("%d:%c ", fd, byte);
		else
			printf("%d ", fd);
	}
	return 0;
}

static int say_mask(void)
{
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		if (sigismember(&mask, sig) == 1)
			printf("%d ", sig);
	printf("%s", getenv("TEST_CHILD") ? getenv("TEST_CHILD") : "unset");
	return 0;
}

/* Descriptor NUMBER, close-on-exec, holding BYTE. */
static void put_file(int number, char byte)
{
	cleanup_close int fd = memfd_create("test-child", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &byte, 1, 0), 1);
	assert_int_equal(dup3(fd, number, O_CLOEXEC), number);
}

/* The ways to start a program, of which each must do for it what the others do. */
static int load(void *ctx)
{
	const struct child_options *opt = ctx;
	union {
		const char *const *in;
		char *const *out;
	} argv = { .in = opt->argv }, envp = { .in = opt->envp };

	(void)execve(opt->file, argv.out, opt->envp ? envp.out : environ);
	return 126;
}

static int fork_and_load(struct child *c, const struct child_options *opt)
{
	struct child_options mine = *opt;
	const struct child_copy copy = { .inside = load,
		                         .ctx = &mine,
		                         .fds = opt->fds,
		                         .n_fds = opt->n_fds };
	int word_fd = FD_NONE;
	int r = child_fork(c, &copy, &word_fd);

	if (r == -ENOSYS) /* as in some containers */
		return child_spawn(c, opt);
	return r < 0 ? r : child_began(c, &word_fd);
}
static int (*start)(struct child *c, const struct child_options *opt) = child_spawn;
static bool hold; /* signals */

/* Runs ourselves as "self WHAT" with FDS and the output in RET. The last of FDS is our pipe. */
static int run_self(const char *what, const char *const *envp, struct child_fd *fds, unsigned n,
                    struct strbuf *ret)
{
	const char *const argv[] = { self, what, NULL };
	struct child_options opt = { .file = self,
		                     .argv = argv,
		                     .envp = envp,
		                     .fds = fds,
		                     .n_fds = n,
		                     .holds_signals = hold };
	struct child c = CHILD_INIT;
	int pipe_fds[2], status, r;
	char buf[4096];
	ssize_t got;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	fds[n - 1] = (struct child_fd){ .from = pipe_fds[1], .to = STDOUT_FILENO };
	r = start(&c, &opt);
	close(pipe_fds[1]);
	while ((got = read(pipe_fds[0], buf, sizeof(buf))) > 0)
		strbuf_add(ret, buf, (size_t)got);
	close(pipe_fds[0]);
	if (r < 0)
		return r;
	assert_int_equal(child_wait(&c, clock_deadline(60000), &status), 0);
	assert_int_equal(status, 0);
	return 0;
}

static int files_in(void **state)
{
	(void)state;
	put_file(60, 'a');
	put_file(61, 'b');
	put_file(62, 'c');
	/* One that is not close-on-exec, as a careless library leaves it. */
	assert_int_equal(dup2(60, 63), 63);
	return 0;
}

static int files_out(void **state)
{
	(void)state;
	for (int fd = 60; fd <= 63; fd++)
		close(fd);
	return 0;
}

static void only_what_is_named_gets_through(void **state)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct child_fd fds[1];

	(void)state;
	assert_int_equal(run_self("fds", NULL, fds, 1, &out), 0);
	assert_string_equal(strbuf_str(&out), "0 1 2 ");
}

static void descriptors_move_in_any_pattern(void **state)
{
	static const struct {
		struct child_fd fds[4];
		unsigned n;
		const char *out;
	} rows[] = {
		{ { { 60, 60 } }, 1, "0 1 2 60:a " },
		{ { { 60, 3 }, { 61, 4 } }, 2, "0 1 2 3:a 4:b " },
		{ { { 60, 61 }, { 61, 60 } }, 2, "0 1 2 60:b 61:a " },
		{ { { 60, 61 }, { 61, 62 }, { 62, 60 } }, 3, "0 1 2 60:c 61:a 62:b " },
		{ { { 60, 61 }, { 61, 62 } }, 2, "0 1 2 61:a 62:b " },
		{ { { 61, 62 }, { 60, 61 } }, 2, "0 1 2 61:a 62:b " },
		{ { { 60, 3 }, { 60, 5 }, { 60, 60 } }, 3, "0 1 2 3:a 5:a 60:a " },
		{ { { 61, 1000 }, { 60, 3 } }, 2, "0 1 2 3:a 1000:b " },
		{ { { 62, 4 }, { 61, 5 }, { 60, 3 } }, 3, "0 1 2 3:a 4:c 5:b " },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_strbuf struct strbuf out = STRBUF_INIT;
		struct child_fd fds[5];

		memcpy(fds, rows[i].fds, sizeof(rows[i].fds));
		assert_int_equal(run_self("fds", NULL, fds, rows[i].n + 1, &out), 0);
		assert_string_equal(strbuf_str(&out), rows[i].out);
	}
	/* The parent's own are as they were. */
	assert_int_equal(fcntl(60, F_GETFD), FD_CLOEXEC);
}

static void bad_descriptors_are_refused(void **state)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct child_fd twice[] = { { 60, 5 }, { 61, 5 }, { 0, 0 } };
	struct child_fd negative[] = { { -1, 5 }, { 0, 0 } };
	struct child_fd closed[] = { { 900, 5 }, { 0, 0 } };

	(void)state;
	assert_int_equal(run_self("fds", NULL, twice, 3, &out), -EINVAL);
	assert_int_equal(run_self("fds", NULL, negative, 2, &out), -EBADF);
	assert_int_equal(run_self("fds", NULL, closed, 2, &out), -EBADF);
}

static void environment_and_signal_mask(void **state)
{
	static const char *const envp[] = { "TEST_CHILD=given", NULL };
	cleanup_strbuf struct strbuf given = STRBUF_INIT, inherited = STRBUF_INIT;
	struct child_fd fds[1];
	sigset_t all, before;

	(void)state;
	sigfillset(&all);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
	assert_int_equal(run_self("mask", envp, fds, 1, &given), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	assert_string_equal(strbuf_str(&given), "given");

	assert_int_equal(setenv("TEST_CHILD", "inherited", 1), 0);
	assert_int_equal(run_self("mask", NULL, fds, 1, &inherited), 0);
	assert_string_equal(strbuf_str(&inherited), "inherited");
}

static int spawn_shell(struct child *c, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct child_options opt = { .file = "/bin/sh", .argv = argv };

	return child_spawn(c, &opt);
}

static void wait_status_and_time_out(void **state)
{
	struct child c = CHILD_INIT;
	int status = -1;

	(void)state;
	assert_int_equal(spawn_shell(&c, "exit 42"), 0);
	assert_int_equal(fcntl(c.pidfd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(child_wait(&c, CLOCK_NEVER, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 42);
	assert_int_equal(child_wait(&c, CLOCK_NEVER, &status), -ECHILD);
	assert_int_equal(child_kill(&c, SIGTERM), -ESRCH);

	assert_int_equal(spawn_shell(&c, "exec sleep 100"), 0);
	status = -1;
	assert_int_equal(child_wait(&c, clock_deadline(0), &status), -ETIMEDOUT);
	assert_int_equal(child_wait(&c, clock_deadline(20), &status), -ETIMEDOUT);
	assert_int_equal(status, -1);
	assert_int_equal(child_kill(&c, SIGTERM), 0);
	assert_int_equal(child_wait(&c, clock_deadline(60000), &status), 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
	child_done(&c);
}

/* It runs, in a session of its own, and there is nothing to wait for. */
static void detached_is_nobodys_child(void **state)
{
	const char *const argv[] = { "sh", "-c", "cut -d' ' -f6 /proc/$$/stat; echo $$", NULL };
	cleanup_close int in = FD_NONE, out = FD_NONE;
	struct child_fd fds[] = { { 0, 1 } };
	struct child_options opt = { .file = "/bin/sh", .argv = argv, .fds = fds, .n_fds = 1 };
	sigset_t before, after;
	char text[64] = "";
	size_t have = 0;
	ssize_t n;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	in = p[0];
	out = p[1];
	fds[0].from = out;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(child_spawn_detached(&opt), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
	errno = 0;
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	close_fd(&out);
	while ((n = read(in, text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	assert_true(have > 0);
	assert_int_equal(strtol(text, NULL, 10), strtol(strchr(text, '\n'), NULL, 10));
}

static void detached_that_cannot_start_says_so(void **state)
{
	const char *const argv[] = { "x", NULL };
	const struct child_options opt = { .file = "/nonexistent/program", .argv = argv };

	(void)state;
	assert_int_equal(child_spawn_detached(&opt), -ENOENT);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void done_kills_and_reaps(void **state)
{
	struct child c = CHILD_INIT;
	pid_t pid;

	(void)state;
	assert_int_equal(spawn_shell(&c, "trap '' TERM INT HUP; exec sleep 100"), 0);
	pid = c.pid;
	errno = EXDEV;
	child_done(&c);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(c.pid, -1);
	assert_int_equal(c.pidfd, -1);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	child_done(&c);
}

static void what_cannot_start_says_so(void **state)
{
	static const char *const argv[] = { "x", NULL };
	struct child_options opt = { .file = "/nonexistent/program", .argv = argv };
	struct child c = CHILD_INIT;

	(void)state;
	assert_int_equal(start(&c, &opt), -ENOENT);
	assert_int_equal(c.pid, -1);
	opt.file = "/dev/null";
	assert_int_equal(start(&c, &opt), -EACCES);
	opt.file = "/";
	assert_int_equal(start(&c, &opt), -EACCES);
	child_done(&c);
}

static void forked_is_as_spawned(void **state)
{
	start = fork_and_load;
	only_what_is_named_gets_through(state);
	descriptors_move_in_any_pattern(state);
	bad_descriptors_are_refused(state);
	start = child_spawn;
}

/* As one that holds signals is spawned, so is a copy. */
static void signals_can_be_held(void **state)
{
	static const char *const envp[] = { "TEST_CHILD=there", NULL };
	int (*const ways[])(struct child *, const struct child_options *) = { child_spawn,
		                                                              fork_and_load };
	cleanup_free char *want = xasprintf("%d %d %d %d %d %d there", SIGHUP, SIGINT, SIGQUIT,
	                                    SIGUSR1, SIGUSR2, SIGTERM);
	struct child_fd fds[1];

	(void)state;
	hold = true;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		cleanup_strbuf struct strbuf said = STRBUF_INIT;

		start = ways[i];
		assert_int_equal(run_self("mask", envp, fds, 1, &said), 0);
		assert_string_equal(strbuf_str(&said), want);
	}
	hold = false;
	start = child_spawn;
}

static void on_usr1(int sig)
{
	(void)sig;
}

/* Handlers and open descriptors are the first one's. */
static int look_around(void *ctx)
{
	const int *fd = ctx;
	struct sigaction act;

	if (sigaction(SIGUSR1, NULL, &act) < 0 || act.sa_handler != SIG_DFL)
		return 1;
	return fcntl(*fd, F_GETFD) < 0 && errno == EBADF ? 3 : 2;
}

static void a_copy_begins_as_a_program_does(void **state)
{
	struct sigaction act = { .sa_handler = on_usr1 }, before;
	cleanup_close int fd = dup(STDERR_FILENO);
	const struct child_copy copy = { .inside = look_around, .ctx = &fd };
	struct child c = CHILD_INIT;
	int word_fd = FD_NONE, status, r;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
	r = child_fork(&c, &copy, &word_fd);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	if (r == -ENOSYS)
		return;
	assert_int_equal(r, 0);
	assert_true(word_fd >= 0);
	assert_int_equal(fcntl(word_fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(child_began(&c, &word_fd), 0);
	assert_int_equal(word_fd, FD_NONE);
	assert_int_equal(child_wait(&c, clock_deadline(10000), &status), 0);
	assert_int_equal(WEXITSTATUS(status), 3);
}

/* Descriptors other threads open and close meanwhile, without close-on-exec, never get through. */
static int open_and_close(void)
{
	int fd = dup(STDERR_FILENO);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void *disturb(void *arg)
{
	atomic_bool *stop = arg;

	while (!atomic_load(stop))
		if (open_and_close() < 0)
			break;
	return NULL;
}

static void threads_do_not_leak_descriptors(void **state)
{
	atomic_bool stop = false;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, disturb, &stop), 0);
	for (int i = 0; i < 30; i++) {
		cleanup_strbuf struct strbuf out = STRBUF_INIT;
		struct child_fd fds[] = { { 60, 7 }, { 0, 0 } };

		assert_int_equal(run_self("fds", NULL, fds, 2, &out), 0);
		assert_string_equal(strbuf_str(&out), "0 1 2 7:a ");
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void own_dir(void **state)
{
	cleanup_free char *dir = child_own_dir();

	(void)state;
	assert_non_null(dir);
	assert_memory_equal(self, dir, strlen(dir));
	assert_int_equal(self[strlen(dir)], '/');
	assert_null(strchr(self + strlen(dir) + 1, '/'));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_named_gets_through),
		cmocka_unit_test(descriptors_move_in_any_pattern),
		cmocka_unit_test(bad_descriptors_are_refused),
		cmocka_unit_test(environment_and_signal_mask),
		cmocka_unit_test(wait_status_and_time_out),
		cmocka_unit_test(detached_is_nobodys_child),
		cmocka_unit_test(detached_that_cannot_start_says_so),
		cmocka_unit_test(done_kills_and_reaps),
		cmocka_unit_test(what_cannot_start_says_so),
		cmocka_unit_test(forked_is_as_spawned),
		cmocka_unit_test(signals_can_be_held),
		cmocka_unit_test(a_copy_begins_as_a_program_does),
		cmocka_unit_test(threads_do_not_leak_descriptors),
		cmocka_unit_test(own_dir),
	};

	if (argc > 1)
		return strcmp(argv[1], "fds") == 0 ? say_fds() : say_mask();
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	return cmocka_run_group_tests(tests, files_in, files_out);
}
