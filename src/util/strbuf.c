/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer that is always NUL-terminated. */
#include "util/strbuf.h"

#include "util/error.h"
#include "util/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for EXTRA more bytes and the NUL. */
static void make_room(struct strbuf *sb, size_t extra)
{
	void *buf = sb->buf;

	if (extra > SIZE_MAX - sb->len - 1)
		abort();
	if (grow(&buf, &sb->cap, sb->len + extra + 1, 1) < 0)
		abort();
	sb->buf = buf;
}

void strbuf_add(struct strbuf *sb, const void *data, size_t len)
{
	make_room(sb, len);
	if (len > 0)
		memcpy(sb->buf + sb->len, data, len);
	sb->len += len;
	sb->buf[sb->len] = '\0';
}

void strbuf_puts(struct strbuf *sb, const char *s)
{
	strbuf_add(sb, s, strlen(s));
}

void strbuf_putc(struct strbuf *sb, char c)
{
	strbuf_add(sb, &c, 1);
}

void strbuf_vprintf(struct strbuf *sb, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		BUG("cannot format '%s'", fmt);
	make_room(sb, (size_t)n);
	(void)vsnprintf(sb->buf + sb->len, (size_t)n + 1, fmt, ap);
	sb->len += (size_t)n;
}

void strbuf_printf(struct strbuf *sb, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(sb, fmt, ap);
	va_end(ap);
}

void strbuf_truncate(struct strbuf *sb, size_t len)
{
	if (len > sb->len)
		BUG("cannot truncate %zu bytes to %zu", sb->len, len);
	sb->len = len;
	if (sb->buf)
		sb->buf[len] = '\0';
}

const char *strbuf_str(const struct strbuf *sb)
{
	return sb->buf ? sb->buf : "";
}

char *strbuf_take(struct strbuf *sb)
{
	char *s = sb->buf ? sb->buf : xstrdup("");

	*sb = STRBUF_INIT;
	return s;
}

void strbuf_done(struct strbuf *sb)
{
	int saved = errno;

	free(sb->buf);
	*sb = STRBUF_INIT;
	errno = saved;
}

void strbuf_number(struct strbuf *sb, uint64_t n)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);

	for (int i = 0; i < len; i++)
		strbuf_printf(sb, "%s%c", i > 0 && (len - i) % 3 == 0 ? "," : "", digits[i]);
}
