/* SPDX-License-Identifier: Apache-2.0 */
#include "util/uri.h"

#include <string.h>

#include "util/strbuf.h"

char *uri_of_file(const char *path, const char *query)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~";
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	strbuf_puts(&sb, "file:");
	for (; *path; path++) {
		if (strchr(plain, *path))
			strbuf_putc(&sb, *path);
		else
			strbuf_printf(&sb, "%%%02x", (unsigned char)*path);
	}
	strbuf_printf(&sb, "?%s", query);
	return strbuf_take(&sb);
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)((at - digits) % 16) : -1;
}

char *uri_decode(const char *text, size_t len)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < len; i++) {
		int high, low;

		if (text[i] != '%') {
			strbuf_putc(&sb, text[i]);
			continue;
		}
		high = len - i > 2 ? hex_digit(text[i + 1]) : -1;
		low = high >= 0 ? hex_digit(text[i + 2]) : -1;
		if (low < 0 || high + low == 0)
			return NULL;
		strbuf_putc(&sb, (char)(high * 16 + low));
		i += 2;
	}
	return strbuf_take(&sb);
}
