/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program, or a copy of this one. posix_spawn, because fork in a process with threads
 * leaves a child in which almost nothing may be called. All moving and closing of descriptors is done by file actions, in
 * the child: the parent's table is never touched, so no other thread can see it half done.
 */
#include "util/child.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FD_FIRST     3 /* below: standard input, output, error */
#define DETACH_STACK (64u << 10)

static bool is_target(const struct child_options *opt, int fd)
{
	for (unsigned i = 0; i < opt->n_fds; i++)
		if (opt->fds[i].to == fd)
			return true;
	return false;
}

static bool is_source(const struct child_options *opt, int fd)
{
	for (unsigned i = 0; i < opt->n_fds; i++)
		if (opt->fds[i].from == fd)
			return true;
	return false;
}

/* The next number from FD on that is nobody's source or target. What the parent has there does
 * not matter: it would be closed in the child anyway. */
static int next_stage(const struct child_options *opt, int fd)
{
	while (is_source(opt, fd) || is_target(opt, fd))
		fd++;
	return fd;
}

static int check_fds(const struct child_options *opt)
{
	for (unsigned i = 0; i < opt->n_fds; i++) {
		if (opt->fds[i].from < 0 || opt->fds[i].to < 0)
			return -EBADF;
		for (unsigned k = 0; k < i; k++)
			if (opt->fds[k].to == opt->fds[i].to)
				return -EINVAL;
	}
	return 0;
}

/* Every descriptor goes to its number by way of a staging number: so targets may be other
 * entries' sources, in any order and in cycles, and one that keeps its number loses its
 * close-on-exec flag too. */
static int add_moves(posix_spawn_file_actions_t *acts, const struct child_options *opt)
{
	int r, stage;

	stage = FD_FIRST;
	for (unsigned i = 0; i < opt->n_fds; i++, stage++) {
		stage = next_stage(opt, stage);
		r = posix_spawn_file_actions_adddup2(acts, opt->fds[i].from, stage);
		if (r != 0)
			return -r;
	}
	stage = FD_FIRST;
	for (unsigned i = 0; i < opt->n_fds; i++, stage++) {
		stage = next_stage(opt, stage);
		r = posix_spawn_file_actions_adddup2(acts, stage, opt->fds[i].to);
		if (r != 0)
			return -r;
	}
	return 0;
}

static int add_closes(posix_spawn_file_actions_t *acts, const struct child_options *opt)
{
	int end = FD_FIRST; /* one past the last target */
	int r;

	for (unsigned i = 0; i < opt->n_fds; i++)
		if (opt->fds[i].to >= end)
			end = opt->fds[i].to + 1;
	for (int fd = FD_FIRST; fd < end; fd++) {
		if (is_target(opt, fd))
			continue;
		r = posix_spawn_file_actions_addclose(acts, fd);
		if (r != 0)
			return -r;
	}
	/* What the caller left open is not for a command: from a directory it could walk about. */
	return sabotage("leak") ? 0 : -posix_spawn_file_actions_addclosefrom_np(acts, end);
}

/* posix_spawn takes char *const *, though it changes nothing. */
static char *const *as_argv(const char *const *v)
{
	union {
		const char *const *in;
		char *const *out;
	} u = { .in = v };

	return u.out;
}

/* Who gets one before it knows how to take it would be ended by it. */
static void hold_signals(sigset_t *ret)
{
	static const int held[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };

	sigemptyset(ret);
	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		sigaddset(ret, held[i]);
}

/* Threads block signals and so may the caller; a program starts with none blocked but what it holds. */
static int spawn_with(pid_t *ret_pid, const struct child_options *opt, short flags,
                      const posix_spawn_file_actions_t *acts)
{
	char *const *envp = opt->envp ? as_argv(opt->envp) : environ;
	posix_spawnattr_t attr;
	sigset_t blocked, all;
	int r;

	r = posix_spawnattr_init(&attr);
	if (r != 0)
		return -r;
	sigemptyset(&blocked);
	if (opt->holds_signals)
		hold_signals(&blocked);
	r = posix_spawnattr_setsigmask(&attr, &blocked);
	sigfillset(&all);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(&attr, &all);
	if (r == 0)
		r = posix_spawnattr_setflags(&attr, (short)(POSIX_SPAWN_SETSIGMASK | flags));
	if (r == 0)
		r = posix_spawn(ret_pid, opt->file, acts, &attr, as_argv(opt->argv), envp);
	(void)posix_spawnattr_destroy(&attr);
	return -r;
}

/* Waits without limit and forgets. */
static int reap(struct child *c, int *ret_wait_status)
{
	int status;
	pid_t pid;

	do {
		pid = waitpid(c->pid, &status, 0);
	} while (pid < 0 && errno == EINTR);
	if (pid < 0)
		return -errno;
	c->pid = -1;
	close_fd(&c->pidfd);
	if (ret_wait_status)
		*ret_wait_status = status;
	return 0;
}

