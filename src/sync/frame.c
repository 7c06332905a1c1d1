/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, from bytes and to bytes. Reads and writes nothing itself. */
#include "sync/frame.h"

#include "util/error.h"

#include <errno.h>
#include <string.h>

#define BIT(side)   (1u << (side))
#define CLIENTS     (BIT(FRAME_OF_CLIENT) | BIT(FRAME_OF_SYNC_CLIENT))
#define SERVERS     (BIT(FRAME_OF_SERVER) | BIT(FRAME_OF_SYNC_SERVER))
#define SYNC_CLIENT BIT(FRAME_OF_SYNC_CLIENT)
#define SYNC_SERVER BIT(FRAME_OF_SYNC_SERVER)

/* Who may send it, and how long it may be. */
static const struct {
	enum frame_type type;
	unsigned from;
	size_t min, max;
} kinds[] = {
	{ FRAME_STDIN, CLIENTS, 0, FRAME_MAX },
	{ FRAME_RESIZE, CLIENTS, 4, 4 },
	{ FRAME_SIGNAL, CLIENTS, 1, 1 },
	{ FRAME_REQUEST, CLIENTS, 2, FRAME_MAX },
	{ FRAME_OPEN, SYNC_CLIENT, 2, FRAME_MAX },
	{ FRAME_PUSH, SYNC_CLIENT, 2, FRAME_MAX },
	{ FRAME_PUSH_DATA, SYNC_CLIENT, 1, FRAME_MAX },
	{ FRAME_PUSH_END, SYNC_CLIENT, 0, 0 },
	{ FRAME_PULL, SYNC_CLIENT, 2, FRAME_MAX },
	{ FRAME_RECEIVED, SYNC_CLIENT, 2, FRAME_MAX },
	{ FRAME_LIST, SYNC_CLIENT, 2, FRAME_MAX },
	{ FRAME_CLOSE, SYNC_CLIENT, 0, 0 },
	{ FRAME_PING, SYNC_CLIENT, 0, 0 },
	{ FRAME_STDOUT, SERVERS, 1, FRAME_MAX },
	{ FRAME_STDERR, SERVERS, 1, FRAME_MAX },
	{ FRAME_NOTICE, SERVERS, 2, FRAME_MAX },
	{ FRAME_ERROR, SERVERS, 2, FRAME_MAX },
	{ FRAME_EXIT, SERVERS, 2, FRAME_MAX },
	{ FRAME_WINDOW_MORE, SERVERS, 4, 4 },
	{ FRAME_OPENED, SYNC_SERVER, 2, FRAME_MAX },
	{ FRAME_PUSHED, SYNC_SERVER, 2, FRAME_MAX },
	{ FRAME_PULL_DATA, SYNC_SERVER, 1, FRAME_MAX },
	{ FRAME_PULL_END, SYNC_SERVER, 2, FRAME_MAX },
	{ FRAME_RECEIVED_TOO, SYNC_SERVER, 2, FRAME_MAX },
	{ FRAME_CLOSED, SYNC_SERVER, 0, 0 },
	{ FRAME_PONG, SYNC_SERVER, 0, 0 },
};

/* May one of the sides FROM send it? */
static bool is_good(unsigned from, unsigned type, size_t len)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if ((unsigned)kinds[i].type == type)
			return (kinds[i].from & from) != 0 && len >= kinds[i].min &&
			       len <= kinds[i].max;
	return false;
}

void frame_reader_init(struct frame_reader *r, enum frame_side from)
{
	r->from = from;
	r->broken = false;
	r->begin = r->end = 0;
}

size_t frame_reader_room(struct frame_reader *r, unsigned char **ret)
{
	if (r->begin > 0) {
		memmove(r->buf, r->buf + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
	}
	*ret = r->buf + r->end;
	return sizeof(r->buf) - r->end;
}

void frame_reader_added(struct frame_reader *r, size_t n)
{
	if (n > sizeof(r->buf) - r->end)
		BUG("%zu bytes were added where there is no room", n);
	r->end += n;
}

int frame_next(struct frame_reader *r, struct frame *ret)
{
	const unsigned char *p = r->buf + r->begin;
	size_t have = r->end - r->begin, len;

	if (r->broken)
		return -EPROTO;
	if (have < FRAME_HEAD)
		return 0;
	len = frame_u32(p + 1);
	if (!is_good(BIT(r->from), p[0], len)) {
		r->broken = true;
		return -EPROTO;
	}
	if (have < FRAME_HEAD + len)
		return 0;
	*ret = (struct frame){ (enum frame_type)p[0], p + FRAME_HEAD, len };
	r->begin += FRAME_HEAD + len;
	return 1;
}

bool frame_reader_is_empty(const struct frame_reader *r)
{
	return r->begin == r->end;
}

void frame_head(unsigned char out[FRAME_HEAD], enum frame_type type, size_t len)
{
	if (!is_good(CLIENTS | SERVERS, type, len))
		BUG("a frame of type %d with %zu bytes", (int)type, len);
	out[0] = (unsigned char)type;
	frame_put_u32(out + 1, (uint32_t)len);
}

uint16_t frame_u16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

uint32_t frame_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void frame_put_u32(unsigned char *p, uint32_t v)
{
	p[0] = (unsigned char)(v >> 24);
	p[1] = (unsigned char)(v >> 16);
	p[2] = (unsigned char)(v >> 8);
	p[3] = (unsigned char)v;
}
