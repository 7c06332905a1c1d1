/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's end of atoll-sync/1: frames (sync/frame.h) over an upgraded connection (http.h).
 *
 *   connected   nothing was said yet
 *   opened      the plan over there is ours until close, or until the connection is gone
 *   ended       closed, or lost: nothing more is sent or received
 *
 * A step is asked for by a frame and answered by one: connection_ask(). What else comes meanwhile, notices
 * and pongs, is taken here. An error frame ends the step, and is the step's failure, in the daemon's own
 * words; whether the session goes on it says itself.
 *
 * Not thread-safe. One frame each way is all that is ever held.
 */
#ifndef REMOTE_CONNECTION_H
#define REMOTE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "remote/session.h"
#include "sync/frame.h"
#include "util/error.h"
#include "util/strbuf.h"

struct connection {
	struct remote_session *session; /* lent */
	struct remote_link *link;
	const char *doing; /* the step under way, for "... while DOING"; lives for ever */
	void (*notice)(void *user, const char *message);
	void *user;
	int64_t suspended_ns; /* this machine, before it was opened */
	bool ended;
	bool refused;      /* an error frame came */
	struct frame held; /* seen while sending, and not told yet */
	bool has_held;
	size_t out_begin, out_end; /* of what is on its way */
	struct frame_reader reader;
	unsigned char out[FRAME_HEAD + FRAME_MAX];
};

/* Connects to the plan of S. -ATOLL_E_NOT_FOUND: that plan is gone. NOTICE may be NULL. */
int connection_open(struct remote_session *s, void (*notice)(void *user, const char *message),
                    void *user, struct connection **ret, struct error *err);
void connection_free(struct connection *c); /* accepts NULL */
void connection_freep(struct connection **c);
#define cleanup_connection __attribute__((__cleanup__(connection_freep)))

/* ---- with waiting ---- */

/* One frame, all of it. What the daemon says meanwhile is taken: -ECANCELED or its own code when that
 * is an error. */
int connection_send(struct connection *c, enum frame_type type, const void *data, size_t len,
                    struct error *err);
/* The rest of a frame that was put; before that, nothing else may be sent. */
int connection_drain(struct connection *c, struct error *err);
/* The next frame that is no notice. Its data is there until the next call. */
int connection_next(struct connection *c, struct frame *ret, struct error *err);
/* Sends TYPE with the JSON in TEXT, and waits for a frame of type ANSWER, whose JSON RET gets. */
int connection_ask(struct connection *c, enum frame_type type, const char *text,
                   enum frame_type answer, struct strbuf *ret, struct error *err);

/* ---- without ---- */

/* 1 and the next frame, notices too; 0: there is none now. Never an error frame: that is a failure. */
int connection_try_next(struct connection *c, struct frame *ret, struct error *err);
/* Nothing is on its way: a frame may be put. */
bool connection_is_idle(const struct connection *c);
/* Where the data of the next frame may be put: FRAME_MAX bytes. Only while idle. */
unsigned char *connection_room(struct connection *c);
void connection_put(struct connection *c, enum frame_type type, size_t len);
/* As far as it goes now. */
int connection_flush(struct connection *c, struct error *err);
/* To poll for POLLIN, and for POLLOUT unless idle, after connection_try_next() had nothing. */
int connection_fd(const struct connection *c);

#endif
