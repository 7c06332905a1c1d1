/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a secret looks like: a prefix ("atk_" of a key, "ats_" of a sandbox's token), 43 letters and
 * digits at random (256 bits), and 6 more that are their checksum, so that programs which look for leaked
 * secrets find no others, and a mistyped one is refused without a look into the store.
 */
#ifndef AUTH_SECRET_H
#define AUTH_SECRET_H

#include <stddef.h>
#include "registry/credential.h"

#define SECRET_LEN 53

struct secret {
	char text[SECRET_LEN + 1];
};
#define SECRET_INIT ((struct secret){ { 0 } })

/* SHA256: of its text, for the store. -ATOLL_E_UNSUPPORTED, said, without libcrypto. */
int secret_make(struct secret *s, enum credential_kind kind, char ret_sha256[SHA256_TEXT_LEN],
                struct error *err);
void secret_wipe(struct secret *s);
#define cleanup_secret __attribute__((__cleanup__(secret_wipe)))
/* The kind that TEXT could be; -EBADMSG: none, or its checksum is wrong. */
int secret_kind(const char *text, size_t len);
/* As secret_make() says. */
int secret_digest(const char *text, size_t len, char ret_sha256[SHA256_TEXT_LEN],
                  struct error *err);

#endif
