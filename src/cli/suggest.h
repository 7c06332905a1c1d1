/* SPDX-License-Identifier: Apache-2.0 */
/* "did you mean ...?": the nearest of several words, when it is near enough to be a slip. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

struct suggestion {
	const char *wanted;
	const char *best; /* NULL: nothing is near */
	size_t distance;
};

void suggest_try(struct suggestion *s, const char *word);

#endif
