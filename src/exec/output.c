/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands between a command and the caller's descriptors: a process that keeps what is printed
 * (helper/copy.h), or one that relays a terminal (helper/relay.h). It is started before the command, and
 * after the helper.
 */
#include "exec/exec.h"

#include "exec/exec-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define TTY_NAME_LEN 64

void output_done(struct output *o)
{
	for (int i = 0; i < 2; i++) {
		close_fd(&o->out[i]);
		close_fd(&o->err[i]);
		close_fd(&o->stopped[i]);
	}
	close_fd(&o->caller[0]);
	close_fd(&o->master);
	close_fd(&o->slave);
}

/* ---- a terminal for the command ---- */

/* The terminal that controls our session: of others the kernel does not tell who is in front. */
static bool is_ours(int fd)
{
	return tcgetpgrp(fd) >= 0;
}

/* Where standard input is another one, or none, keys are not for us to read: others of a pipeline may. */
static bool wants_relay(const struct exec_options *opt)
{
	if (opt->detached || opt->stdio || opt->control || !is_ours(STDIN_FILENO))
		return false;
	if (opt->own_terminal && !sabotage("own-terminal"))
		return is_ours(STDOUT_FILENO) || is_ours(STDERR_FILENO);
	return opt->output && opt->output->pass && is_ours(STDOUT_FILENO);
}

static atomic_bool relayed;

bool exec_was_relayed(void)
{
	return atomic_load(&relayed);
}

/*
 * Opened once more: what is written to it must not wait for a slow one while there are keys to be passed
 * on, and not to wait is a property that the shell's own descriptor would have, too. Nobody needs to own
 * the terminal to open it by this name, which is the same file for all; of one process group one relay at
 * a time may have it, or each would take the modes of the other for the user's.
 */
static bool take_terminal(struct output *o)
{
	struct flock group = { .l_type = F_WRLCK,
		               .l_whence = SEEK_SET,
		               .l_start = getpgrp(),
		               .l_len = 1 };

	o->tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (o->tty >= 0 && is_ours(o->tty) && fcntl(o->tty, F_OFD_SETLK, &group) == 0)
		return true;
	close_fd(&o->tty);
	return false;
}

/* Of the size of ours, and with its modes; those that it has while somebody else is in front are not the
 * user's, but of a shell that edits a line. */
static int open_terminal(struct output *o)
{
	char name[TTY_NAME_LEN];
	struct winsize size;

	o->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (o->master < 0 || grantpt(o->master) < 0 || unlockpt(o->master) < 0)
		return -errno;
	if (ptsname_r(o->master, name, sizeof(name)) != 0)
		return -ENOTTY;
	o->slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (o->slave < 0)
		return -errno;
	if (ioctl(o->tty, TIOCGWINSZ, &size) == 0)
		(void)ioctl(o->slave, TIOCSWINSZ, &size);
	if (tcgetattr(o->tty, &o->modes) < 0)
		return -errno;
	if (tcgetpgrp(o->tty) != getpgrp())
		return 0;
	return tcsetattr(o->slave, TCSANOW, &o->modes) < 0 ? -errno : 0;
}

static int open_relay(struct output *o)
{
	int r = open_terminal(o);

	if (r < 0)
		return r;
	if (pipe2(o->stopped, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, o->caller) < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		o->stdio[i] = is_ours(i) ? o->slave : FD_NONE;
	return 0;
}

int output_open(struct output *o, const struct exec_options **opt, struct error *err)
{
	int r;

	atomic_store(&relayed, false);
	if (!wants_relay(*opt) || !take_terminal(o))
		return 0;
	r = open_relay(o);
	if (r < 0)
		return exec_sys_error(r, "make", "a terminal for the command", err);
	o->how = **opt;
	o->how.stdio = o->stdio;
	o->how.terminal = true;
	*opt = &o->how;
	atomic_store(&relayed, true);
	return 0;
}

static int spawn_relay(struct output *o, const struct exec_options *how, const char *file,
                       int null_fd)
{
	const struct exec_output nothing = { .dir = "" };
	const struct exec_output *kept = how->output ? how->output : &nothing;
	char max[24];
	const char *const argv[] = { "atoll-helper", "--relay", kept->dir, max, NULL };
	const struct child_fd fds[] = { { o->master, 3 },
		                        { o->caller[0], 4 },
		                        { o->stopped[0], 5 },
		                        { o->tty, 6 },
		                        { null_fd, 0 } };
	const struct child_options opt = { .file = file,
		                           .argv = argv,
		                           .fds = fds,
		                           .n_fds = sizeof(fds) / sizeof(fds[0]),
		                           .holds_signals = true };

	(void)snprintf(max, sizeof(max), "%" PRIu64, kept->max);
	return child_spawn(&o->copier, &opt);
}

/* ---- pipes ---- */

static int spawn_copier(struct output *o, const struct exec_options *how, const char *file,
                        int null_fd)
{
	const struct exec_output *kept = how->output;
	const int nowhere[] = { null_fd, null_fd, null_fd };
	const struct exec_options none = { .stdio = nowhere };
	char max[24];
	const char *const argv[] = { "atoll-helper",         "--copy", kept->dir, max,
		                     kept->pass ? "1" : "0", NULL };
	struct child_fd fds[5] = { { o->out[0], 3 }, { o->err[0], 4 }, { null_fd, 0 } };
	const struct child_options opt = {
		.file = file,
		.argv = argv,
		.fds = fds,
		.n_fds = exec_add_stdio(kept->pass ? how : &none, STDOUT_FILENO, fds, 3),
		.leads_session = how->control || how->terminal,
		.holds_signals = true,
	};

	(void)snprintf(max, sizeof(max), "%" PRIu64, kept->max);
	return child_spawn(&o->copier, &opt);
}

/* ---- both ---- */

int output_start(struct output *o, const struct exec_options *opt, struct error *err)
{
	cleanup_free char *file = exec_helper_path();
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = null_fd < 0 ? -errno : 0;

	if (o->master == FD_NONE && !opt->output)
		return 0;
	if (r == 0 && o->master != FD_NONE)
		r = spawn_relay(o, opt, file, null_fd);
	else if (r == 0)
		r = pipe2(o->out, O_CLOEXEC) < 0 || pipe2(o->err, O_CLOEXEC) < 0
		            ? -errno
		            : spawn_copier(o, opt, file, null_fd);
	/* Its ends must be its own, or nobody would hear when it is gone. */
	close_fd(&o->out[0]);
	close_fd(&o->err[0]);
	close_fd(&o->master);
	close_fd(&o->caller[0]);
	close_fd(&o->stopped[0]);
	return r < 0 ? exec_sys_error(r, "keep", "the output of the command", err) : 0;
}

/* What a relay leaves that was killed. */
static void tidy_terminal(const struct output *o)
{
	if (tcgetpgrp(o->tty) == getpgrp())
		(void)tcsetattr(o->tty, TCSANOW, &o->modes);
}

void output_wait(struct output *o)
{
	int status = 0;

	output_done(o);
	/* A relay does not ask who may still have the terminal. */
	if (o->caller[1] != FD_NONE)
		(void)send(o->caller[1], "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (o->copier.pid > 0) {
		(void)child_wait(&o->copier, CLOCK_NEVER, &status);
		child_done(&o->copier);
	}
	if (o->caller[1] != FD_NONE && WIFSIGNALED(status))
		tidy_terminal(o);
	close_fd(&o->caller[1]);
	close_fd(&o->tty); /* not before: the next relay would find what this one left */
}
