/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks. Every request that is not for all (ROUTE_OPEN) has an identity, found once, before its
 * body is read: by the credentials of the peer of the Unix socket, or by what is in "Authorization".
 *
 * What an identity may do is said by the route (route.h) and decided in one place, route_allows().
 */
#ifndef DAEMON_AUTH_H
#define DAEMON_AUTH_H

#include <stdbool.h>
#include <stdint.h>
#include "registry/registry.h"
#include "util/error.h"

enum scope {
	SCOPE_ADMIN = 0, /* everything */
	SCOPE_AGENT,     /* works, and asks for commits */
	SCOPE_REVIEW,    /* looks everywhere, commits, rolls back */
	SCOPE_END_
};
const char *scope_name(enum scope s);

#define IDENTITY_NAME_LEN 80

struct identity {
	char name
		[IDENTITY_NAME_LEN]; /* for logs: "uid 1000", "key ci", "token of fix-42"; no secret */
	enum scope scope;
	char plan[PLAN_ID_LEN + 1]; /* the only plan it may touch; "": any */
	bool by_socket;             /* the Unix socket's own uid */
	int64_t credential;         /* row of the key or token; 0: by_socket */
};

struct auth_request {
	int fd;                    /* of the connection */
	bool is_unix;              /* it has peer credentials */
	const char *authorization; /* the header's value, or NULL */
	const char *peer;          /* address without port; "" on a Unix socket */
};

struct auth;

int auth_open(struct auth **ret, struct error *err);
void auth_close(struct auth *a); /* NULL is fine */

/* 0 and *ret. -ATOLL_E_DENIED: no credentials, or wrong ones (401). -EAGAIN: too many requests of
 * this peer or identity; *ret_retry_s says when to come again (429). Runs in many threads at once.
 * ERR never repeats what was sent. */
int auth_check(struct auth *a, const struct auth_request *q, struct identity *ret,
               unsigned *ret_retry_s, struct error *err);

#endif
