/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers. A handler answers once, by one of these; each returns 0, or a negative code with c->err
 * set and nothing answered, so that a handler can end with `return reply_json(...)`.
 *
 * Every answer has X-Request-Id, Cache-Control: no-store and X-Content-Type-Options: nosniff.
 * Failures are problem documents (RFC 9457), made from the same codes as everywhere.
 */
#ifndef DAEMON_REPLY_H
#define DAEMON_REPLY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "daemon/call.h"
#include "util/json.h"

/* Adds a header to the answer that comes. NAME is not copied, VALUE is. */
void reply_header(struct call *c, const char *name, const char *value);

/* FILL writes one whole value. When it fails (negative) nothing of it is sent. */
typedef int (*reply_fill_fn)(struct json *j, void *arg);
int reply_json(struct call *c, unsigned status, reply_fill_fn fill, void *arg);
/* Takes TEXT, which came from malloc(), also on failure. */
int reply_text(struct call *c, unsigned status, const char *type, char *text, size_t len);
/* TEXT lives as long as the program. */
int reply_static(struct call *c, unsigned status, const char *type, const char *text, size_t len);
int reply_empty(struct call *c, unsigned status);

/* The problem document of an error; its status by error_code_http(). Takes what is in ERR. */
int reply_error(struct call *c, struct error *err);
/* The same with a status of its own. */
int reply_error_as(struct call *c, unsigned status, struct error *err);
/* The problem document of what a call on c->atoll came to (R < 0, and c->res). */
int reply_result(struct call *c, int r);

/*
 * An answer of unknown length. READ puts up to SIZE bytes into BUF and returns how many; 0: the end;
 * negative: broken off, so that the client does not take it for whole. It may block, as the thread is
 * the connection's own; then it polls call_stop_fd() too, and ends. DONE (may be NULL) is called once,
 * whatever happens, after the last READ; also when this fails.
 */
struct reply_stream {
	const char *type;
	ssize_t (*read)(void *arg, char *buf, size_t size);
	void (*done)(void *arg);
	void *arg;
};
int reply_stream(struct call *c, unsigned status, const struct reply_stream *s);

/* Queues a response made by hand, with the common headers added; drops the caller's reference. */
int reply_response(struct call *c, unsigned status, struct MHD_Response *response);

/* ---- answers that hold until the store changes ---- */

/* One per thing that is worth it, static: { .mutex = PTHREAD_MUTEX_INITIALIZER }. */
struct reply_cache;
/* As reply_json() with 200, but FILL is called only when the store has changed since it was last.
 * What FILL writes must depend on the registry alone; it answers 1 when this time it does not. */
int reply_cached(struct call *c, struct reply_cache *cache, reply_fill_fn fill, void *arg);

#endif