/* The pid is ours until reaped, so it cannot name another process meanwhile. */
static int follow(struct child *c)
{
	int r;

	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->pidfd >= 0)
		return 0;
	r = -errno;
	c->pidfd = FD_NONE;
	(void)kill(c->pid, SIGKILL);
	(void)reap(c, NULL);
	c->pid = -1;
	return r;
}

static int prepare_actions(posix_spawn_file_actions_t *acts, const struct child_options *opt)
{
	int r = check_fds(opt);

	if (r < 0)
		return r;
	r = posix_spawn_file_actions_init(acts);
	if (r != 0)
		return -r;
	r = opt->cwd ? -posix_spawn_file_actions_addchdir_np(acts, opt->cwd) : 0;
	if (r == 0)
		r = add_moves(acts, opt);
	if (r == 0)
		r = add_closes(acts, opt);
	if (r < 0)
		(void)posix_spawn_file_actions_destroy(acts);
	return r;
}

int child_spawn(struct child *c, const struct child_options *opt)
{
	posix_spawn_file_actions_t acts;
	pid_t pid = -1;
	int r = prepare_actions(&acts, opt);

	if (r < 0)
		return r;
	r = spawn_with(&pid, opt,
	               opt->leads_session ? POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF
	               : opt->leads_group ? POSIX_SPAWN_SETPGROUP
	                                  : 0,
	               &acts);
	(void)posix_spawn_file_actions_destroy(&acts);
	if (r < 0)
		return r;
	*c = (struct child){ .pid = pid, .pidfd = FD_NONE };
	return follow(c);
}

/* ---- a copy ---- */

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

/* Without handlers of signals: they are for what the copy will not do. -ENOSYS also where a container
 * forbids it. */
static pid_t fork_plain(int *ret_pidfd)
{
#ifdef SYS_clone3
	const uint64_t args[] = {
		CLONE_CLEAR_SIGHAND | CLONE_PIDFD, (uintptr_t)ret_pidfd, 0, 0, SIGCHLD, 0, 0, 0
	};

	return (pid_t)syscall(SYS_clone3, args, sizeof(args));
#else
	(void)ret_pidfd;
	errno = ENOSYS;
	return -1;
#endif
}

/* As add_moves() and add_closes(). WORD_FD goes out of the way first, and is closed in the end. */
static int move_descriptors(const struct child_options *opt, int *word_fd)
{
	int stage = FD_FIRST, end = FD_FIRST;

	for (unsigned i = 0; i < opt->n_fds; i++) {
		stage = next_stage(opt, stage) + 1;
		end = opt->fds[i].to >= end ? opt->fds[i].to + 1 : end;
	}
	*word_fd = fcntl(*word_fd, F_DUPFD_CLOEXEC, stage > end ? stage : end);
	if (*word_fd < 0)
		return -errno;
	stage = FD_FIRST;
	for (unsigned i = 0; i < opt->n_fds; i++, stage++) {
		stage = next_stage(opt, stage);
		if (dup2(opt->fds[i].from, stage) < 0)
			return -errno;
	}
	stage = FD_FIRST;
	for (unsigned i = 0; i < opt->n_fds; i++, stage++) {
		stage = next_stage(opt, stage);
		if (dup2(stage, opt->fds[i].to) < 0)
			return -errno;
	}
	for (int fd = FD_FIRST; fd < end; fd++)
		if (!is_target(opt, fd))
			(void)close(fd);
	/* Where the caller had nothing there is something of ours. */
	for (int fd = 0, flags; fd < FD_FIRST; fd++)
		if ((flags = fcntl(fd, F_GETFD)) >= 0 && (flags & FD_CLOEXEC))
			(void)close(fd);
	if (sabotage("leak"))
		return close(*word_fd) < 0 ? -errno : 0;
	return close_range((unsigned)end, ~0u, 0) < 0 ? -errno : 0;
}

static _Noreturn void be_copy(const struct child_copy *copy, const struct child_options *fds,
                              int word_fd)
{
	int first_fd = word_fd, r;
	sigset_t held;

	hold_signals(&held);
	(void)sigprocmask(SIG_SETMASK, &held, NULL);
	r = move_descriptors(fds, &word_fd);
	if (r == 0)
		(void)syscall(SYS_exit_group, copy->inside(copy->ctx));
	(void)write(word_fd < 0 ? first_fd : word_fd, &r, sizeof(r));
	/* Whatever the process has for its end is not for its copy. */
	for (;;)
		(void)kill(getpid(), SIGKILL);
}

