/* SPDX-License-Identifier: Apache-2.0 */
/* Questions on a terminal. See question.h. */
#include "cli/question.h"

#include "cli/interrupt.h"
#include "util/crashpoint.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

#define ANSWER_MAX 32

static struct {
	bool known;
	bool front; /* we were in the foreground */
	struct termios modes;
} before;

/* While a question is open. The terminal hands over each byte and shows none: so half a line is heard, too, and
 * no byte of a report edits a line. Signals are let in only while we wait. */
static struct {
	struct termios modes;     /* to be put back */
	struct termios listening; /* meanwhile */
	struct sigaction stop, go_on, quit;
	sigset_t mask;
	volatile sig_atomic_t stopping, continued;
} open_question;

static void on_stop(int sig)
{
	(void)sig;
	open_question.stopping = 1;
}

static void on_continue(int sig)
{
	(void)sig;
	open_question.continued = 1;
}

static void on_quit(int sig)
{
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &open_question.modes);
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

enum waited {
	WAITED_QUIET = 0,
	WAITED_INPUT, /* or its end */
	WAITED_AGAIN, /* we were stopped, and go on: the screen is another */
	WAITED_OVER,  /* a signal that is held, or no input any more */
};

static void set_modes(const struct termios *modes, int when)
{
	while (tcsetattr(STDIN_FILENO, when, modes) < 0 && errno == EINTR)
		if (interrupt_signal()) {
			(void)tcsetattr(STDIN_FILENO, TCSANOW, modes);
			return;
		}
}

/* The shell gets the terminal as it was, and we ask in the foreground again. */
static void stop(void)
{
	sigset_t both, mask;
	const struct timespec now = { 0 };

	sigemptyset(&both);
	sigaddset(&both, SIGTSTP);
	set_modes(&open_question.modes, TCSANOW);
	(void)signal(SIGTSTP, SIG_DFL);
	(void)raise(SIGTSTP);
	(void)sigprocmask(SIG_UNBLOCK, &both, &mask);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	(void)signal(SIGTSTP, on_stop);
	sigemptyset(&both);
	sigaddset(&both, SIGCONT);
	(void)sigtimedwait(&both, NULL, &now);
}

/* TIMEOUT_MS < 0: for ever. */
static enum waited wait_for_input(int timeout_ms)
{
	struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };
	const struct timespec limit = { .tv_sec = timeout_ms / 1000,
		                        .tv_nsec = timeout_ms % 1000 * 1000000l };
	sigset_t mask;
	int r = -1;

	interrupt_block(&mask);
	while (!interrupt_signal() && !open_question.stopping && !open_question.continued &&
	       (r = ppoll(&pfd, 1, timeout_ms < 0 ? NULL : &limit, &open_question.mask)) < 0 &&
	       errno == EINTR)
		;
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	if (interrupt_signal())
		return WAITED_OVER;
	if (open_question.stopping || open_question.continued) {
		if (open_question.stopping)
			stop();
		open_question.stopping = open_question.continued = 0;
		set_modes(&open_question.listening, TCSAFLUSH);
		return WAITED_AGAIN;
	}
	return r < 0 ? WAITED_OVER : r > 0 ? WAITED_INPUT : WAITED_QUIET;
}

/* ---- the terminal ---- */

