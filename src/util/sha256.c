/* SPDX-License-Identifier: Apache-2.0 */
#include "util/sha256.h"

#include "util/error.h"
#include "util/library.h"
#include "util/mem.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_LEN 32

static struct {
	pthread_once_t once;
	bool is_there;
	unsigned char *(*sha256)(const unsigned char *data, size_t len, unsigned char *out);
	int (*compare)(const void *a, const void *b, size_t len);
	void *(*stream_new)(void);
	void (*stream_free)(void *stream);
	const void *(*kind)(void);
	int (*begin)(void *stream, const void *kind, void *engine);
	int (*add)(void *stream, const void *data, size_t len);
	int (*end)(void *stream, unsigned char *out, unsigned *ret_len);
} lib = { .once = PTHREAD_ONCE_INIT };

static void open_library(void)
{
	static const struct {
		const char *name;
		void *function;
		size_t size;
	} wanted[] = {
		{ "SHA256", &lib.sha256, sizeof(lib.sha256) },
		{ "CRYPTO_memcmp", &lib.compare, sizeof(lib.compare) },
		{ "EVP_MD_CTX_new", &lib.stream_new, sizeof(lib.stream_new) },
		{ "EVP_MD_CTX_free", &lib.stream_free, sizeof(lib.stream_free) },
		{ "EVP_sha256", &lib.kind, sizeof(lib.kind) },
		{ "EVP_DigestInit_ex", &lib.begin, sizeof(lib.begin) },
		{ "EVP_DigestUpdate", &lib.add, sizeof(lib.add) },
		{ "EVP_DigestFinal_ex", &lib.end, sizeof(lib.end) },
	};
	/* Never closed: threads may be in it until the process ends. */
	void *h = dlopen(ATOLL_LIBCRYPTO, RTLD_NOW | RTLD_LOCAL);
	bool all = h != NULL;

	for (size_t i = 0; all && i < sizeof(wanted) / sizeof(wanted[0]); i++)
		all = library_find(h, wanted[i].name, wanted[i].function, wanted[i].size);
	lib.is_there = all;
}

static void put_text(const unsigned char sum[DIGEST_LEN], char out[SHA256_TEXT_LEN])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < DIGEST_LEN; i++) {
		out[2 * i] = digits[sum[i] >> 4];
		out[2 * i + 1] = digits[sum[i] & 0xf];
	}
	out[SHA256_TEXT_LEN - 1] = '\0';
}

int sha256_text(const void *data, size_t len, char out[SHA256_TEXT_LEN])
{
	unsigned char sum[DIGEST_LEN];

	(void)pthread_once(&lib.once, open_library);
	if (!lib.is_there || !lib.sha256(data, len, sum))
		return -ATOLL_E_UNSUPPORTED;
	put_text(sum, out);
	return 0;
}

bool sha256_text_equal(const char a[SHA256_TEXT_LEN], const char b[SHA256_TEXT_LEN])
{
	return lib.compare(a, b, SHA256_TEXT_LEN) == 0;
}

/* ---- piece by piece ---- */

struct sha256 {
	void *stream;
};

struct sha256 *sha256_new(void)
{
	struct sha256 *s;

	(void)pthread_once(&lib.once, open_library);
	if (!lib.is_there)
		return NULL;
	s = xcalloc(1, sizeof(*s));
	s->stream = lib.stream_new();
	if (!s->stream || !lib.begin(s->stream, lib.kind(), NULL)) {
		sha256_free(s);
		return NULL;
	}
	return s;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	if (len > 0 && !lib.add(s->stream, data, len))
		BUG("libcrypto could not add to a digest");
}

void sha256_end(struct sha256 *s, char out[SHA256_TEXT_LEN])
{
	unsigned char sum[DIGEST_LEN];
	unsigned len = 0;

	if (!lib.end(s->stream, sum, &len) || len != sizeof(sum))
		BUG("libcrypto could not end a digest");
	put_text(sum, out);
}

void sha256_free(struct sha256 *s)
{
	if (!s)
		return;
	lib.stream_free(s->stream);
	free(s);
}

void cleanup_sha256p(struct sha256 **s)
{
	sha256_free(*s);
}
