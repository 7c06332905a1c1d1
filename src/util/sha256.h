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

#endif
