/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3 (128 bits) over streams: tells a damaged record from a good one, and equal bytes from
 * different ones. It is no defence against somebody who can write the store (mode 0700).
 */
#ifndef UTIL_HASH_H
#define UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_TEXT_LEN 33 /* 32 hex digits and NUL */
#define HASH_SIZE     16

struct hash;
struct hash *hash_new(void);
void hash_add(struct hash *h, const void *data, size_t len);
void hash_text(struct hash *h, char out[HASH_TEXT_LEN]);       /* may go on adding */
void hash_bytes(struct hash *h, unsigned char out[HASH_SIZE]); /* the same digits as bytes */
uint64_t hash_sum64(struct hash *h);                           /* hash64() of all that was added */
void hash_reset(struct hash *h);                               /* as new */
void hash_free(struct hash *h);

void hash_buffer(const void *data, size_t len, char out[HASH_TEXT_LEN]);
uint64_t hash64(const void *data, size_t len);
void hash128(const void *data, size_t len, unsigned char out[HASH_SIZE]);

void cleanup_hashp(struct hash **h);
#define cleanup_hash __attribute__((__cleanup__(cleanup_hashp)))

#endif
