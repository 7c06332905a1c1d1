/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes to records. What zstd gives is gathered until a record is whole; records are then told from
 * the buffer, without a copy. The buffer grows with a long path, never over RECORD_MAX.
 */
#include "sync/stream-impl.h"

#include "sync/path.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/limits.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define WINDOW_LOG_MAX 23 /* 8 MiB: all that a stranger can make us allocate */
#define ROOM           (256u << 10)
#define RECORD_MAX     (2u * LIMIT_PATH + SYNC_CHUNK)
#define READ_SIZE      (128u << 10)
#define NUMBER_MAX     10

struct sync_reader {
	sync_record_fn fn;
	void *ctx;
	ZSTD_DCtx *zstd;
	struct hash *hash;
	struct sync_order order;
	size_t magic; /* bytes of it that have come */
	bool frame_ended;
	unsigned char *buf;
	size_t begin, end, cap;
	char *path, *other; /* with a NUL behind them */
	size_t path_cap, other_cap;
};

/* What is left of a record that may not be whole. */
struct cursor {
	const unsigned char *p, *end;
};

int sync_reader_new(sync_record_fn fn, void *ctx, struct sync_reader **ret)
{
	cleanup_sync_reader struct sync_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->fn = fn;
	r->ctx = ctx;
	r->hash = hash_new();
	r->zstd = ZSTD_createDCtx();
	r->buf = malloc(ROOM);
	r->cap = ROOM;
	if (!r->zstd || !r->buf)
		return -ENOMEM;
	(void)ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
	*ret = take_ptr(r);
	return 0;
}

void sync_reader_free(struct sync_reader *r)
{
	int e = errno;

	if (!r)
		return;
	(void)ZSTD_freeDCtx(r->zstd);
	hash_free(r->hash);
	free(r->buf);
	free(r->path);
	free(r->other);
	free(r);
	errno = e;
}

void cleanup_sync_readerp(struct sync_reader **r)
{
	sync_reader_free(*r);
}

static int bad(struct error *err, const char *what)
{
	return error_set(err, -EPROTO, "this is no stream of a tree: %s", what);
}

/* ---- fields: 1, 0 when the bytes end before them, -EPROTO ---- */

static int get_number(struct cursor *c, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < NUMBER_MAX; i++) {
		unsigned char b;

		if (c->p == c->end)
			return 0;
		b = *c->p++;
		if (i == NUMBER_MAX - 1 && b > 1)
			return -EPROTO;
		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (!(b & 0x80)) {
			*ret = v;
			return 1;
		}
	}
	return -EPROTO;
}

static int get_bytes(struct cursor *c, size_t max, const unsigned char **ret, size_t *ret_len)
{
	uint64_t len;
	int r = get_number(c, &len);

	if (r <= 0)
		return r;
	if (len > max)
		return -EPROTO;
	if (len > (size_t)(c->end - c->p))
		return 0;
	*ret = c->p;
	*ret_len = (size_t)len;
	c->p += len;
	return 1;
}

/* A copy, which needs its NUL. */
static int get_string(struct cursor *c, char **to, size_t *cap, size_t *ret_len)
{
	const unsigned char *p = NULL;
	void *room = *to;
	int r = get_bytes(c, LIMIT_PATH, &p, ret_len);

	if (r <= 0)
		return r;
	r = grow(&room, cap, *ret_len + 1, 1);
	*to = room;
	if (r < 0)
		return r;
	memcpy(*to, p, *ret_len);
	(*to)[*ret_len] = '\0';
	return 1;
}

static int get_path(struct cursor *c, char **to, size_t *cap)
{
	size_t len = 0;
	int r = get_string(c, to, cap, &len);

	return r == 1 && !sync_path_is_good(*to, len) ? -EPROTO : r;
}

static int get_target(struct cursor *c, char **to, size_t *cap, bool may_be_empty)
{
	size_t len = 0;
	int r = get_string(c, to, cap, &len);

	return r == 1 && (strlen(*to) != len || (len == 0 && !may_be_empty)) ? -EPROTO : r;
}

static int get_mode(struct cursor *c, uint32_t max, uint32_t *ret)
{
	uint64_t v = 0;
	int r = get_number(c, &v);

	if (r == 1 && v > max)
		return -EPROTO;
	*ret = (uint32_t)v;
	return r;
}

static int get_time(struct cursor *c, int64_t *ret)
{
	uint64_t v = 0;
	int r = get_number(c, &v);

	*ret = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
	return r;
}

static int get_data(struct cursor *c, struct sync_record *rec)
{
	const unsigned char *p = NULL;
	int r = get_bytes(c, SYNC_CHUNK, &p, &rec->len);

	rec->data = p;
	return r;
}

static int get_hash(struct cursor *c, unsigned char out[SYNC_HASH_SIZE])
{
	if (c->end - c->p < SYNC_HASH_SIZE)
		return 0;
	memcpy(out, c->p, SYNC_HASH_SIZE);
	c->p += SYNC_HASH_SIZE;
	return 1;
}

/* ---- records ---- */

static int get_record(struct sync_reader *r, struct cursor *c, struct sync_record *rec)
{
	unsigned fields;
	int n = 1;

	if (c->p == c->end)
		return 0;
	fields = sync_fields(*c->p);
	if (fields == 0)
		return -EPROTO;
	rec->type = (enum sync_type) * c->p++;
	if (fields & FIELD_PATH)
		n = get_path(c, &r->path, &r->path_cap);
	if (n == 1 && fields & FIELD_TO)
		n = get_path(c, &r->other, &r->other_cap);
	if (n == 1 && fields & FIELD_TARGET)
		n = get_target(c, &r->other, &r->other_cap, rec->type == SYNC_ENTRY);
	if (n == 1 && fields & FIELD_MODE)
		n = get_mode(c, rec->type < SYNC_PACK ? 07777u : SYNC_MODE_MAX, &rec->mode);
	if (n == 1 && fields & FIELD_MTIME)
		n = get_time(c, &rec->mtime_ns);
	if (n == 1 && fields & FIELD_SIZE)
		n = get_number(c, &rec->size);
	if (n == 1 && fields & FIELD_DATA)
		n = get_data(c, rec);
	rec->path = fields & FIELD_PATH ? r->path : NULL;
	rec->other = fields & (FIELD_TO | FIELD_TARGET) ? r->other : NULL;
	return n;
}

