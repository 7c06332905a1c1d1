/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer that is always NUL-terminated. Aborts when memory is gone; callers bound
 * what they put in (limits.h). */
#ifndef UTIL_STRBUF_H
#define UTIL_STRBUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct strbuf {
	char *buf; /* NULL while empty and never used; strbuf_str() gives "" then */
	size_t len;
	size_t cap;
};
#define STRBUF_INIT ((struct strbuf){ 0 })

void strbuf_add(struct strbuf *sb, const void *data, size_t len);
void strbuf_puts(struct strbuf *sb, const char *s);
void strbuf_putc(struct strbuf *sb, char c);
void strbuf_printf(struct strbuf *sb, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
void strbuf_vprintf(struct strbuf *sb, const char *fmt, va_list ap)
	__attribute__((__format__(__printf__, 2, 0)));
/* For people: "2,041". */
void strbuf_number(struct strbuf *sb, uint64_t n);
void strbuf_truncate(struct strbuf *sb, size_t len);
const char *strbuf_str(const struct strbuf *sb);
char *strbuf_take(struct strbuf *sb); /* caller frees; never NULL */
void strbuf_done(struct strbuf *sb);

#define cleanup_strbuf __attribute__((__cleanup__(strbuf_done)))

#endif
