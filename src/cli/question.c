/* SPDX-License-Identifier: Apache-2.0 */
/* Questions, and signals that come meanwhile. See question.h. */
#include "cli/question.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const int held[] = { SIGINT, SIGTERM, SIGHUP };
static volatile sig_atomic_t came;
static int nowhere = -1; /* opened before the handlers are there */

static void remember(int sig)
{
	if (came) {
		(void)signal(sig, SIG_DFL);
		(void)raise(sig);
	}
	came = sig;
	/* A terminal that takes no more output must not hold us. */
	if (nowhere >= 0)
		(void)dup2(nowhere, STDOUT_FILENO);
}

void question_hold_signals(void)
{
	/* Without SA_RESTART: what is being waited for or written ends. */
	struct sigaction act = { .sa_handler = remember };
	struct sigaction before;

	nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		if (sigaction(held[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(held[i], &act, NULL);
}

int question_signal(void)
{
	return came;
}

void question_obey_signal(void)
{
	if (!came)
		return;
	(void)signal(came, SIG_DFL);
	(void)raise(came);
}

/* Signals reach us only inside: none can slip in between the look and the wait. */
static bool wait_for_input(void)
{
	struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };
	sigset_t block, before;
	int r = -1;

	sigemptyset(&block);
	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		sigaddset(&block, held[i]);
	(void)sigprocmask(SIG_BLOCK, &block, &before);
	while (!came && (r = ppoll(&pfd, 1, NULL, &before)) < 0 && errno == EINTR)
		;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return r > 0 && !came;
}

bool question_ask(const char *text, char *line, size_t size)
{
	if (came)
		return false;
	(void)fputs(text, stderr);
	if (wait_for_input() && fgets(line, (int)size, stdin))
		return true;
	(void)fputc('\n', stderr);
	return false;
}
