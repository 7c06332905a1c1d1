/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ways to get a credential by HTTP share: once for each Idempotency-Key, and an answer that
 * holds a secret. */
#ifndef DAEMON_GRANT_H
#define DAEMON_GRANT_H

#include "auth/credential.h"
#include "daemon/call.h"
#include "daemon/reply.h"

/* Makes the credential; REQUEST is the digest to keep with it, or "". */
typedef int (*grant_make_fn)(struct call *c, void *arg, const char *request,
                             struct secret *ret_secret, struct credential_row *ret_row);
/* Writes the answer, an object. */
typedef void (*grant_fill_fn)(struct json *j, const struct secret *secret,
                              const struct credential_row *row);
struct grant {
	const char *subject; /* what is asked for, whatever it was called in the path */
	grant_make_fn make;
	void *arg;
	grant_fill_fn fill;
};
/* As a handler: 201, or a failure. */
int grant_answer(struct call *c, const struct grant *g);

#endif
