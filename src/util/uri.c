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
