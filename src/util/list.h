/* SPDX-License-Identifier: Apache-2.0 */
/* A list of owned strings. */
#ifndef UTIL_LIST_H
#define UTIL_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct strlist {
	char **v;
	size_t n;
	size_t cap;
};
#define STRLIST_INIT ((struct strlist){ 0 })

void strlist_add(struct strlist *l, const char *s);
bool strlist_has(const struct strlist *l, const char *s);
void strlist_sort(struct strlist *l); /* by bytes */
void strlist_done(struct strlist *l);

#define cleanup_strlist __attribute__((__cleanup__(strlist_done)))

#endif
