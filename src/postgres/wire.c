/* SPDX-License-Identifier: Apache-2.0 */
/* Framing and fields of the PostgreSQL protocol. */
#include "postgres/wire.h"

#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUF_MIN       8192
#define BUF_KEEP      (4u << 20) /* a larger one is given back when it is empty */
#define STARTUP_MAX   10000      /* as the server has it */
#define STREAM_ENOUGH 16384      /* of a message that may be streamed */

void wire_buf_done(struct wire_buf *b)
{
	free(b->v);
	*b = (struct wire_buf){ 0 };
}

size_t wire_buf_left(const struct wire_buf *b)
{
	return b->len - b->off;
}

/* Room for LEN more bytes behind what is there. */
static int make_room(struct wire_buf *b, size_t len)
{
	unsigned char *v;
	size_t cap;

	if (b->off == b->len)
		b->off = b->len = 0;
	if (b->len == 0 && b->cap > BUF_KEEP && len < BUF_KEEP)
		wire_buf_done(b);
	cap = b->cap ? b->cap : BUF_MIN;
	if (b->cap - b->len >= len)
		return 0;
	if (b->off > 0) {
		(void)memmove(b->v, b->v + b->off, b->len - b->off);
		b->len -= b->off;
		b->off = 0;
	}
	while (cap - b->len < len)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	v = realloc(b->v, cap);
	if (!v)
		return -ENOMEM;
	b->v = v;
	b->cap = cap;
	return 0;
}

int wire_add(struct wire_buf *b, const void *data, size_t len)
{
	if (len == 0)
		return 0;
	if (make_room(b, len) < 0)
		return -ENOMEM;
	(void)memcpy(b->v + b->len, data, len);
	b->len += len;
	return 0;
}

static uint32_t load_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void wire_store_u32(unsigned char out[4], uint32_t v)
{
	for (int i = 0; i < 4; i++)
		out[i] = (unsigned char)(v >> (24 - 8 * i));
}

int wire_peek(const struct wire_buf *in, const char *stream, struct wire_message *ret)
{
	const unsigned char *p = in->v + in->off;
	size_t left = wire_buf_left(in);
	size_t len;

	if (left < WIRE_HEADER)
		return 0;
	len = load_u32(p + 1);
	if (len < 4 || len > INT32_MAX)
		return -EPROTO;
	len -= 4;
	*ret = (struct wire_message){ .type = (char)p[0], .body = p + WIRE_HEADER, .len = len };
	if (left - WIRE_HEADER >= len)
		return 1;
	if (p[0] != '\0' && strchr(stream, p[0])) {
		if (left - WIRE_HEADER < STREAM_ENOUGH)
			return 0;
		ret->partial = true;
		ret->len = left - WIRE_HEADER;
		ret->missing = len - ret->len;
		return 1;
	}
	return len > WIRE_WHOLE_MAX ? -EPROTO : 0;
}

int wire_peek_startup(const struct wire_buf *in, struct wire_message *ret)
{
	const unsigned char *p = in->v + in->off;
	size_t left = wire_buf_left(in);
	size_t len;

	if (left < 4)
		return 0;
	len = load_u32(p);
	if (len < 8 || len > STARTUP_MAX)
		return -EPROTO;
	if (left < len)
		return 0;
	*ret = (struct wire_message){ .type = '\0', .body = p + 4, .len = len - 4 };
	return 1;
}

void wire_skip(struct wire_buf *in, const struct wire_message *m)
{
	in->off += m->len + (m->type ? WIRE_HEADER : 4);
}

/* ---- building ---- */

int wire_put(struct wire_buf *out, char type, const void *body, size_t len)
{
	unsigned char head[WIRE_HEADER] = { (unsigned char)type };

	wire_store_u32(head + 1, (uint32_t)len + 4);
	if (make_room(out, sizeof(head) + len) < 0)
		return -ENOMEM;
	(void)wire_add(out, head, sizeof(head));
	return wire_add(out, body, len);
}

int wire_put_text(struct wire_buf *out, char type, const char *text)
{
	return wire_put(out, type, text, strlen(text) + 1);
}

static void add_field(struct strbuf *sb, char field, const char *value)
{
	strbuf_putc(sb, field);
	strbuf_add(sb, value, strlen(value) + 1);
}

int wire_put_error(struct wire_buf *out, const char *severity, const char *sqlstate,
                   const char *message, const char *hint)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	bool notice = strcmp(severity, "WARNING") == 0;

	add_field(&sb, 'S', severity);
	add_field(&sb, 'V', severity);
	add_field(&sb, 'C', sqlstate);
	add_field(&sb, 'M', message);
	if (hint)
		add_field(&sb, 'H', hint);
	strbuf_putc(&sb, '\0');
	return wire_put(out, notice ? 'N' : 'E', sb.buf, sb.len);
}

int wire_put_ready(struct wire_buf *out, char status)
{
	return wire_put(out, 'Z', &status, 1);
}

/* ---- reading ---- */

struct wire_reader wire_read(const struct wire_message *m)
{
	return (struct wire_reader){ .at = m->body, .left = m->len };
}

static const unsigned char *take(struct wire_reader *r, size_t n)
{
	const unsigned char *at = r->at;

	if (r->bad || r->left < n) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	r->left -= n;
	return at;
}

const char *wire_text(struct wire_reader *r)
{
	const unsigned char *end = r->bad || r->left == 0 ? NULL : memchr(r->at, '\0', r->left);

	if (!end) {
		r->bad = true;
		return "";
	}
	return (const char *)take(r, (size_t)(end - r->at) + 1);
}

uint32_t wire_u32(struct wire_reader *r)
{
	const unsigned char *p = take(r, 4);

	return p ? load_u32(p) : 0;
}

uint16_t wire_u16(struct wire_reader *r)
{
	const unsigned char *p = take(r, 2);

	return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

char wire_char(struct wire_reader *r)
{
	const unsigned char *p = take(r, 1);

	return p ? (char)*p : '\0';
}

const char *wire_error_field(const struct wire_message *m, char field)
{
	struct wire_reader r = wire_read(m);

	for (;;) {
		char c = wire_char(&r);
		const char *text = c ? wire_text(&r) : "";

		if (r.bad || !c)
			return "";
		if (c == field)
			return text;
	}
}
