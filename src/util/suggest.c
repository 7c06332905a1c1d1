/* SPDX-License-Identifier: Apache-2.0 */
/* Distance between two words: letters added, left out or changed, neighbours swapped. */
#include "util/suggest.h"

#include "util/strbuf.h"

#include <stdint.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t d[SUGGEST_WORD + 1][SUGGEST_WORD + 1]; /* 33 KiB */

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

/* How far, or SIZE_MAX: too far to be a slip. */
static size_t slip(const char *wanted, const char *word, size_t len)
{
	size_t wanted_len = strlen(wanted), d;

	if (wanted_len == 0 || wanted_len > SUGGEST_WORD || len > SUGGEST_WORD)
		return SIZE_MAX;
	/* The beginning of a word is a hint whatever is missing of the rest. */
	if (wanted_len >= 3 && wanted_len <= len && strncmp(word, wanted, wanted_len) == 0)
		return 1;
	d = distance(wanted, wanted_len, word, len);
	/* What differs in more is another word, not a slip. */
	return d <= 1 + wanted_len / 4 ? d : SIZE_MAX;
}

void suggest_try(struct suggestions *s, const char *word, size_t len)
{
	size_t d = slip(s->wanted, word, len);

	if (d == SIZE_MAX || (s->n > 0 && d > s->distance))
		return;
	if (d < s->distance)
		s->n = 0;
	s->distance = d;
	if (s->n < SUGGEST_MAX) {
		memcpy(s->best[s->n], word, len);
		s->best[s->n++][len] = '\0';
	}
}

void suggest_hint(const struct suggestions *s, const char *before, struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < s->n; i++)
		strbuf_printf(&sb, "%s'%s%s'",
		              i == 0         ? ""
		              : i + 1 < s->n ? ", "
		                             : " or ",
		              before, s->best[i]);
	if (s->n > 0)
		error_hint(err, "did you mean %s?", strbuf_str(&sb));
}
