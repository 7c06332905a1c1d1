/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGTTIN and SIGTTOU stop us as they stop others: so the kernel decides whether we are in the foreground,
 * at the moment that counts.
 */
#include "helper/relay.h"

#include "helper/flow.h"
#include "helper/keep.h"
#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* A terminal holds less than this: who prints more after the command's end was not part of it. */
#define LAST_WORDS (256u << 10)
/* In the background nobody tells us that we are not any more. */
#define LOOK_MS 200

enum relay_end {
	RELAY_GOES_ON = 0,
	RELAY_ENDED,   /* the caller says that the command has; what it printed may be on its way */
	RELAY_NOBODY,  /* has the command's terminal */
	RELAY_HUNG_UP, /* the user's */
	RELAY_ALONE,   /* the caller is gone */
};

struct relay {
	int signal_fd;
	struct termios before; /* of the user's terminal, when it was not raw */
	bool raw;
	bool controlled; /* what was printed may have changed how the user's terminal shows text and reports keys */
	bool front; /* as far as we know, we are in the foreground */
	bool runs; /* the command: before, keys that send signals would find nobody in its terminal */
	enum relay_end end;
	struct flow printed, typed;
	struct keep keep;
};

/* ---- the user's terminal ---- */

/* One that was hung up has no foreground; who reads it is told. */
static bool is_front(void)
{
	pid_t group = tcgetpgrp(RELAY_TTY_FD);

	return group < 0 || group == getpgrp();
}

static void take_size(void)
{
	struct winsize size;

	if (ioctl(RELAY_TTY_FD, TIOCGWINSZ, &size) == 0)
		(void)ioctl(RELAY_MASTER_FD, TIOCSWINSZ, &size);
}

/* Never waits for what was printed: that was processed when it was written. */
static void come_forward(struct relay *r)
{
	struct termios raw;

	r->front = is_front();
	if (!r->front || (!r->raw && tcgetattr(RELAY_TTY_FD, &r->before) < 0))
		return;
	raw = r->before;
	cfmakeraw(&raw);
	/* What the command prints elsewhere another process of the job may bring to the terminal. */
	if (!isatty(STDOUT_FILENO))
		raw.c_oflag = r->before.c_oflag;
	r->raw = tcsetattr(RELAY_TTY_FD, TCSANOW, &raw) == 0;
	take_size();
}

static void step_back(struct relay *r)
{
	if (r->raw && is_front())
		(void)tcsetattr(RELAY_TTY_FD, TCSANOW, &r->before);
	r->raw = false;
}

/* ---- passing on ---- */

static bool is_later(void)
{
	return errno == EINTR || errno == EAGAIN;
}

/* An escape sequence, another character set, or (perhaps only a part of a character) their 8-bit forms. */
static bool has_control(const char *data, size_t n)
{
	if (memchr(data, '\033', n) || memchr(data, '\016', n))
		return true;
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)data[i] & 0xe0) == 0x80)
			return true;
	return false;
}

static void read_printed(struct relay *r)
{
	ssize_t n = read(RELAY_MASTER_FD, r->printed.data, FLOW_MAX);

	if (n < 0 && is_later())
		return;
	if (n <= 0) {
		r->end = RELAY_NOBODY;
		return;
	}
	keep_add(&r->keep, r->printed.data, (size_t)n);
	r->controlled = r->controlled || has_control(r->printed.data, (size_t)n);
	r->printed.begin = 0;
	r->printed.end = (size_t)n;
}

static void write_printed(struct relay *r)
{
	struct flow *f = &r->printed;
	ssize_t n = write(RELAY_TTY_FD, f->data + f->begin, f->end - f->begin);

	if (n >= 0)
		f->begin += (size_t)n;
	else if (!is_later())
		r->end = RELAY_HUNG_UP;
}

/* Where others took the modes back, the end of input is a key. */
static void read_typed(struct relay *r, bool hung_up)
{
	ssize_t n = read(RELAY_TTY_FD, r->typed.data, FLOW_MAX);

	if (n < 0 && is_later())
		return;
	if (n < 0 && !is_front()) /* and nobody there who could send us back to it */
		r->front = false;
	else if (n < 0 || (n == 0 && hung_up))
		r->end = RELAY_HUNG_UP;
	if (n <= 0)
		return;
	r->typed.begin = 0;
	r->typed.end = (size_t)n;
}

