/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks. Every request that is not for all (ROUTE_OPEN) has an identity, found once, before its
 * body is read: by what is in "Authorization"; where nothing is, by the credentials of the peer of the
 * Unix socket. Whoever gives a key on the socket has the key's rights, and no more.
 *
 * Nothing of a credential is remembered between requests: the store is asked each time, so that what is
 * revoked there, by whatever process, is refused with the next request. Streams that live long are watched
 * (bond.h).
 *
 * What an identity may do is said by the route (route.h) and decided in one place, route_allows().
 */
#ifndef DAEMON_AUTH_H
#define DAEMON_AUTH_H

#include <stdbool.h>
#include <stdint.h>
#include "registry/credential.h"
#include "util/error.h"

#define IDENTITY_NAME_LEN 80

struct identity {
	char name
		[IDENTITY_NAME_LEN]; /* for logs: "uid 1000", "key ci", "token of fix-42"; no secret */
	enum scope scope;
	char plan[PLAN_ID_LEN + 1];       /* the only plan it may touch; "": any */
	bool by_socket;                   /* the Unix socket's own uid, without a credential */
	struct credential_row credential; /* the key or token; its id is "" when by_socket */
};

struct auth_request {
	int fd;                    /* of the connection */
	bool is_unix;              /* it has peer credentials */
	const char *authorization; /* the header's value, or NULL */
	const char *peer;          /* address without port; "" on a Unix socket */
};

struct atoll;
struct auth;
struct bonds;

int auth_open(const char *home, struct auth **ret, struct error *err);
void auth_close(struct auth *a); /* NULL is fine */

/* 0 and *ret. -ATOLL_E_DENIED: no credentials, or wrong ones (401). -EAGAIN: too many wrong ones from
 * this peer; *ret_retry_s says when to come again (429). Runs in many threads at once.
 * ERR never repeats what was sent. */
int auth_check(struct auth *a, const struct auth_request *q, struct identity *ret,
               unsigned *ret_retry_s, struct error *err);
/* Whether what it began may go on: false once the credential is revoked, and when it cannot be told; not
 * when it is merely over. */
bool auth_holds(struct auth *a, const struct identity *who);

/* Of connections whose credential is watched. */
struct bonds *auth_bonds(struct auth *a);
/* The handle it reads with. It waits for nobody: for reading, and for the audit log. */
struct atoll *auth_store(struct auth *a);
/* As rate_failed(), for what somebody known should not have asked for. */
bool auth_notes_refusal(struct auth *a, const struct identity *who);

#endif
