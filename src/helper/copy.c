/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever reads one of the streams slowly must not hold up the other: nothing is read of a stream
 * before the last of it was passed on, and no more is written at once than a pipe that can be written
 * to takes without waiting.
 */
#include "helper/copy.h"

#include "helper/flow.h"
#include "helper/keep.h"
#include "util/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STREAMS 2

struct stream {
	int from, to; /* FD_NONE: at its end; not passed on */
	struct flow flow;
};

static void read_some(struct stream *s, struct keep *k)
{
	ssize_t n = read(s->from, s->flow.data, FLOW_MAX);

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close_fd(&s->from);
		return;
	}
	keep_add(k, s->flow.data, (size_t)n);
	s->flow.begin = 0;
	s->flow.end = s->to == FD_NONE ? 0 : (size_t)n;
}

static void write_some(struct stream *s)
{
	struct flow *f = &s->flow;
	size_t left = f->end - f->begin;
	ssize_t n = write(s->to, f->data + f->begin, left < PIPE_BUF ? left : PIPE_BUF);

	if (n >= 0)
		f->begin += (size_t)n;
	else if (errno != EINTR && errno != EAGAIN)
		close_fd(&s->from); /* as without us: the command hears of it */
	if (s->from == FD_NONE)
		f->begin = f->end;
}

static bool is_open(const struct stream *s)
{
	return s->from != FD_NONE || flow_has_more(&s->flow);
}

static void copy_all(struct stream s[STREAMS], struct keep *k)
{
	while (is_open(&s[0]) || is_open(&s[1])) {
		struct pollfd fds[STREAMS];

		for (int i = 0; i < STREAMS; i++)
			fds[i] = flow_has_more(&s[i].flow)
			                 ? (struct pollfd){ .fd = s[i].to, .events = POLLOUT }
			                 : (struct pollfd){ .fd = s[i].from, .events = POLLIN };
		if (poll(fds, STREAMS, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < STREAMS; i++) {
			if (!fds[i].revents)
				continue;
			if (flow_has_more(&s[i].flow))
				write_some(&s[i]);
			else
				read_some(&s[i], k);
		}
	}
}

int copy_run(const char *dir, const char *max, const char *pass)
{
	static struct stream s[STREAMS];
	bool passes = strcmp(pass, "1") == 0;
	struct keep k;

	flow_ignore_signals();
	(void)signal(SIGTSTP, SIG_IGN);
	(void)signal(SIGTTOU, SIG_IGN);
	keep_open(&k, dir, max);
	s[0] = (struct stream){ .from = COPY_OUTPUT_FD, .to = passes ? STDOUT_FILENO : FD_NONE };
	s[1] = (struct stream){ .from = COPY_ERROR_FD, .to = passes ? STDERR_FILENO : FD_NONE };
	copy_all(s, &k);
	return keep_close(&k) ? EXIT_SUCCESS : EXIT_FAILURE;
}
