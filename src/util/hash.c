/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3, compiled in from its header: no library is needed at run time. */
#include "util/hash.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash {
	XXH3_state_t state; /* wants more alignment than malloc gives */
};

struct hash *hash_new(void)
{
	struct hash *h = aligned_alloc(_Alignof(struct hash), sizeof(*h));

	if (!h)
		abort();
	XXH3_INITSTATE(&h->state);
	(void)XXH3_128bits_reset(&h->state);
	return h;
}

void hash_add(struct hash *h, const void *data, size_t len)
{
	if (len > 0)
		(void)XXH3_128bits_update(&h->state, data, len);
}

/* Most significant byte first, as xxhsum prints it. */
static void put_text(XXH128_hash_t sum, char out[HASH_TEXT_LEN])
{
	static const char digits[] = "0123456789abcdef";
	XXH128_canonical_t bytes;

	XXH128_canonicalFromHash(&bytes, sum);
	for (size_t i = 0; i < sizeof(bytes.digest); i++) {
		out[2 * i] = digits[bytes.digest[i] >> 4];
		out[2 * i + 1] = digits[bytes.digest[i] & 0xf];
	}
	out[HASH_TEXT_LEN - 1] = '\0';
}

void hash_text(struct hash *h, char out[HASH_TEXT_LEN])
{
	put_text(XXH3_128bits_digest(&h->state), out);
}

void hash_bytes(struct hash *h, unsigned char out[HASH_SIZE])
{
	XXH128_canonical_t bytes;

	XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&h->state));
	memcpy(out, bytes.digest, HASH_SIZE);
}

/* Both widths are made of the same state. */
uint64_t hash_sum64(struct hash *h)
{
	return XXH3_64bits_digest(&h->state);
}

void hash_reset(struct hash *h)
{
	(void)XXH3_128bits_reset(&h->state);
}

void hash_free(struct hash *h)
{
	free(h);
}

void hash_buffer(const void *data, size_t len, char out[HASH_TEXT_LEN])
{
	put_text(XXH3_128bits(data, len), out);
}

void hash128(const void *data, size_t len, unsigned char out[HASH_SIZE])
{
	XXH128_canonical_t bytes;

	XXH128_canonicalFromHash(&bytes, XXH3_128bits(data, len));
	memcpy(out, bytes.digest, HASH_SIZE);
}

uint64_t hash64(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

void cleanup_hashp(struct hash **h)
{
	hash_free(*h);
}
