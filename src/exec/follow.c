/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a command runs: looking now and then, with the caller's eyes, whether it may go on, and
 * listening to what the caller says meanwhile. One that may not go on is ended as by a time-out,
 * SIGTERM and then SIGKILL; the latter by closing the lifeline, upon which the helper ends everything
 * at once and still answers.
 */
#include "exec/exec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "exec/exec-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define LOOK_MS  50
#define GRACE_MS 2000 /* between SIGTERM and SIGKILL, as the helper's own */
/* The same for a caller that is gone: somebody else may wait for the plan. */
#define GONE_GRACE_MS  500
#define LOOK_SELDOM_MS 60000 /* where nobody watches */

/* True when the helper has something to say, or is gone; false when DEADLINE passed, or CONTROL (NULL:
 * nobody) has something. */
static bool has_reply(const struct channels *ch, const struct control *control, int64_t deadline)
{
	struct pollfd fds[] = {
		{ .fd = ch->reply[0], .events = POLLIN },
		{ .fd = control ? control->fd : FD_NONE, .events = POLLIN },
	};
	int n;

	do {
		n = poll(fds, 2, clock_left_ms(deadline));
	} while (n < 0 && errno == EINTR);
	return n < 0 || fds[0].revents; /* what poll cannot tell, reading will */
}

/* Never waits: what a helper does not take is for a command that has ended. */
static void send_signal(const struct channels *ch, int sig)
{
	const unsigned char byte = (unsigned char)sig;

	(void)send(ch->lifeline[1], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void pass_on(const struct channels *ch, struct control *control)
{
	int sig;

	while ((sig = control_next(control)))
		send_signal(ch, sig);
}

static void end(struct child *c, struct channels *ch, const struct exec_options *opt, int grace_ms)
{
	int64_t kill_at = clock_deadline(grace_ms);

	(void)child_kill(c, SIGTERM);
	while (clock_boot_ns() < kill_at) {
		if (has_reply(ch, NULL, clock_deadline(LOOK_MS)))
			return;
		if (opt->watch && opt->watch(opt->watch_ctx) == EXEC_END_NOW)
			break;
	}
	close_fd(&ch->lifeline[1]);
}

enum follow helper_follow(struct child *c, struct channels *ch, const struct exec_options *opt)
{
	if (!opt->watch && !opt->control)
		return FOLLOW_ANSWERED;
	for (;;) {
		int next_ms;

		if (opt->control)
			pass_on(ch, opt->control);
		next_ms = opt->watch ? opt->watch(opt->watch_ctx) : LOOK_SELDOM_MS;

		if (next_ms < 0) {
			end(c, ch, opt, next_ms == EXEC_END_NOW ? 0 : GRACE_MS);
			return FOLLOW_STOPPED;
		}
		if (opt->control && opt->control->ended) {
			end(c, ch, opt, GONE_GRACE_MS);
			return FOLLOW_ENDED;
		}
		if (has_reply(ch, opt->control, clock_deadline(next_ms)))
			return FOLLOW_ANSWERED;
	}
}
