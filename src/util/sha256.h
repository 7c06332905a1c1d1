/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256, for what must not be forged: digests of secrets, the chain of the audit log. By libcrypto,
 * which is opened on first use, so that programs which need none start no later. For damage and equality
 * there is util/hash.h.
 */
#ifndef UTIL_SHA256_H
#define UTIL_SHA256_H

#include <stdbool.h>
#include <stddef.h>

#define SHA256_TEXT_LEN 65 /* 64 hex digits and NUL */

/* 0; -ATOLL_E_UNSUPPORTED: there is no libcrypto. */
int sha256_text(const void *data, size_t len, char out[SHA256_TEXT_LEN]);
/* Takes as long for different ones as for equal ones. Only after sha256_text() has worked. */
bool sha256_text_equal(const char a[SHA256_TEXT_LEN], const char b[SHA256_TEXT_LEN]);

/* Piece by piece. */
struct sha256;
/* NULL: there is no libcrypto. */
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, char out[SHA256_TEXT_LEN]); /* nothing can be added any more */
void sha256_free(struct sha256 *s);
void cleanup_sha256p(struct sha256 **s);
#define cleanup_sha256 __attribute__((__cleanup__(cleanup_sha256p)))

#endif
