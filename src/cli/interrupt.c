/* SPDX-License-Identifier: Apache-2.0 */
/* Signals and decisions. See interrupt.h. */
#include "cli/interrupt.h"

#include "cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const int signals[INTERRUPT_SIGNALS] = { SIGINT, SIGTERM, SIGHUP };

/* What a signal meets. */
enum stage {
	STAGE_IDLE = 0,   /* waiting for locks, reading */
	STAGE_RECOVERING, /* others' work */
	STAGE_HELD,
	STAGE_PREPARING,
	STAGE_DECIDED,
	STAGE_OVER,
};

static volatile sig_atomic_t stage;
static volatile sig_atomic_t came; /* to be obeyed */
static volatile sig_atomic_t late; /* so many since the decision */
static int idle_stage = STAGE_IDLE;
static int nowhere = -1; /* opened before the handlers are there */

static void say(const char *text)
{
	const char *clear = progress_shown() ? "\r\033[K" : "";

	/* Nothing can be done about a terminal that takes nothing. */
	(void)(write(STDERR_FILENO, clear, strlen(clear)) < 0);
	(void)(write(STDERR_FILENO, text, strlen(text)) < 0);
}

static void die(int sig)
{
	sigset_t only;

	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
	sigemptyset(&only);
	sigaddset(&only, sig);
	(void)sigprocmask(SIG_UNBLOCK, &only, NULL);
}

static void on_signal(int sig)
{
	int saved = errno;

	switch ((enum stage)stage) {
	case STAGE_HELD:
		if (came)
			die(sig);
		came = sig;
		/* A terminal that takes no more output must not hold us. */
		if (nowhere >= 0)
			(void)dup2(nowhere, STDOUT_FILENO);
		break;
	case STAGE_PREPARING:
		if (!came) {
			came = sig;
			break;
		}
		say("atoll: interrupted; nothing was changed\n");
		die(sig);
		break;
	case STAGE_IDLE:
		say("atoll: interrupted; nothing was changed\n");
		die(sig);
		break;
	case STAGE_RECOVERING:
		say("atoll: interrupted; atoll recover finishes what another process began\n");
		die(sig);
		break;
	case STAGE_DECIDED:
		if (++late == 1)
			say("finishing (^C again leaves the rest to atoll recover)\n");
		else if (late > 2)
			die(sig);
		break;
	case STAGE_OVER:
		break;
	}
	errno = saved;
}

/* Without SA_RESTART: what is being waited for or written ends. */
static void handle(struct sigaction before[INTERRUPT_SIGNALS])
{
	struct sigaction act = { .sa_handler = on_signal };

	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < INTERRUPT_SIGNALS; i++)
		sigaddset(&act.sa_mask, signals[i]);
	for (size_t i = 0; i < INTERRUPT_SIGNALS; i++)
		if (sigaction(signals[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &act, NULL);
}

/* ---- decisions ---- */

void interrupt_block(sigset_t *ret_before)
{
	sigset_t block;

	sigemptyset(&block);
	for (size_t i = 0; i < INTERRUPT_SIGNALS; i++)
		sigaddset(&block, signals[i]);
	(void)sigprocmask(SIG_BLOCK, &block, ret_before);
}

/* True, and nothing is decided, when a signal came first. In the thread that gets them. */
static bool refuse_decision(void)
{
	sigset_t before;

	interrupt_block(&before);
	if (!came)
		stage = STAGE_DECIDED;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return came != 0;
}

/* 1: stop. */
static int steer(void *user, const struct atoll_progress *p)
{
	(void)user;
	if (p->done) {
		stage = stage == STAGE_DECIDED ? STAGE_OVER : idle_stage;
		return 0;
	}
	switch (p->phase) {
	case ATOLL_PHASE_PREPARING:
		stage = STAGE_PREPARING;
		return came != 0;
	case ATOLL_PHASE_DECIDED:
		return stage == STAGE_DECIDED ? late > 1 : refuse_decision();
	case ATOLL_PHASE_BEGUN:
	case ATOLL_PHASE_END_:
		break;
	}
	return 0;
}

void interrupt_watch(struct cli *c)
{
	struct sigaction before[INTERRUPT_SIGNALS];

	atoll_set_interrupt(c->atoll, steer, NULL);
	handle(before);
}

void interrupt_recovering(bool begins)
{
	if (stage == STAGE_IDLE || stage == STAGE_RECOVERING)
		stage = idle_stage = begins ? STAGE_RECOVERING : STAGE_IDLE;
}

/* ---- the time between ---- */

void interrupt_hold(struct interrupt_held *h)
{
	if (nowhere < 0)
		nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	h->stage = stage;
	stage = idle_stage = STAGE_HELD;
	handle(h->before);
}

void interrupt_release(const struct interrupt_held *h)
{
	for (size_t i = 0; i < INTERRUPT_SIGNALS; i++)
		(void)sigaction(signals[i], &h->before[i], NULL);
	stage = idle_stage = h->stage;
}

void interrupt_remember(int sig)
{
	if (sig && !came)
		came = sig;
}

int interrupt_signal(void)
{
	return came;
}

void interrupt_obey(void)
{
	if (came)
		die(came);
}
