/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long answers that are written, not read: the writer runs in a thread of its own and waits whenever
 * FEED_BYTES lie unread, so an answer of any length takes the same memory.
 *
 * What is written into the first FEED_BYTES is held back until there is more, or the end: so a failure
 * that comes early is an answer of its own, and a short answer has a length.
 */
#ifndef DAEMON_FEED_H
#define DAEMON_FEED_H

#include <stdio.h>
#include "daemon/call.h"

#define FEED_BYTES (64u << 10)

struct feed_source {
	const char *type;
	/* Writes it all. It outlives the handler, and so uses nothing of the call. Negative: broken off. It
	 * ends early when OUT fails: nobody reads any more then. */
	int (*write)(void *arg, FILE *out);
	/* After a failure before anything was sent: the reason, into c->err or c->res. */
	void (*failed)(void *arg, struct call *c);
	void (*done)(void *arg); /* once, whatever happens, after the last of the others */
	void *arg;
};

/* 0: the request is answered, or will be. Negative: what write() came to. */
int feed_reply(struct call *c, const struct feed_source *source);

#endif
