/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idempotency-Key where the answer holds a secret. Such an answer is kept in memory only, for a while, and
 * left out of core dumps: who asks again with the same key, because the answer was lost, gets it again.
 * After a restart nobody has it any more; then the former credential, which the store finds by the
 * request's digest, is revoked and another one made (auth/credential.h).
 *
 *   issued_begin()   NEW: this request makes the credential, and then calls issued_end(); AGAIN: here is
 *                    the answer; BUSY: another request with this key is under way (409); OTHER: the key
 *                    was used for something else (422)
 */
#ifndef DAEMON_ISSUED_H
#define DAEMON_ISSUED_H

#include "auth/credential.h"

enum issued { ISSUED_NEW = 0, ISSUED_AGAIN, ISSUED_BUSY, ISSUED_OTHER };

/* Never ends; before there are threads. */
void issued_open(void);
void issued_close(void); /* wipes all */

/* REQUEST and BODY are digests: of who asks for what with which key, and of what exactly. */
enum issued issued_begin(const char *request, const char *body, struct secret *ret_secret,
                         struct credential_row *ret_row);
/* SECRET NULL: nothing was made. */
void issued_end(const char *request, const struct secret *secret, const struct credential_row *row);

#endif
