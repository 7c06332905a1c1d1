/* SPDX-License-Identifier: Apache-2.0 */
#include "util/run.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "util/child.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define ERR_MAX   (8u << 10)
#define CHUNK     (64u << 10)
#define KILL_WAIT 5000 /* ms until what was killed is gone */
#define N_PIPES   3
#define READ_END  0
#define WRITE_END 1

struct running {
	const struct run *how;
	struct child child;
	struct strbuf *out, *err;
	int in, out_pipe, err_pipe; /* our ends; FD_NONE when done with */
	size_t written;
};

static void running_done(struct running *r)
{
	close_fd(&r->in);
	close_fd(&r->out_pipe);
	close_fd(&r->err_pipe);
	if (r->child.pid >= 0)
		(void)child_kill_group(&r->child, SIGKILL);
	child_done(&r->child);
}
#define cleanup_running __attribute__((__cleanup__(running_done)))

static int start(struct running *r, int pipes[N_PIPES][2])
{
	const struct run *how = r->how;
	struct child_fd fds[4] = { { how->in_fd != FD_NONE ? how->in_fd : pipes[0][READ_END], 0 },
		                   { how->out_fd != FD_NONE ? how->out_fd : pipes[1][WRITE_END],
		                     1 },
		                   { pipes[2][WRITE_END], 2 },
		                   { how->held_fd, 3 } };
	const struct child_options opt = { .file = how->file,
		                           .argv = how->argv,
		                           .envp = how->envp,
		                           .fds = fds,
		                           .n_fds = how->held_fd == FD_NONE ? 3 : 4,
		                           .cwd = how->cwd,
		                           .leads_group = true };
	int rc = child_spawn(&r->child, &opt);

	if (rc < 0)
		return rc;
	r->in = take_fd(&pipes[0][WRITE_END]);
	r->out_pipe = take_fd(&pipes[1][READ_END]);
	r->err_pipe = take_fd(&pipes[2][READ_END]);
	return 0;
}

static int open_and_start(struct running *r)
{
	int pipes[N_PIPES][2] = { { FD_NONE, FD_NONE },
		                  { FD_NONE, FD_NONE },
		                  { FD_NONE, FD_NONE } };
	int rc = 0;

	for (size_t i = 0; i < N_PIPES && rc == 0; i++)
		rc = pipe2(pipes[i], O_CLOEXEC) < 0 ? -errno : 0;
	if (rc == 0)
		rc = start(r, pipes);
	for (size_t i = 0; i < N_PIPES; i++) {
		close_fd(&pipes[i][READ_END]);
		close_fd(&pipes[i][WRITE_END]);
	}
	/* Only ours: the other ends must block, or the program would have to cope. */
	if (rc == 0 &&
	    (fcntl(r->in, F_SETFL, O_NONBLOCK) < 0 || fcntl(r->out_pipe, F_SETFL, O_NONBLOCK) < 0 ||
	     fcntl(r->err_pipe, F_SETFL, O_NONBLOCK) < 0))
		rc = -errno;
	return rc;
}

/* SIGPIPE must not reach a program that uses the library: the signal is held back in this thread, and
 * taken when it was ours. */
static ssize_t write_quietly(int fd, const void *data, size_t len)
{
	const struct timespec now = { 0 };
	sigset_t pipe_set, before, pending;
	ssize_t n;
	int saved;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	(void)sigpending(&pending);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
	n = write(fd, data, len);
	saved = errno;
	if (n < 0 && saved == EPIPE && !sigismember(&pending, SIGPIPE))
		(void)sigtimedwait(&pipe_set, NULL, &now);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return n;
}

static int feed(struct running *r)
{
	ssize_t n;

	if (r->written == r->how->in_len) {
		close_fd(&r->in);
		return 0;
	}
	n = write_quietly(r->in, (const char *)r->how->in + r->written,
	                  r->how->in_len - r->written);
	if (n >= 0)
		r->written += (size_t)n;
	else if (errno == EPIPE)
		close_fd(&r->in); /* it wanted no more; its status tells */
	else if (errno != EAGAIN && errno != EINTR)
		return -errno;
	return 0;
}

static int drain(int *fd, struct strbuf *to, size_t max, bool keep_last)
{
	char buf[CHUNK];
	ssize_t n = read(*fd, buf, sizeof(buf));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {
		close_fd(fd);
		return 0;
	}
	if (to->len + (size_t)n > max) {
		if (!keep_last)
			return -ATOLL_E_TOO_BIG;
		strbuf_truncate(to, 0);
		if ((size_t)n > max)
			n = (ssize_t)max;
	}
	strbuf_add(to, buf, (size_t)n);
	return 0;
}

static int attend(struct running *r, const struct pollfd *p)
{
	int rc = p[0].revents ? feed(r) : 0;

	if (rc == 0 && p[1].revents)
		rc = drain(&r->out_pipe, r->out, r->how->max, false);
	if (rc == 0 && p[2].revents)
		rc = drain(&r->err_pipe, r->err, ERR_MAX, true);
	return rc;
}

/* Until it has ended and its pipes are empty. */
static int follow(struct running *r)
{
	bool ended = false;

	for (;;) {
		struct pollfd p[] = { { .fd = r->in, .events = POLLOUT },
			              { .fd = r->out_pipe, .events = POLLIN },
			              { .fd = r->err_pipe, .events = POLLIN },
			              { .fd = ended ? FD_NONE : r->child.pidfd,
			                .events = POLLIN } };
		int left = ended ? 0 : clock_left_ms(r->how->deadline);
		int n = poll(p, 4, left), rc;

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && ended)
			return 0;
		if (n == 0 && left == 0)
			return -ETIMEDOUT;
		if (n <= 0)
			continue;
		rc = attend(r, p);
		if (rc < 0)
			return rc;
		if (p[3].revents)
			ended = true;
		if (ended)
			close_fd(&r->in);
	}
}

int run_program(const struct run *how, struct strbuf *out, struct strbuf *err, int *ret_wait_status)
{
	cleanup_strbuf struct strbuf dropped = STRBUF_INIT;
	cleanup_running struct running r = { .how = how,
		                             .child = CHILD_INIT,
		                             .out = out ? out : &dropped,
		                             .err = err,
		                             .in = FD_NONE,
		                             .out_pipe = FD_NONE,
		                             .err_pipe = FD_NONE };
	int rc = open_and_start(&r);

	if (rc == 0)
		rc = follow(&r);
	return rc < 0 ? rc : child_wait(&r.child, clock_deadline(KILL_WAIT), ret_wait_status);
}
