/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 one character at a time, for text that comes from file names. */
#include "util/utf8.h"

#include <string.h>

/* By the number of bytes: what marks the first one, and the smallest character that needs so many
 * (anything below is an overlong form). */
static const struct shape {
	unsigned char mark_mask;
	unsigned char mark;
	uint32_t smallest;
} shapes[] = {
	{ 0x80, 0x00, 0x0 },
	{ 0xe0, 0xc0, 0x80 },
	{ 0xf0, 0xe0, 0x800 },
	{ 0xf8, 0xf0, 0x10000 },
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const struct range {
	uint32_t first;
	uint32_t last;
} hidden[] = {
	{ 0x0000, 0x001f },   /* C0 controls */
	{ 0x007f, 0x009f },   /* DEL and C1 controls */
	{ 0x00ad, 0x00ad },   /* soft hyphen */
	{ 0x061c, 0x061c },   /* Arabic letter mark */
	{ 0x180e, 0x180e },   /* Mongolian vowel separator */
	{ 0x200b, 0x200f },   /* zero width, left-to-right and right-to-left marks */
	{ 0x2028, 0x202e },   /* line and paragraph separators, bidi embeddings and overrides */
	{ 0x2060, 0x206f },   /* invisible operators, bidi isolates */
	{ 0xfeff, 0xfeff },   /* byte order mark */
	{ 0xfff9, 0xfffb },   /* interlinear annotations */
	{ 0xe0000, 0xe007f }, /* tags */
};

static size_t shape_of(unsigned char first)
{
	for (size_t n = 0; n < N_SHAPES; n++)
		if ((first & shapes[n].mark_mask) == shapes[n].mark)
			return n + 1;
	return 0;
}

size_t utf8_decode(const char *s, size_t len, uint32_t *ret_char)
{
	size_t n = shape_of((unsigned char)s[0]);
	uint32_t c;

	if (n == 0 || n > len)
		return 0;
	c = (unsigned char)s[0] & (unsigned char)~shapes[n - 1].mark_mask;
	for (size_t i = 1; i < n; i++) {
		unsigned char next = (unsigned char)s[i];

		if ((next & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (next & 0x3f);
	}
	if (c < shapes[n - 1].smallest || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret_char = c;
	return n;
}

bool utf8_valid(const char *s, size_t len)
{
	uint32_t c;

	for (size_t at = 0; at < len;) {
		size_t n = utf8_decode(s + at, len - at, &c);

		if (n == 0)
			return false;
		at += n;
	}
	return true;
}

size_t utf8_cut(const char *s, size_t max)
{
	size_t len = strnlen(s, max + 1);

	if (len <= max)
		return len;
	for (size_t back = 0; back < N_SHAPES && back <= max; back++)
		if (((unsigned char)s[max - back] & 0xc0) != 0x80)
			return max - back;
	return max;
}

bool utf8_is_hidden(uint32_t c)
{
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (c >= hidden[i].first && c <= hidden[i].last)
			return true;
	return false;
}
