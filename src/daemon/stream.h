/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An upgraded connection: frames (sync/frame.h) both ways, in that connection's thread. What the frames
 * mean is their protocol's business (exec-stream.h, sync-stream.h).
 *
 * One frame each way is all that is ever held: nothing is put before the last one is away.
 */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/call.h"
#include "daemon/wire.h"
#include "sync/frame.h"
#include "util/error.h"
#include "util/json.h"

struct stream {
	struct daemon *d;
	struct wire wire;
	struct identity who;
	char id[CALL_ID_LEN];
	struct atoll *atoll; /* the session's own */
	struct atoll_plan *plan;
	struct atoll_result *res;
	bool gone;        /* the client, or its connection is of no use */
	struct error err; /* of the session's own: what the client is told */
	unsigned status;  /* for that; 0: by its code */
	size_t out_begin, out_end;
	struct frame_reader reader;
	unsigned char out[FRAME_HEAD + FRAME_MAX];
};

/* Answers 101; SERVE then has the connection, until it returns. It is not called when the plan is gone by
 * then. PATIENT: a client that vanishes without a word is found out within half a minute, else within
 * five seconds. */
struct stream_protocol {
	const char *name;
	bool patient;
	enum frame_side from; /* the client */
	void (*serve)(struct stream *s);
};
int stream_reply(struct call *c, const struct stream_protocol *protocol);
/* Refuses another protocol, a body, a plan that is not there; else the same. */
int stream_upgrade(struct call *c, const struct stream_protocol *protocol);

/* ---- to the client ---- */

/* May a frame be put? */
bool stream_is_free(const struct stream *s);
/* LEN bytes are at out + FRAME_HEAD. */
void stream_put(struct stream *s, enum frame_type type, size_t len);
/* One JSON object. What does not fit is not sent: no text of ours is that long. */
typedef void (*stream_fill_fn)(struct json *j, const void *arg);
void stream_put_json(struct stream *s, enum frame_type type, stream_fill_fn fill, const void *arg);
/* What the connection takes. */
void stream_send(struct stream *s);
/* Until all is away; a client that does not read has had its time then, and is gone. */
void stream_flush(struct stream *s);
/* Both, after what is on its way. */
void stream_say(struct stream *s, enum frame_type type, stream_fill_fn fill, const void *arg);

/* ---- from the client ---- */

/* A negative answer ends the session. */
typedef int (*stream_take_fn)(struct stream *s, const struct frame *f, void *arg);
/* Frames that are here already; MAY (or NULL) says whether one more can be taken. */
struct stream_taker {
	stream_take_fn take;
	bool (*may)(const void *arg);
	void *arg;
};
int stream_take(struct stream *s, const struct stream_taker *t);
/* And those that have come. Negative: the session is over, and s->err says why unless the client is gone. */
int stream_receive(struct stream *s, const struct stream_taker *t);
/* Waits for some, until DEADLINE (clock.h): 0; -ATOLL_E_TIMEOUT, and s->err is not set; or as above. */
int stream_wait(struct stream *s, const struct stream_taker *t, int64_t deadline);

/* Sets s->err unless it is set; returns CODE. */
int stream_fail(struct stream *s, int code, unsigned status, const char *what);

/* The client has a moment to close first: with unread bytes on our side, closing could take from it what
 * is still on its way. */
void stream_linger(struct stream *s);

#endif
