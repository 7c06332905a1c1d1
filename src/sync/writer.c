/* SPDX-License-Identifier: Apache-2.0 */
/* Records to bytes: gathered in one buffer, compressed when that is full. */
#include "sync/stream-impl.h"

#include "sync/path.h"
#include "util/cleanup.h"
#include "util/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define LEVEL      1            /* the links that matter are quicker than better levels */
#define WINDOW_LOG 20           /* the reader takes 23 */
#define GATHER     (256u << 10) /* room for a chunk and its neighbours */
#define NUMBER_MAX 10

struct sync_writer {
	sync_write_fn fn;
	void *ctx;
	ZSTD_CCtx *zstd;
	struct hash *hash;
	struct sync_order order;
	unsigned char *in, *out;
	size_t in_len, out_size;
	bool begun;
};

int sync_writer_new(sync_write_fn fn, void *ctx, struct sync_writer **ret)
{
	cleanup_sync_writer struct sync_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->fn = fn;
	w->ctx = ctx;
	w->hash = hash_new();
	w->zstd = ZSTD_createCCtx();
	w->out_size = ZSTD_CStreamOutSize();
	w->in = malloc(GATHER);
	w->out = malloc(w->out_size);
	if (!w->zstd || !w->in || !w->out)
		return -ENOMEM;
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, LEVEL);
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_windowLog, WINDOW_LOG);
	*ret = take_ptr(w);
	return 0;
}

void sync_writer_free(struct sync_writer *w)
{
	int e = errno;

	if (!w)
		return;
	(void)ZSTD_freeCCtx(w->zstd);
	hash_free(w->hash);
	free(w->in);
	free(w->out);
	free(w);
	errno = e;
}

void cleanup_sync_writerp(struct sync_writer **w)
{
	sync_writer_free(*w);
}

/* All that was gathered, through zstd; END and FLUSH until it has nothing left. */
static int compress(struct sync_writer *w, ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = { .src = w->in, .size = w->in_len };
	int r = w->begun ? 0 : w->fn(w->ctx, SYNC_MAGIC, SYNC_MAGIC_SIZE);

	w->begun = true;
	if (r < 0)
		return r;
	for (;;) {
		ZSTD_outBuffer out = { .dst = w->out, .size = w->out_size };
		size_t left = ZSTD_compressStream2(w->zstd, &out, &in, how);

		if (ZSTD_isError(left))
			return -EIO;
		if (out.pos > 0)
			r = w->fn(w->ctx, w->out, out.pos);
		if (r < 0)
			return r;
		if (how == ZSTD_e_continue ? in.pos == in.size : left == 0)
			break;
	}
	w->in_len = 0;
	return 0;
}

/* Into the buffer, which has room for everything but paths, which may be long. */
static int put(struct sync_writer *w, const void *data, size_t len)
{
	const char *p = data;

	hash_add(w->hash, data, len);
	while (len > 0) {
		size_t n = GATHER - w->in_len;
		int r;

		n = n < len ? n : len;
		memcpy(w->in + w->in_len, p, n);
		w->in_len += n;
		p += n;
		len -= n;
		if (len == 0)
			break;
		r = compress(w, ZSTD_e_continue);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put_number(struct sync_writer *w, uint64_t v)
{
	unsigned char buf[NUMBER_MAX];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		buf[n++] = (unsigned char)(v | 0x80);
	buf[n++] = (unsigned char)v;
	return put(w, buf, n);
}

static int put_string(struct sync_writer *w, const void *data, size_t len)
{
	int r = put_number(w, len);

	return r < 0 ? r : put(w, data, len);
}

static int put_path(struct sync_writer *w, const char *path)
{
	size_t len = strlen(path);

	if (!sync_path_is_good(path, len))
		BUG("a path that cannot be sent");
	return put_string(w, path, len);
}

static int put_data(struct sync_writer *w, const struct sync_record *rec)
{
	if (rec->len == 0 || rec->len > SYNC_CHUNK)
		BUG("a chunk of %zu bytes", rec->len);
	return put_string(w, rec->data, rec->len);
}

static uint64_t zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

static int put_record(struct sync_writer *w, const struct sync_record *rec)
{
	const unsigned char type = (unsigned char)rec->type;
	unsigned fields = sync_fields(type);
	int r = put(w, &type, 1);

	if (r == 0 && fields & FIELD_PATH)
		r = put_path(w, rec->path);
	if (r == 0 && fields & FIELD_TO)
		r = put_path(w, rec->other);
	if (r == 0 && fields & FIELD_TARGET)
		r = put_string(w, rec->other, rec->other ? strlen(rec->other) : 0);
	if (r == 0 && fields & FIELD_MODE)
		r = put_number(w, rec->mode);
	if (r == 0 && fields & FIELD_MTIME)
		r = put_number(w, zigzag(rec->mtime_ns));
	if (r == 0 && fields & FIELD_SIZE)
		r = put_number(w, rec->size);
	if (r == 0 && fields & FIELD_DATA)
		r = put_data(w, rec);
	return r;
}

int sync_write(struct sync_writer *w, const struct sync_record *rec)
{
	int r;

	if (sync_order_add(&w->order, rec) < 0)
		BUG("a record of type %d where there can be none", (int)rec->type);
	r = put_record(w, rec);
	return r == 0 && sync_fields(rec->type) & FIELD_HASH ? put(w, rec->hash, SYNC_HASH_SIZE)
	                                                     : r;
}

int sync_write_done(struct sync_writer *w)
{
	return sync_write(w,
	                  &(struct sync_record){ .type = SYNC_DONE, .size = w->order.content_len });
}

int sync_write_end(struct sync_writer *w)
{
	struct sync_record end = { .type = SYNC_END, .size = w->order.records };
	int r;

	if (sync_order_add(&w->order, &end) < 0)
		BUG("an end within a file");
	r = put_record(w, &end);
	hash_bytes(w->hash, end.hash);
	if (r == 0)
		r = put(w, end.hash, SYNC_HASH_SIZE);
	return r < 0 ? r : compress(w, ZSTD_e_end);
}

int sync_write_flush(struct sync_writer *w)
{
	return compress(w, ZSTD_e_flush);
}
