/* SPDX-License-Identifier: Apache-2.0 */
/* A list of owned strings. */
#include "util/list.h"

#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void strlist_add(struct strlist *l, const char *s)
{
	void *v = l->v;

	if (grow(&v, &l->cap, l->n + 1, sizeof(*l->v)) < 0)
		abort();
	l->v = v;
	l->v[l->n++] = xstrdup(s);
}

bool strlist_has(const struct strlist *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->v[i], s) == 0)
			return true;
	return false;
}

static int by_bytes(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return strcmp(*x, *y);
}

void strlist_sort(struct strlist *l)
{
	if (l->n > 1)
		qsort(l->v, l->n, sizeof(*l->v), by_bytes);
}

void strlist_done(struct strlist *l)
{
	int saved = errno;

	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = STRLIST_INIT;
	errno = saved;
}
