/* SPDX-License-Identifier: Apache-2.0 */
#include "util/sha256.h"

#include "util/error.h"
#include "util/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define DIGEST_LEN 32

static struct {
	pthread_once_t once;
	bool is_there;
	unsigned char *(*sha256)(const unsigned char *data, size_t len, unsigned char *out);
	int (*compare)(const void *a, const void *b, size_t len);
} lib = { .once = PTHREAD_ONCE_INIT };

static void open_library(void)
{
	/* Never closed: threads may be in it until the process ends. */
	void *h = dlopen(ATOLL_LIBCRYPTO, RTLD_NOW | RTLD_LOCAL);

	lib.is_there = h && library_find(h, "SHA256", &lib.sha256, sizeof(lib.sha256)) &&
	               library_find(h, "CRYPTO_memcmp", &lib.compare, sizeof(lib.compare));
}

int sha256_text(const void *data, size_t len, char out[SHA256_TEXT_LEN])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char sum[DIGEST_LEN];

	(void)pthread_once(&lib.once, open_library);
	if (!lib.is_there || !lib.sha256(data, len, sum))
		return -ATOLL_E_UNSUPPORTED;
	for (size_t i = 0; i < sizeof(sum); i++) {
		out[2 * i] = digits[sum[i] >> 4];
		out[2 * i + 1] = digits[sum[i] & 0xf];
	}
	out[SHA256_TEXT_LEN - 1] = '\0';
	return 0;
}

bool sha256_text_equal(const char a[SHA256_TEXT_LEN], const char b[SHA256_TEXT_LEN])
{
	return lib.compare(a, b, SHA256_TEXT_LEN) == 0;
}
