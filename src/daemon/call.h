/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, from its first line to the last byte of its answer. It belongs to the thread of its
 * connection; nobody else touches it.
 *
 *   made       when the request line has come: id, time, target as sent
 *   guarded    its head was found good (guard.h): path, query, match, who are set
 *   whole      the body is there: the handler runs, with a store if the route wants one
 *   answered   a handler or the core has queued the one response (reply.h)
 *   gone       sent, or the client went: logged, counted, freed; a store is given back
 *
 * A request that is refused goes from "made" straight to "answered", and its connection is closed.
 */
#ifndef DAEMON_CALL_H
#define DAEMON_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <atoll.h>
#include "daemon/auth.h"
#include "daemon/route.h"
#include "util/error.h"

struct MHD_Connection;
struct MHD_Response;
struct daemon;
struct peer;

#define CALL_ID_LEN  24
#define CALL_HEADERS 8

struct call {
	struct daemon *d;
	struct MHD_Connection *connection;
	struct peer *peer;         /* the connection's other end */
	const struct route *route; /* NULL: refused before routing */
	char **args;               /* decoded {..} of the path, in order; those of match */
	char id[CALL_ID_LEN];      /* X-Request-Id */
	char *target;              /* request target as sent */
	char *path;                /* of it, as sent */
	const char *query;         /* of it, as sent, without '?'; or NULL */
	const char *method;
	struct route_match match;
	char *body; /* body_len bytes and a NUL; "" when there was none */
	size_t body_len;
	struct identity who;
	struct atoll *atoll;      /* with ROUTE_STORE: an open store, for this request alone */
	struct atoll_result *res; /* for calls on it; with ROUTE_STORE */
	struct error err;         /* a handler's own failure */

	/* the rest is for serve.c and reply.c */
	const char *raw_target; /* target, where it was received */
	size_t body_size;       /* as announced */
	bool seen;              /* the head was looked at */
	uint64_t answer_len;    /* of the body, where it is known */
	bool answered;
	bool is_asked;    /* in the audit log; and how it went is not yet */
	char outcome[40]; /* for the audit log, beside "ok": which credential was made or revoked */
	bool close;       /* the connection ends with this answer */
	unsigned status;
	int64_t began_ns; /* CLOCK_BOOTTIME */
	struct {
		const char *name;
		char *value;
	} headers[CALL_HEADERS]; /* for the response */
	size_t n_headers;
};

/* The header's value, or NULL; the guard has seen that there is one at most of those that matter. */
const char *call_header(const struct call *c, const char *name);
/* A query parameter, decoded; NULL: not given. -ATOLL_E_INVALID (c->err) when it is given twice or
 * cannot be decoded. Caller frees. */
int call_query(struct call *c, const char *name, char **ret);
/* The connection's descriptor, for poll() with POLLRDHUP. Not to be read or written. */
int call_fd(const struct call *c);
/* Readable once the daemon stops; for poll(). Never read it. */
int call_stop_fd(const struct call *c);
/* Opens the store, for c->atoll and c->res, as ROUTE_STORE does before the handler runs; for one that
 * needs it only sometimes. */
int call_store(struct call *c);
/* Finds the plan that args[I] names, with c->atoll; c->res or c->err says why not. In full: a program has
 * no use for "the only one that begins so", and what it would decide about is another one tomorrow. */
int call_plan(struct call *c, size_t i, struct atoll_plan **ret);

#endif
