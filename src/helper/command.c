/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between fork and execve. The child says through a socket why it could not become the command; the
 * socket closing without that word means that it did. The listener of its filter (helper/calls.h) comes
 * the same way, before.
 */
#include "helper/command.h"

#include "fs/atomic.h"
#include "helper/fence.h"
#include "helper/idmap.h"
#include "helper/join.h"
#include "helper/terminal.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Both close on exec. */
struct channel {
	int read_fd, write_fd;
};

static int channel_open(struct channel *ch)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	*ch = (struct channel){ ends[0], ends[1] };
	return 0;
}

/* As a socket, whose messages stay apart. */
static int channel_open_said(struct channel *ch)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	*ch = (struct channel){ ends[0], ends[1] };
	return 0;
}

static void channel_done(struct channel *ch)
{
	close_fd(&ch->read_fd);
	close_fd(&ch->write_fd);
}

#define cleanup_channel __attribute__((__cleanup__(channel_done)))
#define CHANNEL_INIT    ((struct channel){ FD_NONE, FD_NONE })

pid_t command_fork(unsigned long flags)
{
#if defined(__s390__)
	return (pid_t)syscall(SYS_clone, NULL, flags | SIGCHLD, NULL, NULL, NULL);
#else
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
#endif
}

/* ---- the child, before it becomes the command ---- */

static int set_environment(const struct request *q)
{
	for (unsigned i = 0; i < request_count(q, REQUEST_ENV); i++) {
		const char *pair = request_get(q, REQUEST_ENV, i);
		const char *value = strchr(pair, '=');
		cleanup_free char *name = value ? xstrndup(pair, (size_t)(value - pair)) : NULL;

		if ((name ? setenv(name, value + 1, 1) : unsetenv(pair)) < 0)
			return -errno;
	}
	return 0;
}

static char **command_argv(const struct request *q)
{
	unsigned n = request_count(q, REQUEST_ARG);
	char **argv = xcalloc(n + 1u, sizeof(*argv));

	for (unsigned i = 0; i < n; i++)
		argv[i] = xstrdup(request_get(q, REQUEST_ARG, i));
	return argv;
}

/* A directory in PATH that may not be searched makes execvp say "permission denied" of a command
 * that is nowhere. As a shell has it: what is not seen anywhere is not found. */
static int exec_error(const char *name, int error)
{
	const char *path = getenv("PATH");

	if (error != EACCES || strchr(name, '/') || !path)
		return -error;
	while (*path) {
		size_t len = strcspn(path, ":");
		cleanup_free char *file =
			xasprintf("%.*s%s%s", (int)len, path, len ? "/" : "./", name);

		if (access(file, F_OK) == 0)
			return -error;
		path += len + (path[len] == ':');
	}
	return -ENOENT;
}

