/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked for: tables of routes, one per file api-*.c, listed in route.c. A new operation is
 * one row: method, path, who may, what its body may weigh, and the function that answers.
 */
#ifndef DAEMON_ROUTE_H
#define DAEMON_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include "daemon/auth.h"

#define ROUTE_ARGS 4 /* {..} in a path at most */

struct call;

enum route_flag {
	ROUTE_OPEN = 1u << 0,    /* needs no credentials */
	ROUTE_DATA = 1u << 1,    /* data plane: only a token of the plan, or the socket's own uid */
	ROUTE_CREATES = 1u << 2, /* Idempotency-Key is honoured */
	ROUTE_STREAM = 1u << 3,  /* its answer has no end of its own; ended at once by a stop */
	ROUTE_FILTERS = 1u << 4, /* names no plan, and shows a token's bearer its own plan only */
	ROUTE_STORE = 1u << 5,   /* c->atoll is an open store */
};

/* Bits for struct route.scopes. An admin may everything, and need not be named. */
#define MAY_ADMIN  (1u << SCOPE_ADMIN)
#define MAY_AGENT  (1u << SCOPE_AGENT)
#define MAY_REVIEW (1u << SCOPE_REVIEW)
#define MAY_ALL    (MAY_ADMIN | MAY_AGENT | MAY_REVIEW)

struct route {
	const char *method; /* NULL ends a table */
	const char *path;   /* "/v1/plans/{plan}/commit"; a {..} is one segment */
	unsigned scopes;    /* MAY_* */
	unsigned flags;     /* ROUTE_* */
	size_t body_max;    /* bytes; 0: no body */
	/* 0: it answered (reply.h), once. Negative: it did not, and the answer is made of c->err, or
	 * where that is not set of c->res. */
	int (*handle)(struct call *c);
};

struct route_match {
	const struct route *route; /* NULL: no such path, or not with this method */
	char *args[ROUTE_ARGS];    /* decoded; the owner frees */
	size_t n_args;
	bool known_path; /* the path is there, and allow says with which methods */
	char allow[64];  /* "GET, POST" */
};

/* PATH is as sent, without the query, and has passed the guard. -ATOLL_E_NOT_FOUND when nothing
 * matches: see known_path. */
int route_find(const char *method, const char *path, struct route_match *ret);
void route_match_done(struct route_match *m);

/* May WHO use it, with these arguments? A bearer bound to a plan must name that plan by its id in
 * the path. 0, or -ATOLL_E_DENIED with the reason. */
int route_allows(const struct route_match *m, const struct identity *who, struct error *err);

/* Is every word of QUERY (or NULL) known to it? One that is not may be one that matters, misspelt. 0, or
 * -ATOLL_E_INVALID. */
int route_knows(const struct route *r, const char *query, struct error *err);

/* The number of the {..} that names the plan, or a sandbox of it; -1: none does. */
int route_plan_arg(const struct route *r);

/* The I'th of all routes, NULL after the last; its number is what metrics count by. */
const struct route *route_at(size_t i);
size_t route_number(const struct route *r);
#define ROUTES_MAX 96

/* ---- the tables ---- */

extern const struct route core_routes[];   /* api-core.c: /healthz /readyz /metrics */
extern const struct route spec_routes[];   /* api-spec.c: /openapi.json */
extern const struct route auth_routes[];   /* api-auth.c: /v1/sandboxes/{sandbox}/auth */
extern const struct route key_routes[];    /* api-keys.c: /v1/keys */
extern const struct route plan_routes[];   /* api-plans.c */
extern const struct route diff_routes[];   /* api-diff.c */
extern const struct route decide_routes[]; /* api-decide.c: commit, undo, reset, ... */
extern const struct route log_routes[];    /* api-log.c */
extern const struct route event_routes[];  /* api-events.c */
extern const struct route job_routes[];    /* api-jobs.c */
extern const struct route ask_routes[];    /* api-asks.c: asks for a commit */
extern const struct route house_routes[];  /* api-house.c: locks, recover, clean, doctor, version */
extern const struct route exec_routes[];   /* api-exec.c: commands */
extern const struct route session_routes[]; /* api-sessions.c: of remote clients */

#endif
