/* SPDX-License-Identifier: Apache-2.0 */
/* Questions on a terminal. See question.h. */
#include "cli/question.h"

#include "cli/interrupt.h"

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

/* Signals reach us only inside: none can slip in between the look and the wait. TIMEOUT_MS < 0: for ever.
 * 1: there is input, or its end; 0: not yet; -1: a signal, or no input any more. */
static int wait_for_input(int timeout_ms)
{
	struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };
	const struct timespec limit = { .tv_nsec = timeout_ms * 1000000l };
	sigset_t unblocked;
	int r = -1;

	interrupt_block(&unblocked);
	while (!interrupt_signal() &&
	       (r = ppoll(&pfd, 1, timeout_ms < 0 ? NULL : &limit, &unblocked)) < 0 &&
	       errno == EINTR)
		;
	(void)sigprocmask(SIG_SETMASK, &unblocked, NULL);
	if (interrupt_signal() || r < 0)
		return -1;
	return r > 0 ? 1 : 0;
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

static void set_modes(const struct termios *modes)
{
	while (tcsetattr(STDIN_FILENO, TCSAFLUSH, modes) < 0 && errno == EINTR)
		if (interrupt_signal()) {
			(void)tcsetattr(STDIN_FILENO, TCSANOW, modes);
			return;
		}
}

/* While it is listened to, the terminal hands over each byte, so that half a line is heard, too, and
 * shows none of them. */
static void drop_pending_input(void)
{
	struct termios modes, listening;

	take_foreground();
	if (tcgetattr(STDIN_FILENO, &modes) < 0)
		return;
	if (before.known)
		modes = before.modes;
	listening = modes;
	listening.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL);
	listening.c_cc[VMIN] = 1;
	listening.c_cc[VTIME] = 0;
	set_modes(&listening);
	for (int quiet = 0; quiet < 2; quiet++) {
		struct pollfd gone = { .fd = STDIN_FILENO };
		int r = wait_for_input(QUESTION_QUIET_MS);

		if (r < 0 || (poll(&gone, 1, 0) > 0 && gone.revents & (POLLHUP | POLLERR)))
			break;
		if (r > 0) {
			(void)tcflush(STDIN_FILENO, TCIFLUSH);
			quiet = -1;
		}
	}
	set_modes(&modes);
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

/* A line that ends; one that is too long to be an answer is "?". Without stdio, which would read ahead. */
static bool read_line(char line[ANSWER_MAX])
{
	char buf[256];
	size_t used = 0;

	for (;;) {
		ssize_t n = wait_for_input(-1) > 0 ? read(STDIN_FILENO, buf, sizeof(buf)) : 0;

		if (n <= 0)
			return false;
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == '\n' || buf[i] == '\r') {
				line[used] = '\0';
				if (used == ANSWER_MAX - 1 || memchr(line, '\0', used))
					(void)strcpy(line, "?");
				return true;
			}
			if (used < ANSWER_MAX - 1)
				line[used++] = buf[i];
		}
	}
}

static int ask(const struct question *q)
{
	char line[ANSWER_MAX];
	int value;

	if (q->above)
		(void)fputs(q->above, stderr);
	while (!interrupt_signal()) {
		(void)fputs(q->text, stderr);
		if (!read_line(line))
			break;
		value = question_match(q->answers, line);
		if (value >= 0)
			return value;
		(void)fprintf(stderr, "%s\n", q->choices);
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
	drop_pending_input();
	if (!interrupt_signal())
		value = ask(q);
	interrupt_release(&held);
	return value;
}