/* All that needs no tree. 0 or -errno and F. */
static int get_ready(const struct run *run, pid_t parent, struct failure *f)
{
	int r;

	/* Should our parent be killed, the command goes with it; it may be gone already. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return failure_set(f, REPLY_REQUEST, -errno, "tie the command to atoll-helper");
	if (getppid() != (run->joined ? 0 : parent))
		_exit(EXIT_FAILURE);
	r = join_enter_user(run);
	if (r < 0)
		return failure_set(f, REPLY_JOIN, r, "join the command's user namespace");
	r = set_environment(run->request);
	if (r < 0)
		return failure_set(f, REPLY_REQUEST, r, "set the environment");
	for (int i = 0; i < 2; i++)
		if (request_has("oe"[i]) && dup2(OUTPUT_FD + i, STDOUT_FILENO + i) < 0)
			return failure_set(f, REPLY_REQUEST, -errno, "keep the command's output");
	return 0;
}

/* The command may want a number that the helper itself uses; FAILURE_FD is needed until execve. */
static int give_jobserver(const struct run *run, int *failure_fd)
{
	int to[2], from[2], free_fd = JOBSERVER_FD + 2;
	int r = 0;

	if (!request_has('j') || !request_has('w'))
		return 0;
	for (unsigned i = 0; i < 2; i++) {
		const char *number = request_get(run->request, REQUEST_JOBSERVER, i);

		to[i] = number ? atoi(number) : -1;
		if (to[i] <= STDERR_FILENO)
			return -EPROTO;
		free_fd = to[i] >= free_fd ? to[i] + 1 : free_fd;
	}
	*failure_fd = fcntl(*failure_fd, F_DUPFD_CLOEXEC, free_fd);
	for (int i = 0; i < 2; i++)
		from[i] = fcntl(JOBSERVER_FD + i, F_DUPFD_CLOEXEC, free_fd);
	for (int i = 0; i < 2 && r >= 0; i++)
		r = dup2(from[i], to[i]);
	return r < 0 || *failure_fd < 0 ? -errno : 0;
}

static void become_command(struct run *run, int said_fd, struct failure *f)
{
	const char *cwd = request_get(run->request, REQUEST_CWD, 0);
	char **argv;
	int r;

	if (cwd && chdir(cwd) < 0) {
		(void)failure_set(f, REPLY_CHDIR, -errno, "%s", "");
		return;
	}
	r = terminal_enter(run);
	if (r < 0) {
		(void)failure_set(f, REPLY_REQUEST, r, "give the command its terminal");
		return;
	}
	r = limits_enter(&run->limits);
	if (r < 0) {
		(void)failure_set(f, REPLY_NAMESPACE, r, "hold the command to its limits");
		return;
	}
	if (run->fenced && fence_self(run, f) < 0)
		return;
	r = run->listener_fd == FD_NONE ? 0 : calls_give(said_fd, run->listener_fd);
	close_fd(&run->listener_fd);
	if (r < 0) {
		(void)failure_set(f, REPLY_NAMESPACE, r, "hand over the command's filter");
		return;
	}
	argv = command_argv(run->request);
	run_give_signals_back(run);
	(void)execvp(argv[0], argv);
	(void)failure_set(f, REPLY_EXEC, exec_error(argv[0], errno), "%s", "");
}

static _Noreturn void child(struct run *run, pid_t parent, int go_fd, int failure_fd)
{
	struct failure f = FAILURE_NONE;
	char go;
	int r;

	if (read(go_fd, &go, 1) != 1)
		_exit(EXIT_FAILURE);
	r = get_ready(run, parent, &f);
	if (r == 0 && (r = give_jobserver(run, &failure_fd)) < 0)
		(void)failure_set(&f, REPLY_REQUEST, r, "hand on make's jobserver");
	if (r == 0)
		become_command(run, failure_fd, &f);
	(void)fs_write_all(failure_fd, &f, sizeof(f));
	_exit(EXIT_FAILURE);
}

/* The one that was there before the request. Its word comes through the socket, twice: first the
 * request itself, then that the tree is built. */
static _Noreturn void child_ahead(struct run *run, pid_t parent, int word_fd, int failure_fd)
{
	struct failure f = FAILURE_NONE;
	char go;
	int r;

	fence_self_ahead(run);
	r = request_take(word_fd);
	if (r == 0)
		_exit(EXIT_FAILURE);
	if (r > 0)
		r = run_read_request(run);
	if (r < 0)
		(void)failure_set(&f, REPLY_REQUEST, r, "receive the request");
	run->strict = r == 0 && request_get(run->request, REQUEST_STRICT, 0);
	if (r == 0)
		r = get_ready(run, parent, &f);
	if (read(word_fd, &go, 1) != 1)
		_exit(EXIT_FAILURE);
	if (r == 0 && (r = give_jobserver(run, &failure_fd)) < 0)
		(void)failure_set(&f, REPLY_REQUEST, r, "hand on make's jobserver");
	if (r == 0)
		become_command(run, failure_fd, &f);
	(void)fs_write_all(failure_fd, &f, sizeof(f));
	_exit(EXIT_FAILURE);
}

/* ---- the parent ---- */

/* Nothing to read means that the command runs: its execve closed the other end. */
static int read_failure(struct run *run, int fd, struct failure *f)
{
	struct failure said;
	ssize_t n;

	do {
		n = calls_take(&run->calls, fd, &said, sizeof(said));
	} while (n == CALLS_TAKEN);
	if (n != (ssize_t)sizeof(said))
		return 0;
	*f = said;
	return -said.error;
}

/* The child waits: for its ids, which mean nothing until they are mapped, and for what was sent to it while
 * it was not there. If it cannot have them it goes, and -errno. */
static int fork_child(struct run *run, bool user_ns, int failure_fd)
{
	cleanup_channel struct channel go = CHANNEL_INIT;
	pid_t self = getpid();
	int r = channel_open(&go);

	if (r < 0)
		return r;
	run->pid = command_fork(user_ns ? CLONE_NEWUSER : 0);
	if (run->pid < 0)
		return -errno;
	if (run->pid == 0) {
		close_fd(&go.write_fd);
		child(run, self, go.read_fd, failure_fd);
	}
	r = user_ns ? idmap_copy(run->proc_fd, run->pid) : 0;
	if (r == 0) {
		run_catch_up(run);
		r = fs_write_all(go.write_fd, "", 1);
	}
	if (r == 0)
		return 0;
	(void)kill(run->pid, SIGKILL);
	(void)waitpid(run->pid, NULL, 0);
	return r;
}

static void drop_ahead(struct run *run)
{
	if (run->ahead.pid > 0) {
		(void)kill(run->ahead.pid, SIGKILL);
		(void)waitpid(run->ahead.pid, NULL, 0);
	}
	run->ahead.pid = -1;
	close_fd(&run->ahead.word_fd);
	close_fd(&run->ahead.said_fd);
}

void command_ahead(struct run *run, bool user_ns)
{
	cleanup_channel struct channel said = CHANNEL_INIT, word = CHANNEL_INIT;
	pid_t self = getpid();
	int ends[2];

	if (channel_open_said(&said) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	word = (struct channel){ ends[0], ends[1] };
	run->ahead.pid = command_fork(user_ns ? CLONE_NEWUSER : 0);
	if (run->ahead.pid == 0) {
		close_fd(&word.write_fd);
		child_ahead(run, self, word.read_fd, said.write_fd);
	}
	run->ahead.word_fd = take_fd(&word.write_fd);
	run->ahead.said_fd = take_fd(&said.read_fd);
	if (run->ahead.pid < 0 || (user_ns && idmap_copy(run->proc_fd, run->ahead.pid) < 0))
		drop_ahead(run);
}

/* A network and a session are had by those who are forked afterwards. */
void command_inform(struct run *run)
{
	if (run->ahead.pid < 0)
		return;
	if (request_get(run->request, REQUEST_NET, 0) ||
	    request_get(run->request, REQUEST_TERMINAL, 0) ||
	    request_hand_on(run->ahead.word_fd) < 0)
		drop_ahead(run);
}

/* 1 when there is nobody to be started. */
static int start_ahead(struct run *run, struct failure *f)
{
	int r;

	if (run->ahead.pid < 0)
		return 1;
	run->pid = run->ahead.pid;
	run_catch_up(run);
	if (fs_write_all(run->ahead.word_fd, "", 1) < 0) {
		drop_ahead(run);
		return 1;
	}
	run->ahead.pid = -1;
	r = read_failure(run, run->ahead.said_fd, f);
	drop_ahead(run);
	return r;
}

int command_start(struct run *run, bool user_ns, struct failure *f)
{
	cleanup_channel struct channel said = CHANNEL_INIT;
	int r = start_ahead(run, f);

	if (r <= 0)
		return r;
	r = channel_open_said(&said);
	if (r < 0)
		return failure_set(f, REPLY_REQUEST, r, "open a socket");
	if (user_ns)
		run->no_user_ns = fork_child(run, true, said.write_fd) < 0;
	if (run->no_user_ns && run->strict)
		return failure_why(f, REPLY_NAMESPACE, -EPERM, "be strict",
		                   "this host does not give root's command a user namespace");
	r = user_ns && !run->no_user_ns ? 0 : fork_child(run, false, said.write_fd);
	if (r < 0)
		return failure_set(f, REPLY_REQUEST, r, "start a process for the command");
	close_fd(&said.write_fd);
	return read_failure(run, said.read_fd, f);
}
