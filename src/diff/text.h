/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing two texts line by line. The work is libgit2's, which is opened when the first two texts
 * that both hold something are compared: a program that compares none does not pay for it, and texts
 * that come or go whole need no library.
 *
 * Text is what git takes for text: no NUL among the first 8000 bytes. Both texts lie in memory, so
 * they are bounded (LIMIT_TEXT, LIMIT_TEXT_LINES); what is larger is for the caller to show by its
 * size. Any number of threads may compare at once.
 */
#ifndef DIFF_TEXT_H
#define DIFF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

struct text {
	const char *data;
	size_t len;
};

bool text_is_binary(const struct text *t);
/* Lines; the last one need not end. */
uint64_t text_lines(const struct text *t);

struct text_count {
	uint64_t added, deleted; /* lines */
};

/* One line of the comparison, without its end. ORIGIN: '@' the head of a hunk, ' ' a line of both,
 * '+' of the new, '-' of the old, '\\' the line before has no end. A negative answer ends. */
typedef int (*text_fn)(void *ctx, char origin, const char *line, size_t len);

/* FN NULL: only counted, which is quicker. CONTEXT: lines shown around a change. *RET may be NULL.
 * -ATOLL_E_UNSUPPORTED without libgit2. */
int text_compare(const struct text *before, const struct text *after, unsigned context, text_fn fn,
                 void *ctx, struct text_count *ret, struct error *err);

#endif
