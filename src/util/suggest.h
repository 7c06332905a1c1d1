/* SPDX-License-Identifier: Apache-2.0 */
/* "did you mean ...?": the nearest of several words, when they are near enough to be a slip. */
#ifndef UTIL_SUGGEST_H
#define UTIL_SUGGEST_H

#include <stddef.h>
#include "util/error.h"

#define SUGGEST_MAX  3  /* more is no help */
#define SUGGEST_WORD 64 /* longer words are not compared */

struct suggestions {
	const char *wanted;
	size_t distance; /* of each in `best` */
	size_t n;        /* of `best` */
	char best[SUGGEST_MAX][SUGGEST_WORD + 1];
};

/* WORD, LEN bytes long, is one of those that could have been meant. */
void suggest_try(struct suggestions *s, const char *word, size_t len);
/* "did you mean 'BEFOREword'?", with all that are equally near; nothing when none is near. */
void suggest_hint(const struct suggestions *s, const char *before, struct error *err);

#endif
