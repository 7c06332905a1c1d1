/* SPDX-License-Identifier: Apache-2.0 */
/* Raw mode and a signalfd. */
#include "remote/console.h"

#include "util/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* What is handed on to the command; of a terminal also its size, and the key that stops. */
static const int signals[] = {
	SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP
};

static void collect(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction act;

		if (sigaction(signals[i], NULL, &act) == 0 && act.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
	}
	/* Ignored without anybody's doing, but wanted. */
	sigaddset(set, SIGWINCH);
}

static int make_raw(struct console *c)
{
	struct termios raw = c->before;

	cfmakeraw(&raw);
	if (tcsetattr(c->tty_fd, TCSADRAIN, &raw) < 0)
		return -errno;
	c->is_raw = true;
	return 0;
}

static void make_as_before(struct console *c)
{
	if (c->is_raw)
		(void)tcsetattr(c->tty_fd, TCSADRAIN, &c->before);
	c->is_raw = false;
}

int console_begin(struct console *c, int tty_fd)
{
	/* A reader of ours that goes is the command's affair, not the end of us. */
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;
	int r = 0;

	collect(&set);
	c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->signal_fd < 0)
		return -errno;
	(void)pthread_sigmask(SIG_BLOCK, &set, &c->mask_before);
	(void)sigaction(SIGPIPE, &ignore, &c->pipe_before);
	if (tty_fd != FD_NONE) {
		c->tty_fd = tty_fd;
		r = tcgetattr(tty_fd, &c->before) < 0 ? -errno : make_raw(c);
	}
	if (r < 0)
		console_end(c);
	return r;
}

void console_end(struct console *c)
{
	int saved = errno;

	if (c->signal_fd == FD_NONE)
		return;
	make_as_before(c);
	close_fd(&c->signal_fd);
	(void)sigaction(SIGPIPE, &c->pipe_before, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &c->mask_before, NULL);
	c->tty_fd = FD_NONE;
	errno = saved;
}

int console_signal(struct console *c)
{
	struct signalfd_siginfo info;

	return read(c->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)
	               ? (int)info.ssi_signo
	               : 0;
}

bool console_size(const struct console *c, uint16_t *ret_rows, uint16_t *ret_columns)
{
	struct winsize size;

	if (c->tty_fd == FD_NONE || ioctl(c->tty_fd, TIOCGWINSZ, &size) < 0)
		return false;
	*ret_rows = size.ws_row;
	*ret_columns = size.ws_col;
	return true;
}

void console_suspend(struct console *c)
{
	bool was_raw = c->is_raw;

	make_as_before(c);
	(void)raise(SIGSTOP);
	if (was_raw)
		(void)make_raw(c);
}
