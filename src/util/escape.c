/* SPDX-License-Identifier: Apache-2.0 */
/* Paths shown to people. */
#include "util/escape.h"

#include "util/utf8.h"

#include <string.h>

static void add_char(struct strbuf *sb, const char *s, size_t len, uint32_t c)
{
	if (c == '\\')
		strbuf_puts(sb, "\\\\");
	else if (c < 0x80 && utf8_is_hidden(c))
		strbuf_printf(sb, "\\x%02x", (unsigned)c);
	else if (utf8_is_hidden(c))
		strbuf_printf(sb, "\\u{%04x}", (unsigned)c);
	else
		strbuf_add(sb, s, len);
}

void escape_add(struct strbuf *sb, const char *s, size_t len)
{
	uint32_t c;

	for (size_t at = 0; at < len;) {
		size_t n = utf8_decode(s + at, len - at, &c);

		if (n == 0) {
			strbuf_printf(sb, "\\x%02x", (unsigned)(unsigned char)s[at]);
			at++;
			continue;
		}
		add_char(sb, s + at, n, c);
		at += n;
	}
}

char *escape_dup(const char *s)
{
	struct strbuf sb = STRBUF_INIT;

	escape_add(&sb, s, strlen(s));
	return strbuf_take(&sb);
}
