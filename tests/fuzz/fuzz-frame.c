/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes of a client or a server, in either protocol: read without harm, in pieces of any size with the
 * same outcome; and what was taken for frames, written again, is what was sent.
 */
#include "sync/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
	if (!what)
		abort();
}

struct outcome {
	size_t frames, bytes; /* of them, heads included */
	int last;             /* what frame_next() said at the end */
};

/* All whole frames that are there now; SENT is where the first one was. */
static void take_frames(struct frame_reader *r, const uint8_t *sent, struct outcome *o)
{
	unsigned char head[FRAME_HEAD];
	struct frame f;

	while ((o->last = frame_next(r, &f)) > 0) {
		must(f.len <= FRAME_MAX);
		frame_head(head, f.type, f.len);
		must(memcmp(sent + o->bytes, head, FRAME_HEAD) == 0);
		must(memcmp(sent + o->bytes + FRAME_HEAD, f.data, f.len) == 0);
		o->bytes += FRAME_HEAD + f.len;
		o->frames++;
	}
	must(o->last == 0 || o->last == -EPROTO);
}

static struct outcome read_all(const uint8_t *data, size_t size, enum frame_side from, size_t piece)
{
	static struct frame_reader r;
	struct outcome o = { 0 };
	size_t at = 0;

	frame_reader_init(&r, from);
	while (at < size && o.last == 0) {
		unsigned char *to;
		size_t n = frame_reader_room(&r, &to);

		must(n > 0);
		n = n < piece ? n : piece;
		n = n < size - at ? n : size - at;
		memcpy(to, data + at, n);
		frame_reader_added(&r, n);
		at += n;
		take_frames(&r, data, &o);
	}
	must(o.last < 0 || frame_reader_is_empty(&r) == (o.bytes == size));
	if (o.last < 0) {
		struct frame f;

		must(frame_next(&r, &f) == -EPROTO); /* and so it stays */
	}
	return o;
}

static void try_side(const uint8_t *data, size_t size, enum frame_side from)
{
	static const size_t pieces[] = { 1, 3, 5, 4096, FRAME_HEAD + FRAME_MAX };
	struct outcome whole = read_all(data, size, from, SIZE_MAX);

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct outcome o = read_all(data, size, from, pieces[i]);

		must(o.frames == whole.frames && o.bytes == whole.bytes && o.last == whole.last);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int side = 0; side < FRAME_SIDE_END_; side++)
		try_side(data, size, (enum frame_side)side);
	return 0;
}
