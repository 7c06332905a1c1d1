/* SPDX-License-Identifier: Apache-2.0 */
/* Distance between two words: letters added, left out or changed, neighbours swapped. */
#include "cli/suggest.h"

#include <stdint.h>
#include <string.h>

#define WORD_MAX 32

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t d[WORD_MAX + 1][WORD_MAX + 1];

	for (size_t i = 0; i <= a_len; i++)
		d[i][0] = i;
	for (size_t k = 0; k <= b_len; k++)
		d[0][k] = k;
	for (size_t i = 1; i <= a_len; i++) {
		for (size_t k = 1; k <= b_len; k++) {
			size_t change = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);

			d[i][k] = least(change, least(d[i - 1][k], d[i][k - 1]) + 1);
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
		}
	}
	return d[a_len][b_len];
}

void suggest_try(struct suggestion *s, const char *word)
{
	size_t wanted_len = strlen(s->wanted);
	size_t word_len = strlen(word);
	size_t far, d;

	if (wanted_len == 0 || wanted_len > WORD_MAX || word_len > WORD_MAX)
		return;
	d = distance(s->wanted, wanted_len, word, word_len);
	/* The beginning of a word is a hint whatever is missing of the rest. */
	if (wanted_len >= 3 && strncmp(word, s->wanted, wanted_len) == 0)
		d = 1;
	far = wanted_len < 4 ? 1 : 2;
	if (d > far || (s->best && d >= s->distance))
		return;
	s->best = word;
	s->distance = d;
}
