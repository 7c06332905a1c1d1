/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a command runs: looking now and then, with the caller's eyes, whether it may go on. One that
 * may not is ended as by a time-out, SIGTERM and then SIGKILL; the latter by closing the lifeline,
 * upon which the helper ends everything at once and still answers.
 */
#include "exec/exec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "exec/exec-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#define LOOK_MS  50
#define GRACE_MS 2000 /* between SIGTERM and SIGKILL, as the helper's own */

/* 1 when the helper has something to say, or is gone; 0 when DEADLINE passed. */
static bool has_reply(const struct channels *ch, int64_t deadline)
{
	struct pollfd pfd = { .fd = ch->reply[0], .events = POLLIN };
	int n;

	do {
		n = poll(&pfd, 1, clock_left_ms(deadline));
	} while (n < 0 && errno == EINTR);
	return n != 0; /* what poll cannot tell, reading will */
}

bool helper_follow(struct child *c, struct channels *ch, const struct exec_options *opt)
{
	int64_t kill_at;
	int next_ms;

	if (!opt->watch)
		return false;
	do {
		next_ms = opt->watch(opt->watch_ctx);
		if (next_ms >= 0 && has_reply(ch, clock_deadline(next_ms)))
			return false;
	} while (next_ms >= 0);

	kill_at = clock_deadline(GRACE_MS);
	(void)child_kill(c, SIGTERM);
	while (next_ms > EXEC_END_NOW && clock_boot_ns() < kill_at) {
		if (has_reply(ch, clock_deadline(LOOK_MS)))
			return true;
		next_ms = opt->watch(opt->watch_ctx);
	}
	close_fd(&ch->lifeline[1]);
	return true;
}
