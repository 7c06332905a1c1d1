/* SPDX-License-Identifier: Apache-2.0 */
/* Small fixed allocations: they abort when memory is gone (crash-only; recovery copes).
 * Allocations sized by input use malloc and return -ENOMEM. */
#ifndef UTIL_MEM_H
#define UTIL_MEM_H

#include <stddef.h>

void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *s); /* NULL stays NULL */
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((__format__(__printf__, 1, 2)));

/* Frees what is owned through a pointer to const, as in structs that others only read. */
void free_const(const void *p);

/* Growing arrays: makes room for NEED elements of SIZE bytes; *cap is in elements.
 * 0 or -ENOMEM; *p untouched on failure. */
int grow(void **p, size_t *cap, size_t need, size_t size);

#endif