bool question_possible(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

void question_remember_terminal(void)
{
	before.known = tcgetattr(STDIN_FILENO, &before.modes) == 0;
	before.front = before.known && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* A shell that was killed leaves its process group in the foreground, without a process in it. */
static void take_foreground(void)
{
	pid_t front = before.front ? tcgetpgrp(STDIN_FILENO) : -1;
	sigset_t block, unblocked;

	if (front <= 1 || front == getpgrp() || kill(-front, 0) == 0 || errno != ESRCH)
		return;
	sigemptyset(&block);
	sigaddset(&block, SIGTTOU);
	(void)sigprocmask(SIG_BLOCK, &block, &unblocked);
	(void)tcsetpgrp(STDIN_FILENO, getpgrp());
	(void)sigprocmask(SIG_SETMASK, &unblocked, NULL);
}

static bool is_gone(void)
{
	struct pollfd pfd = { .fd = STDIN_FILENO };

	return poll(&pfd, 1, 0) > 0 && pfd.revents & (POLLHUP | POLLERR);
}

static void drop_pending_input(void)
{
	for (int quiet = 0; quiet < 2; quiet++) {
		enum waited w = wait_for_input(QUESTION_QUIET_MS);

		if (w == WAITED_OVER || is_gone())
			return;
		if (w != WAITED_QUIET) {
			(void)tcflush(STDIN_FILENO, TCIFLUSH);
			quiet = -1;
		}
	}
}

static bool is_ignored(int sig)
{
	struct sigaction act;

	return sigaction(sig, NULL, &act) == 0 && act.sa_handler == SIG_IGN;
}

static void handle(int sig, void (*handler)(int), struct sigaction *before_it)
{
	const struct sigaction act = { .sa_handler = handler };

	(void)sigaction(sig, is_ignored(sig) ? NULL : &act, before_it);
}

/* False: it is no terminal any more. */
static bool listen_to_terminal(void)
{
	sigset_t block;

	take_foreground();
	if (tcgetattr(STDIN_FILENO, &open_question.modes) < 0)
		return false;
	if (before.known)
		open_question.modes = before.modes;
	open_question.listening = open_question.modes;
	open_question.listening.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL);
	open_question.listening.c_cc[VMIN] = 1;
	open_question.listening.c_cc[VTIME] = 0;
	open_question.stopping = open_question.continued = 0;
	sigemptyset(&block);
	sigaddset(&block, SIGTSTP);
	sigaddset(&block, SIGCONT);
	(void)sigprocmask(SIG_BLOCK, &block, &open_question.mask);
	handle(SIGTSTP, on_stop, &open_question.stop);
	handle(SIGCONT, on_continue, &open_question.go_on);
	handle(SIGQUIT, on_quit, &open_question.quit);
	set_modes(&open_question.listening, TCSAFLUSH);
	return true;
}

/* What was typed after the answer is for the program that reads next. */
static void leave_terminal(void)
{
	set_modes(&open_question.modes, TCSANOW);
	(void)sigaction(SIGQUIT, &open_question.quit, NULL);
	(void)sigaction(SIGCONT, &open_question.go_on, NULL);
	(void)sigaction(SIGTSTP, &open_question.stop, NULL);
	(void)sigprocmask(SIG_SETMASK, &open_question.mask, NULL);
}

/* ---- the answer ---- */

int question_match(const struct question_answer *answers, const char *line)
{
	size_t len;

	while (isspace((unsigned char)*line))
		line++;
	len = strlen(line);
	while (len > 0 && isspace((unsigned char)line[len - 1]))
		len--;
	for (; answers->word; answers++)
		if (strlen(answers->word) == len && strncasecmp(answers->word, line, len) == 0)
			return answers->value;
	return -1;
}

/* What a terminal reports begins with an escape character, or with an 8-bit control: a line with one in it is no
 * answer. Some reports repeat a text that a program chose, which a terminal with a defect does not clear of line
 * ends: such a string is over with its terminator, or when nothing came for REPORT_MS, and not before. */
#define REPORT_MS 1000

enum within {
	WITHIN_TEXT = 0,
	WITHIN_ESCAPE,
	WITHIN_STRING,
	WITHIN_STRING_ESCAPE, /* a string, after its escape character: a backslash ends it */
};

struct line {
	char text[ANSWER_MAX];
	size_t used;
	bool no_answer;
	enum within within;
	bool osc; /* a string that BEL ends, too */
};

static void echo(const char *text)
{
	(void)(write(STDERR_FILENO, text, strlen(text)) < 0);
}

static void begin_string(struct line *l, unsigned char introducer)
{
	l->within = WITHIN_STRING;
	l->osc = introducer == ']';
}

/* True for a byte of a report. */
static bool take_report(struct line *l, unsigned char byte)
{
	static const char introducers[] =
		"P]X^_"; /* DCS, OSC, SOS, PM, APC; their 8-bit form is 64 more */
	bool eight_bit = byte >= 0x80 && byte < 0xa0 && memchr(introducers, byte - 0x40, 5);

	switch (l->within) {
	case WITHIN_TEXT:
		if (eight_bit)
			begin_string(l, byte - 0x40);
		else if (byte == '\033')
			l->within = WITHIN_ESCAPE;
		else
			return false;
		break;
	case WITHIN_ESCAPE:
		l->within = byte == '\033' ? WITHIN_ESCAPE : WITHIN_TEXT;
		if (byte == '\n' || byte == '\r')
			return false;
		if (memchr(introducers, byte, 5))
			begin_string(l, byte);
		break;
	case WITHIN_STRING:
	case WITHIN_STRING_ESCAPE:
		if (byte == 0x9c || (byte == '\a' && l->osc) ||
		    (byte == '\\' && l->within == WITHIN_STRING_ESCAPE))
			l->within = WITHIN_TEXT;
		else
			l->within = byte == '\033' ? WITHIN_STRING_ESCAPE : WITHIN_STRING;
		break;
	}
	l->no_answer = true;
	return true;
}

static bool is_key(unsigned char byte, int key)
{
	return open_question.modes.c_cc[key] != _POSIX_VDISABLE &&
	       byte == open_question.modes.c_cc[key];
}

static void rub_out(struct line *l, size_t n)
{
	for (; n > 0 && l->used > 0; n--) {
		l->used--;
		echo("\b \b");
	}
}

enum typed {
	TYPED_ON = 0,
	TYPED_LINE,
	TYPED_END, /* of the input: its key, on an empty line */
};

static enum typed take_byte(struct line *l, unsigned char byte)
{
	if (!sabotage("reports") && take_report(l, byte))
		return TYPED_ON;
	if (byte == '\n' || byte == '\r')
		return TYPED_LINE;
	if (is_key(byte, VEOF))
		return l->used == 0 && !l->no_answer ? TYPED_END : TYPED_ON;
	if (is_key(byte, VERASE) || byte == '\b' || byte == 0x7f) {
		rub_out(l, 1);
	} else if (is_key(byte, VKILL)) {
		rub_out(l, l->used);
	} else if (l->used == ANSWER_MAX - 1 || byte < ' ' || byte > '~') {
		l->no_answer = !sabotage("reports");
	} else {
		const char shown[] = { (char)byte, '\0' };

		l->text[l->used++] = (char)byte;
		echo(shown);
	}
	return TYPED_ON;
}

enum read {
	READ_LINE = 0,
	READ_AGAIN, /* we were stopped */
	READ_OVER,
};

/* One byte at a time: what follows the line is not ours. One that is no answer is "?". */
static enum read read_line(struct line *l)
{
	enum typed typed = TYPED_ON;

	*l = (struct line){ 0 };
	while (typed == TYPED_ON) {
		bool in_string = l->within >= WITHIN_STRING;
		enum waited w = wait_for_input(in_string ? REPORT_MS : -1);
		unsigned char byte;

		if (w == WAITED_AGAIN)
			return READ_AGAIN;
		if (w == WAITED_QUIET)
			l->within = WITHIN_TEXT;
		if (w == WAITED_QUIET)
			continue;
		if (w == WAITED_OVER || read(STDIN_FILENO, &byte, 1) != 1)
			return READ_OVER;
		typed = take_byte(l, byte);
	}
	if (typed == TYPED_END)
		return READ_OVER;
	echo("\n");
	l->text[l->used] = '\0';
	if (l->no_answer)
		(void)strcpy(l->text, "?");
	return READ_LINE;
}

static int ask(const struct question *q)
{
	struct line line;

	drop_pending_input();
	if (q->above)
		(void)fputs(q->above, stderr);
	while (!interrupt_signal()) {
		enum read how;
		int value;

		(void)fputs(q->text, stderr);
		(void)fflush(stderr);
		how = read_line(&line);
		if (how == READ_OVER)
			break;
		if (how == READ_LINE) {
			value = question_match(q->answers, line.text);
			if (value >= 0)
				return value;
			(void)fprintf(stderr, "%s\n", q->choices);
		}
		drop_pending_input();
	}
	(void)fputc('\n', stderr);
	return -1;
}

int question_ask(const struct question *q)
{
	struct interrupt_held held;
	int value = -1;

	if (interrupt_signal())
		return -1;
	interrupt_hold(&held); /* the terminal is not left as it is only while it is listened to */
	if (listen_to_terminal()) {
		value = ask(q);
		leave_terminal();
	}
	interrupt_release(&held);
	return value;
}
