/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes, a terminal, and the thread that runs the command on them. */
#include "daemon/command.h"

#include "daemon/direct.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define PIPE_BYTES   (256 << 10)
#define OWN_OPTIONS  5 /* descriptors and the terminal */
#define DEFAULT_ROWS 24
#define DEFAULT_COLS 80
#define TTY_NAME_LEN 64

/* ---- where it runs ---- */

struct first {
	char *root;
};

static int take_first(void *user, const struct atoll_sandbox_info *info)
{
	struct first *f = user;
	struct stat st;

	if (!f->root && info->root && *info->root == '/' && stat(info->root, &st) == 0 &&
	    S_ISDIR(st.st_mode))
		f->root = xstrdup(info->root);
	return 0;
}

char *command_cwd(struct atoll_plan *p)
{
	struct first f = { NULL };

	(void)atoll_plan_sandboxes(p, take_first, &f, NULL);
	return f.root ? f.root : xstrdup("/");
}

/* ---- the thread ---- */

static void tell_waiting(void *user, const char *message)
{
	const struct command *c = user;
	size_t len = strnlen(message, COMMAND_NOTICE_MAX);

	/* Whoever does not read loses news, not more. */
	(void)(write(c->notice_to, message, len) < 0);
}

static int take_changes(void *user, const struct atoll_log_entry *e)
{
	struct command *c = user;

	if (e->ran)
		c->changes = e->changes;
	return 0;
}

static void run(struct command *c)
{
	const struct exec_request *q = c->request;
	struct atoll_exec exec = q->exec;
	static const char *const names[] = { "stdin", "stdout", "stderr", "control" };
	cleanup_free struct atoll_exec_option *v = xcalloc(q->options.n + OWN_OPTIONS, sizeof(*v));
	char numbers[4][16];
	size_t n = 0;

	for (; n < q->options.n; n++)
		v[n] = (struct atoll_exec_option){ q->option_names.v[n], q->options.v[n] };
	for (int i = 0; i < 4; i++) {
		(void)snprintf(numbers[i], sizeof(numbers[i]), "%d", c->theirs[i]);
		v[n++] = (struct atoll_exec_option){ names[i], numbers[i] };
	}
	if (c->terminal)
		v[n++] = (struct atoll_exec_option){ "terminal", "1" };
	exec.cwd = c->cwd;
	if (!c->plan) {
		c->result = direct_run(exec.argv, c->theirs, &c->status, c->res);
		return;
	}
	c->result = atoll_plan_exec_with(c->plan, &exec, v, n, &c->status, c->res);
}

static void *command_main(void *arg)
{
	struct command *c = arg;
	const uint64_t one = 1;

	atoll_set_wait_notify(c->atoll, tell_waiting, c);
	atoll_set_min_free(c->atoll, c->request->min_free);
	run(c);
	atoll_set_wait_notify(c->atoll, NULL, NULL);
	if (c->result >= 0 && c->plan)
		(void)atoll_log(c->atoll, atoll_plan_id(c->plan), 1, take_changes, c, NULL);
	/* With these what reads comes to an end, after all that was printed. */
	for (int i = 0; i < 4; i++)
		close_fd(&c->theirs[i]);
	close_fd(&c->notice_to);
	(void)(write(c->done_fd, &one, sizeof(one)) < 0);
	return NULL;
}

/* ---- descriptors ---- */

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* OURS never blocks; THEIRS is as a command expects it. */
static int make_pipe(int *read_end, int *write_end, const int *ours, int flags)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | flags) < 0)
		return -errno;
	*read_end = ends[0];
	*write_end = ends[1];
	return set_nonblocking(*ours);
}

static int make_pipes(struct command *c, const struct command_options *how)
{
	int r;

	if (how->input) {
		r = make_pipe(&c->theirs[0], &c->in_fd, &c->in_fd, 0);
	} else {
		c->theirs[0] = how->input_fd == FD_NONE ? open("/dev/null", O_RDONLY | O_CLOEXEC)
		                                        : fcntl(how->input_fd, F_DUPFD_CLOEXEC, 3);
		r = c->theirs[0] < 0 ? -errno : 0;
	}
	if (r == 0)
		r = make_pipe(&c->out_fd, &c->theirs[1], &c->out_fd, 0);
	if (r == 0) /* fewer changes between the two; not more than what is usual is no harm */
		(void)fcntl(c->out_fd, F_SETPIPE_SZ, PIPE_BYTES);
	if (r == 0)
		r = make_pipe(&c->err_fd, &c->theirs[2], &c->err_fd, 0);
	return r;
}

