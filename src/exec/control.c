/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptor's flags are the caller's too: it is asked before it is read, and stays as it is. */
#include "exec/control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static bool is_ready(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

static int read_next(struct control *c)
{
	while (!c->ended && is_ready(c->fd)) {
		unsigned char byte;
		ssize_t n = read(c->fd, &byte, 1);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		c->ended = n != 1;
		if (n == 1 && byte > 0 && byte <= SIGRTMAX)
			return byte;
	}
	return 0;
}

int control_next(struct control *c)
{
	for (int sig = 1; c->pending && sig <= SIGRTMAX; sig++) {
		if (!(c->pending >> (sig - 1) & 1))
			continue;
		c->pending &= ~(UINT64_C(1) << (sig - 1));
		return sig;
	}
	return read_next(c);
}

bool control_cancels(void *control)
{
	static const int final[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGKILL };
	struct control *c = control;
	int sig;

	while ((sig = read_next(c))) {
		c->pending |= UINT64_C(1) << (sig - 1);
		for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++)
			c->ended |= sig == final[i];
	}
	return c->ended;
}
