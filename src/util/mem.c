/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that abort instead of failing, and growing arrays. */
#include "util/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROW_MIN 8

/* Whoever finds the process gone learns why. */
static _Noreturn void out_of_memory(void)
{
	static const char text[] =
		"atoll: out of memory; what is under way is settled by: atoll recover\n";

	(void)write(STDERR_FILENO, text, sizeof(text) - 1);
	abort();
}

static void *must(void *p)
{
	if (!p)
		out_of_memory();
	return p;
}

void *xcalloc(size_t n, size_t size)
{
	/* calloc(0, ...) may answer NULL without having failed. */
	if (n == 0 || size == 0)
		n = size = 1;
	if (n > PTRDIFF_MAX / size)
		out_of_memory();
	return must(calloc(n, size));
}

char *xstrdup(const char *s)
{
	return s ? must(strdup(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	return s ? must(strndup(s, n)) : NULL;
}

char *xasprintf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n < 0)
		out_of_memory();
	return s;
}

void free_const(const void *p)
{
	union {
		const void *in;
		void *out;
	} u = { .in = p };

	free(u.out);
}

int grow(void **p, size_t *cap, size_t need, size_t size)
{
	size_t want = *cap < GROW_MIN ? GROW_MIN : *cap;
	void *old, *bigger;

	if (need <= *cap)
		return 0;
	while (want < need) {
		if (want > SIZE_MAX / 2)
			return -ENOMEM;
		want *= 2;
	}
	if (want > PTRDIFF_MAX / size)
		return -ENOMEM;

	/* P is the address of a pointer of another type, cast: copy it, as its bytes may be read
	 * under any type while the pointer itself may not. */
	memcpy(&old, p, sizeof(old));
	bigger = realloc(old, want * size);
	if (!bigger)
		return -ENOMEM;
	memcpy(p, &bigger, sizeof(bigger));
	*cap = want;
	return 0;
}