static int open_terminal(struct command *c)
{
	char name[TTY_NAME_LEN];

	c->out_fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (c->out_fd < 0 || grantpt(c->out_fd) < 0 || unlockpt(c->out_fd) < 0)
		return -errno;
	if (ptsname_r(c->out_fd, name, sizeof(name)) != 0)
		return -ENOTTY;
	for (int i = 0; i < 3; i++) {
		c->theirs[i] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (c->theirs[i] < 0)
			return -errno;
	}
	c->in_fd = fcntl(c->out_fd, F_DUPFD_CLOEXEC, 3);
	return c->in_fd < 0 ? -errno : set_nonblocking(c->out_fd);
}

static int open_all(struct command *c, const struct command_options *how)
{
	int r = c->terminal ? open_terminal(c) : make_pipes(c, how);

	if (r == 0)
		r = make_pipe(&c->theirs[3], &c->control_fd, &c->control_fd, 0);
	if (r == 0)
		r = make_pipe(&c->notice_fd, &c->notice_to, &c->notice_fd, O_DIRECT);
	if (r == 0)
		r = set_nonblocking(c->notice_to);
	c->done_fd = r < 0 ? FD_NONE : eventfd(0, EFD_CLOEXEC);
	return r < 0 ? r : c->done_fd < 0 ? -errno : 0;
}

/* ---- from outside ---- */

static int start_thread(struct command *c)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&c->thread, NULL, command_main, c);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	c->has_thread = r == 0;
	return -r;
}

int command_start(const struct command_options *how, struct command **ret, struct error *err)
{
	cleanup_command struct command *c = xcalloc(1, sizeof(*c));
	const struct exec_request *request = how->request;
	int r;

	*c = (struct command){ .in_fd = FD_NONE,
		               .out_fd = FD_NONE,
		               .err_fd = FD_NONE,
		               .control_fd = FD_NONE,
		               .notice_fd = FD_NONE,
		               .done_fd = FD_NONE,
		               .terminal = request->terminal,
		               .changes = -1,
		               .request = request,
		               .atoll = how->atoll,
		               .plan = how->plan,
		               .theirs = { FD_NONE, FD_NONE, FD_NONE, FD_NONE },
		               .notice_to = FD_NONE,
		               .res = atoll_result_new() };
	if (request->cwd)
		c->cwd = xstrdup(request->cwd);
	else if (how->plan)
		c->cwd = command_cwd(how->plan);
	r = open_all(c, how);
	if (r == 0 && c->terminal)
		command_resize(c, (uint16_t)(request->rows ? request->rows : DEFAULT_ROWS),
		               (uint16_t)(request->columns ? request->columns : DEFAULT_COLS));
	if (r == 0)
		r = start_thread(c);
	if (r < 0)
		return error_sys(err, r, "make", "the descriptors of the command");
	*ret = take_ptr(c);
	return 0;
}

void command_signal(struct command *c, int sig)
{
	const unsigned char byte = (unsigned char)sig;

	/* So many that nobody has taken yet say nothing new. */
	if (c->control_fd != FD_NONE)
		(void)(write(c->control_fd, &byte, 1) < 0);
}

void command_resize(struct command *c, uint16_t rows, uint16_t columns)
{
	const struct winsize size = { .ws_row = rows, .ws_col = columns };

	if (c->terminal && c->out_fd != FD_NONE)
		(void)ioctl(c->out_fd, TIOCSWINSZ, &size);
}

void command_end(struct command *c)
{
	close_fd(&c->control_fd);
	close_fd(&c->in_fd);
	close_fd(&c->out_fd);
	close_fd(&c->err_fd);
}

void command_join(struct command *c)
{
	if (c->has_thread)
		(void)pthread_join(c->thread, NULL);
	c->has_thread = false;
}

ssize_t command_read(struct command *c, int *fd, void *buf, size_t size)
{
	ssize_t n;

	(void)c;
	do {
		n = read(*fd, buf, size);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n > 0)
		return n;
	close_fd(fd); /* a terminal that nobody has open any more is an error to read */
	return 0;
}

void command_free(struct command *c)
{
	if (!c)
		return;
	command_end(c);
	command_join(c);
	for (int i = 0; i < 4; i++)
		close_fd(&c->theirs[i]);
	close_fd(&c->notice_to);
	close_fd(&c->notice_fd);
	close_fd(&c->done_fd);
	atoll_result_free(c->res);
	free(c->cwd);
	free(c);
}

void cleanup_commandp(struct command **c)
{
	command_free(*c);
}