/* Keys for a command that has ended are nobody's. */
static void write_typed(struct relay *r)
{
	struct flow *f = &r->typed;
	ssize_t n = write(RELAY_MASTER_FD, f->data + f->begin, f->end - f->begin);

	if (n >= 0)
		f->begin += (size_t)n;
	else if (!is_later())
		f->begin = f->end;
}

static void flush_printed(struct relay *r)
{
	while (r->end != RELAY_HUNG_UP && r->end != RELAY_ALONE && flow_has_more(&r->printed)) {
		struct pollfd fds[] = { { .fd = RELAY_TTY_FD, .events = POLLOUT },
			                { .fd = RELAY_CALLER_FD } };

		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents)
			write_printed(r);
		if (fds[1].revents)
			r->end = RELAY_ALONE;
	}
}

/* All that was printed until now. To ask whether there is more has the kernel hand over what is on its
 * way. */
static void drain(struct relay *r)
{
	enum relay_end before = r->end;

	for (size_t n = 0; n < LAST_WORDS && r->end == before; n += r->printed.end) {
		struct pollfd master = { .fd = RELAY_MASTER_FD, .events = POLLIN };

		flush_printed(r);
		if (r->end != before || poll(&master, 1, 0) <= 0)
			return;
		read_printed(r);
	}
	flush_printed(r);
}

/* ---- stopping and going on ---- */

/* Who is stopped need not be in the foreground of the command's terminal: whoever follows the command, and
 * leads the session of that terminal, knows whom to tell. */
static void continue_command(void)
{
	pid_t follower = tcgetsid(RELAY_MASTER_FD);

	if (follower > 1)
		(void)sigqueue(follower, SIGCONT, (union sigval){ 0 });
}

/* True when somebody let us go on; false when nobody would have, and so the kernel did not stop us. */
static bool stop(bool all)
{
	const struct timespec now = { 0 };
	sigset_t stop, go_on;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	sigemptyset(&go_on);
	sigaddset(&go_on, SIGCONT);
	(void)(all ? kill(0, SIGTSTP) : raise(SIGTSTP));
	(void)sigprocmask(SIG_UNBLOCK, &stop, NULL);
	(void)sigprocmask(SIG_BLOCK, &stop, NULL);
	return sigtimedwait(&go_on, NULL, &now) == SIGCONT;
}

/* The command was stopped by SIG. */
static void stop_with_command(struct relay *r, int sig)
{
	bool goes_on;

	drain(r);
	if (!is_front())
		return;
	step_back(r);
	/* Whoever sends SIGSTOP means to go on with it some time; a key does not. */
	goes_on = stop(true) || sig != SIGSTOP;
	come_forward(r);
	if (goes_on)
		continue_command();
}

static void on_stopped(struct relay *r)
{
	unsigned char said[64];
	ssize_t n = read(RELAY_STOPPED_FD, said, sizeof(said));

	r->runs = r->runs || n > 0;
	if (n > 0 && said[n - 1])
		stop_with_command(r, said[n - 1]);
}

static void on_signals(struct relay *r)
{
	struct signalfd_siginfo si;

	while (read(r->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGWINCH) {
			take_size();
			continue;
		}
		if (si.ssi_signo == SIGTSTP) {
			step_back(r);
			(void)stop(false);
		}
		come_forward(r);
		continue_command();
	}
}

/* A terminal that takes no more must not hold up the caller, who puts the modes back. */
static void obey_signals(void)
{
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
}

