/* SPDX-License-Identifier: Apache-2.0 */
/* Unguessable names. */
#include "util/random.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *out, size_t len)
{
	unsigned char *p = out;

	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		/* A name that can be guessed is worse than none. */
		if (n < 0)
			abort();
		p += n;
		len -= (size_t)n;
	}
}

void random_hex(char *out, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	/* One random byte per digit: half of it is thrown away, and odd lengths need no care. */
	random_bytes(out, len);
	for (size_t i = 0; i < len; i++)
		out[i] = digits[(unsigned char)out[i] & 0xf];
	out[len] = '\0';
}