/* The hash of an END is over what is before it, of an ENTRY it is a field like any other. */
static int take_hash(struct sync_reader *r, struct cursor *c, struct sync_record *rec,
                     struct error *err)
{
	const unsigned char *from = r->buf + r->begin;
	unsigned char sum[HASH_SIZE];
	int n;

	if (!(sync_fields(rec->type) & FIELD_HASH)) {
		hash_add(r->hash, from, (size_t)(c->p - from));
		return 1;
	}
	n = get_hash(c, rec->hash);
	if (n <= 0)
		return n;
	if (rec->type != SYNC_END) {
		hash_add(r->hash, from, (size_t)(c->p - from));
		return 1;
	}
	hash_add(r->hash, from, (size_t)(c->p - from) - SYNC_HASH_SIZE);
	hash_bytes(r->hash, sum);
	return memcmp(sum, rec->hash, HASH_SIZE) == 0 ? 1 : bad(err, "its sum is wrong");
}

/* 1: a record was told; 0: more bytes are needed. */
static int tell_next(struct sync_reader *r, struct error *err)
{
	struct cursor c = { r->buf + r->begin, r->buf + r->end };
	struct sync_record rec = { 0 };
	int n = get_record(r, &c, &rec);

	if (n == 1)
		n = take_hash(r, &c, &rec, err);
	if (n == -EPROTO && !(err && err->code))
		return bad(err, "a record is wrong");
	if (n == -ENOMEM)
		return error_set(err, n, "no memory for a path");
	if (n <= 0)
		return n;
	if (sync_order_add(&r->order, &rec) < 0)
		return bad(err, "a record is out of place");
	r->begin = (size_t)(c.p - r->buf);
	n = r->fn(r->ctx, &rec, err);
	return n < 0 ? n : 1;
}

/* ---- bytes ---- */

static int make_room(struct sync_reader *r, struct error *err)
{
	void *buf = r->buf;

	memmove(r->buf, r->buf + r->begin, r->end - r->begin);
	r->end -= r->begin;
	r->begin = 0;
	if (r->end < r->cap)
		return 0;
	if (r->cap >= RECORD_MAX)
		return bad(err, "a record is too long");
	if (grow(&buf, &r->cap, r->cap + ROOM, 1) < 0)
		return error_set(err, -ENOMEM, "no memory for a record");
	r->buf = buf;
	return 0;
}

static int take_magic(struct sync_reader *r, ZSTD_inBuffer *in, struct error *err)
{
	static const char magic[SYNC_MAGIC_SIZE + 1] = SYNC_MAGIC;
	const char *p = in->src;

	for (; in->pos < in->size && r->magic < SYNC_MAGIC_SIZE; in->pos++, r->magic++) {
		if (p[in->pos] == magic[r->magic])
			continue;
		return r->magic == SYNC_MAGIC_SIZE - 1 ? bad(err, "it is of another version")
		                                       : bad(err, "it begins otherwise");
	}
	return 0;
}

static int unpack(struct sync_reader *r, ZSTD_inBuffer *in, struct error *err)
{
	ZSTD_outBuffer out;
	size_t left;
	int n = make_room(r, err);

	if (n < 0)
		return n;
	out = (ZSTD_outBuffer){ .dst = r->buf, .size = r->cap, .pos = r->end };
	left = ZSTD_decompressStream(r->zstd, &out, in);
	if (ZSTD_isError(left))
		return bad(err, ZSTD_getErrorName(left));
	r->frame_ended = left == 0;
	n = out.pos == out.size; /* there may be more without more input */
	r->end = out.pos;
	return n;
}

int sync_reader_feed(struct sync_reader *r, const void *data, size_t len, struct error *err)
{
	ZSTD_inBuffer in = { .src = data, .size = len };
	int more = take_magic(r, &in, err), n;

	if (more < 0)
		return more;
	while (in.pos < in.size || more) {
		if (r->frame_ended)
			return in.pos < in.size ? bad(err, "it goes on after its end") : 0;
		more = unpack(r, &in, err);
		if (more < 0)
			return more;
		while ((n = tell_next(r, err)) == 1)
			;
		if (n < 0)
			return n;
	}
	return 0;
}

int sync_reader_finish(struct sync_reader *r, struct error *err)
{
	if (r->order.ended && r->frame_ended && r->begin == r->end)
		return 0;
	(void)error_set(err, -EPROTO, "the stream of a tree was cut off");
	return -EPROTO;
}

int sync_read_fd(int fd, sync_record_fn fn, void *ctx, struct error *err)
{
	cleanup_sync_reader struct sync_reader *reader = NULL;
	cleanup_free char *buf = malloc(READ_SIZE);
	int r = buf ? sync_reader_new(fn, ctx, &reader) : -ENOMEM;

	if (r < 0)
		return error_set(err, r, "no memory to read a stream");
	for (;;) {
		ssize_t n = read(fd, buf, READ_SIZE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_sys(err, -errno, "read", "the stream");
		if (n == 0)
			return sync_reader_finish(reader, err);
		r = sync_reader_feed(reader, buf, (size_t)n, err);
		if (r < 0)
			return r;
	}
}