static int take_signals(void)
{
	sigset_t set;

	flow_ignore_signals();
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGCONT);
	sigaddset(&set, SIGTSTP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- all together ---- */

enum { FD_TTY = 0, FD_MASTER, FD_CALLER, FD_STOPPED, FD_SIGNALS, FDS };

/* Of the user's terminal its end is always of interest; of the command's only to who can read on. */
static void ask(const struct relay *r, struct pollfd fds[FDS])
{
	bool prints = flow_has_more(&r->printed), types = flow_has_more(&r->typed);
	short to_tty =
		(short)((prints ? POLLOUT : 0) | (r->front && r->runs && !types ? POLLIN : 0));
	short to_master = (short)((prints ? 0 : POLLIN) | (types ? POLLOUT : 0));

	fds[FD_TTY] = (struct pollfd){ .fd = RELAY_TTY_FD, .events = to_tty };
	fds[FD_MASTER] =
		(struct pollfd){ .fd = to_master ? RELAY_MASTER_FD : FD_NONE, .events = to_master };
	fds[FD_CALLER] = (struct pollfd){ .fd = RELAY_CALLER_FD, .events = POLLIN };
	fds[FD_STOPPED] = (struct pollfd){ .fd = fds[FD_STOPPED].fd, .events = POLLIN };
	fds[FD_SIGNALS] = (struct pollfd){ .fd = r->signal_fd, .events = POLLIN };
}

static void pass_on(struct relay *r, const struct pollfd fds[FDS])
{
	if (fds[FD_TTY].revents & POLLOUT)
		write_printed(r);
	if (fds[FD_TTY].revents & POLLIN)
		read_typed(r, fds[FD_TTY].revents & POLLHUP);
	else if (fds[FD_TTY].revents & (POLLHUP | POLLERR))
		r->end = RELAY_HUNG_UP;
	if (fds[FD_MASTER].revents & POLLHUP)
		r->typed.begin = r->typed.end;
	else if (fds[FD_MASTER].revents & POLLOUT)
		write_typed(r);
	if (fds[FD_MASTER].revents & (POLLIN | POLLHUP | POLLERR) && !flow_has_more(&r->printed))
		read_printed(r);
}

static void listen_to(struct relay *r, struct pollfd fds[FDS])
{
	char byte;

	if (fds[FD_SIGNALS].revents)
		on_signals(r);
	if (fds[FD_STOPPED].revents & POLLIN)
		on_stopped(r);
	else if (fds[FD_STOPPED].revents)
		fds[FD_STOPPED].fd = FD_NONE; /* whoever would tell is gone */
	if (fds[FD_CALLER].revents && r->end == RELAY_GOES_ON)
		r->end = recv(RELAY_CALLER_FD, &byte, 1, MSG_DONTWAIT) == 1 ? RELAY_ENDED
		                                                            : RELAY_ALONE;
}

/* Not concealed, in letters, on the main screen, with the whole of it to scroll; keys as they are typed, and no
 * reports of the mouse, the focus or a paste. The cursor stays where it is. */
#define PLAIN_TERMINAL                                                               \
	"\033[!p\033[0m\033(B\017\033[?25h\033[?7h\033[?1047l"                       \
	"\033[?9l\033[?1000l\033[?1002l\033[?1003l\033[?1004l\033[?1006l\033[?2004l" \
	"\033[>4m\033[<9u"

/* What the user is shown and asked next is not for the command to hide. */
static void make_plain(struct relay *r)
{
	const char *kind = getenv("TERM");

	if (!r->controlled || !kind || !*kind || strcmp(kind, "dumb") == 0 || !is_front())
		return;
	r->printed.begin = 0;
	r->printed.end = sizeof(PLAIN_TERMINAL) - 1;
	memcpy(r->printed.data, PLAIN_TERMINAL, r->printed.end);
	flush_printed(r);
}

static void serve(struct relay *r)
{
	struct pollfd fds[FDS] = { [FD_STOPPED] = { .fd = RELAY_STOPPED_FD } };

	come_forward(r);
	while (r->end == RELAY_GOES_ON) {
		ask(r, fds);
		if (poll(fds, FDS, r->front ? -1 : LOOK_MS) > 0) {
			pass_on(r, fds);
			if (r->end == RELAY_GOES_ON)
				listen_to(r, fds);
		}
		if (!r->front) {
			come_forward(r);
			if (r->front)
				continue_command();
		}
	}
	if (r->end == RELAY_ENDED) {
		obey_signals();
		drain(r);
	} else if (r->end == RELAY_NOBODY)
		flush_printed(r);
	if (r->end == RELAY_ENDED || r->end == RELAY_NOBODY)
		make_plain(r);
}

int relay_run(const char *dir, const char *max)
{
	static struct relay r;

	r.signal_fd = take_signals();
	keep_open(&r.keep, dir, max);
	(void)fcntl(RELAY_MASTER_FD, F_SETFL, O_RDWR | O_NONBLOCK);
	if (r.signal_fd >= 0)
		serve(&r);
	step_back(&r);
	return keep_close(&r.keep) ? EXIT_SUCCESS : EXIT_FAILURE;
}
