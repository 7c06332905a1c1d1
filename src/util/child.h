/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a program from a process that may have threads, and following it by pidfd. */
#ifndef UTIL_CHILD_H
#define UTIL_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int pidfd;
};
#define CHILD_INIT ((struct child){ .pid = -1, .pidfd = -1 })

struct child_fd {
	int from; /* descriptor in the parent */
	int to;   /* number in the child, not close-on-exec there */
};

struct child_options {
	const char *file;        /* absolute path of the program */
	const char *const *argv; /* NULL-terminated */
	const char *const *envp; /* NULL: the caller's environment */
	const struct child_fd *fds;
	unsigned n_fds;     /* besides 0, 1, 2, which pass through unless named here */
	const char *cwd;    /* NULL: the caller's */
	bool leads_group;   /* a process group of its own, for child_kill_group() */
	bool leads_session; /* the same, no terminal, and no signal is ignored */
	bool holds_signals; /* those that people send to end it are blocked until it unblocks them itself */
};

/* posix_spawn. 0 or -errno. Every descriptor but 0, 1, 2 and FDS is closed in the child, where no
 * signal is blocked. FDS may overlap in any way, but not have one target twice (-EINVAL). */
int child_spawn(struct child *c, const struct child_options *opt);
/* For a process with one thread, better a small one: a copy of it, which does INSIDE and exits with what
 * that returns. Descriptors and signals as of a program that holds signals: what is close-on-exec is
 * closed, what has a handler has none. -ENOSYS where it cannot be done. Whether it could begin is heard from
 * child_began(), which is to be called: 0, or -errno and there is no child any more. */
struct child_copy {
	int (*inside)(void *ctx);
	void *ctx;
	const struct child_fd *fds;
	unsigned n_fds;
};
int child_fork(struct child *c, const struct child_copy *copy, int *ret_word_fd);
int child_began(struct child *c, int *word_fd);
/* child_spawn() for a program that nobody will wait for: it is no child of this process, leads a session
 * of its own, and is running when this returns. */
int child_spawn_detached(const struct child_options *opt);
/* Waits until it ended or DEADLINE (clock.h): wait status, or -ETIMEDOUT. */
int child_wait(struct child *c, int64_t deadline, int *ret_wait_status);
int child_kill(struct child *c, int sig);
/* And all that it started and left in its group. Only until it was waited for. */
int child_kill_group(struct child *c, int sig);
/* Kills and reaps when still running. */
void child_done(struct child *c);

/* The directory of the file that holds this code, the program or libatoll.so, without links in it;
 * caller frees. NULL when unknown. */
char *child_own_dir(void);

#endif
