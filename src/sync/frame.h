/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: what goes over a connection that was upgraded to atoll-exec/1 or atoll-sync/1, both ways. For
 * the daemon and for its clients; knows nothing of either.
 *
 *   u8 type, u32 length of the payload (big-endian, at most FRAME_MAX), payload
 *
 *   client  0 stdin     bytes; none: the end of the input
 *           1 resize    u16 rows, u16 columns
 *           2 signal    u8
 *           3 request   a JSON object; the first frame, and only that
 *   server  16 stdout   bytes
 *           17 stderr   bytes
 *           18 notice   a JSON object
 *           19 error    a problem document; the last frame
 *           20 exit     a JSON object; the last frame
 *           21 window   u32: so many bytes more of stdin may be sent
 *
 * In atoll-sync/1 also these; request is not the first, and exit and error end a step, not the session:
 *
 *   client  4 open      a JSON object; the first frame, and only that
 *           5 push      a JSON object; then data and end
 *           6 data      bytes of the stream that is pushed (stream.h)
 *           7 end       nothing: that was all of it
 *           8 pull      a JSON object
 *           9 received  a JSON object
 *           10 list     a JSON object
 *           11 close    nothing
 *           12 ping     nothing
 *   server  22 opened   a JSON object
 *           23 pushed   a JSON object
 *           24 data     bytes of a stream
 *           25 end      a JSON object
 *           26 received a JSON object
 *           27 closed   nothing
 *           28 pong     nothing
 *
 * A client may send FRAME_WINDOW bytes of stdin, and then as many as it is told by window frames, which
 * come as the command reads. So the server always reads what comes: a signal is never stuck behind
 * input that nobody wants, a client that goes is noticed, and memory is bounded.
 *
 * Strict: a type that is not the sender's, a length that the type does not have, more than FRAME_MAX,
 * and an end within a frame are errors, after which nothing more is read.
 */
#ifndef SYNC_FRAME_H
#define SYNC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_PROTOCOL      "atoll-exec/1"
#define FRAME_SYNC_PROTOCOL "atoll-sync/1"
#define FRAME_HEAD          5
#define FRAME_MAX           (64u << 10)
#define FRAME_WINDOW        (256u << 10)

enum frame_type {
	FRAME_STDIN = 0,
	FRAME_RESIZE = 1,
	FRAME_SIGNAL = 2,
	FRAME_REQUEST = 3,
	FRAME_OPEN = 4,
	FRAME_PUSH = 5,
	FRAME_PUSH_DATA = 6,
	FRAME_PUSH_END = 7,
	FRAME_PULL = 8,
	FRAME_RECEIVED = 9,
	FRAME_LIST = 10,
	FRAME_CLOSE = 11,
	FRAME_PING = 12,
	FRAME_STDOUT = 16,
	FRAME_STDERR = 17,
	FRAME_NOTICE = 18,
	FRAME_ERROR = 19,
	FRAME_EXIT = 20,
	FRAME_WINDOW_MORE = 21,
	FRAME_OPENED = 22,
	FRAME_PUSHED = 23,
	FRAME_PULL_DATA = 24,
	FRAME_PULL_END = 25,
	FRAME_RECEIVED_TOO = 26,
	FRAME_CLOSED = 27,
	FRAME_PONG = 28,
};
/* Who sends, and in which protocol. */
enum frame_side {
	FRAME_OF_CLIENT = 0, /* of atoll-exec/1 */
	FRAME_OF_SERVER,
	FRAME_OF_SYNC_CLIENT, /* of atoll-sync/1 */
	FRAME_OF_SYNC_SERVER,
	FRAME_SIDE_END_
};

struct frame {
	enum frame_type type;
	const unsigned char *data; /* in the reader, until it is asked for more */
	size_t len;
};

/* ---- reading ---- */

struct frame_reader {
	enum frame_side from;
	bool broken;       /* it had a frame that is none */
	size_t begin, end; /* of what was not told yet */
	unsigned char buf[FRAME_HEAD + FRAME_MAX];
};
void frame_reader_init(struct frame_reader *r, enum frame_side from);
/* Where the next bytes may be put, and how many; never 0 after frame_next() had nothing. */
size_t frame_reader_room(struct frame_reader *r, unsigned char **ret);
void frame_reader_added(struct frame_reader *r, size_t n);
/* 1 and the next frame; 0: there is none yet; -EPROTO, from then on. */
int frame_next(struct frame_reader *r, struct frame *ret);
/* Nothing was begun that is not whole. */
bool frame_reader_is_empty(const struct frame_reader *r);

/* ---- writing ---- */

void frame_head(unsigned char out[FRAME_HEAD], enum frame_type type, size_t len);

/* ---- numbers in payloads ---- */

uint16_t frame_u16(const unsigned char *p);
uint32_t frame_u32(const unsigned char *p);
void frame_put_u32(unsigned char *p, uint32_t v);

#endif