int child_fork(struct child *c, const struct child_copy *copy, int *ret_word_fd)
{
	const struct child_options fds = { .fds = copy->fds, .n_fds = copy->n_fds };
	int word[2], pidfd = FD_NONE, r = check_fds(&fds);
	sigset_t all, before;
	pid_t pid;

	if (r < 0)
		return r;
	if (pipe2(word, O_CLOEXEC) < 0)
		return -errno;
	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = fork_plain(&pidfd);
	if (pid == 0)
		be_copy(copy, &fds, word[1]);
	r = pid < 0 ? -errno : 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	close_fd(&word[1]);
	if (r == 0) {
		*c = (struct child){ .pid = pid, .pidfd = pidfd };
		*ret_word_fd = take_fd(&word[0]);
	}
	close_fd(&word[0]);
	return r;
}

int child_began(struct child *c, int *word_fd)
{
	ssize_t n;
	int r = 0;

	do {
		n = read(*word_fd, &r, sizeof(r));
	} while (n < 0 && errno == EINTR);
	close_fd(word_fd);
	if (n != (ssize_t)sizeof(r))
		return 0;
	(void)reap(c, NULL);
	return r;
}

/* ---- detached ---- */

struct detach {
	const struct child_options *opt;
	const posix_spawn_file_actions_t *acts;
	int result;
};

static int spawn_and_leave(void *ctx)
{
	struct detach *d = ctx;
	pid_t pid;

	d->result = spawn_with(&pid, d->opt, POSIX_SPAWN_SETSID, d->acts);
	return 0;
}

#ifdef __SANITIZE_THREAD__
/* What it puts in front of clone() takes the child for one with memory of its own, and forgets what
 * this thread holds; from then on it sees races that are none. */
extern int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#endif

/* By way of a process that shares our memory, as a vfork's child does, while we stand still: it
 * starts the program and is gone when we go on, so that the program is nobody's child. Signals wait
 * meanwhile, for a handler would run in memory that is ours. */
static int detach(struct detach *d)
{
	cleanup_free char *stack = malloc(DETACH_STACK);
	sigset_t all, before;
	pid_t pid;
	int r = 0;

	if (!stack)
		return -ENOMEM;
	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone(spawn_and_leave, stack + DETACH_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, d);
	if (pid < 0)
		r = -errno;
	while (pid >= 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r < 0 ? r : d->result;
}

int child_spawn_detached(const struct child_options *opt)
{
	posix_spawn_file_actions_t acts;
	struct detach d = { .opt = opt, .acts = &acts };
	int r = prepare_actions(&acts, opt);

	if (r < 0)
		return r;
	r = detach(&d);
	(void)posix_spawn_file_actions_destroy(&acts);
	return r;
}

int child_wait(struct child *c, int64_t deadline, int *ret_wait_status)
{
	struct pollfd pfd = { .fd = c->pidfd, .events = POLLIN };

	if (c->pid < 0)
		return -ECHILD;
	for (;;) {
		int left = clock_left_ms(deadline);
		int n = poll(&pfd, 1, left);

		if (n > 0)
			return reap(c, ret_wait_status);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (left == 0)
			return -ETIMEDOUT;
	}
}

int child_kill(struct child *c, int sig)
{
	if (c->pid < 0)
		return -ESRCH;
	return syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int child_kill_group(struct child *c, int sig)
{
	if (c->pid < 0)
		return -ESRCH;
	return kill(-c->pid, sig) < 0 ? -errno : 0;
}

void child_done(struct child *c)
{
	int saved = errno;

	if (c->pid >= 0) {
		(void)child_kill(c, SIGKILL);
		(void)reap(c, NULL);
	}
	close_fd(&c->pidfd);
	*c = CHILD_INIT;
	errno = saved;
}

/* The file that holds this code: the library, or "" for the program. */
static int find_own_file(struct dl_phdr_info *info, size_t size, void *user)
{
	const uintptr_t here = (uintptr_t)&child_spawn;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type != PT_LOAD ||
		    here - (info->dlpi_addr + part->p_vaddr) >= part->p_memsz)
			continue;
		*(char **)user = xstrdup(info->dlpi_name);
		return 1;
	}
	return 0;
}

/* The kernel's name has no links in it. */
static char *program_file(void)
{
	char file[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", file, sizeof(file));

	return len > 0 && len < (ssize_t)sizeof(file) && file[0] == '/'
	               ? xstrndup(file, (size_t)len)
	               : NULL;
}

char *child_own_dir(void)
{
	cleanup_free char *name = NULL, *file = NULL;
	char *slash;

	if (dl_iterate_phdr(find_own_file, &name) == 0)
		return NULL;
	/* A library that was found by a relative name was found from another directory, perhaps. */
	if (*name && *name != '/')
		return NULL;
	file = *name ? realpath(name, NULL) : program_file();
	if (!file)
		return NULL;
	slash = strrchr(file, '/');
	slash[slash == file] = '\0';
	return take_ptr(file);
}
