/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the PostgreSQL protocol, version 3, on non-blocking descriptors: a buffer for what
 * came in, a buffer for what is to go out. A message is a type byte, a length, a body; the very
 * first of a client has no type.
 *
 * A long message need not be there as a whole: its reader may ask for the rest to be passed on
 * as it comes, so that memory does not follow the size of a value.
 */
#ifndef POSTGRES_WIRE_H
#define POSTGRES_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_WHOLE_MAX \
	0x3fffffffu /* the largest message that is kept as a whole: a server takes no larger one */
#define WIRE_HIGH   (1u << 20) /* more than this waiting to go out: read no more */
#define WIRE_HEADER 5

struct wire_buf {
	unsigned char *v;
	size_t off, len, cap; /* [off, len) is there */
};

void wire_buf_done(struct wire_buf *b);
size_t wire_buf_left(const struct wire_buf *b);
/* 0 or -ENOMEM. */
int wire_add(struct wire_buf *b, const void *data, size_t len);

struct wire_message {
	char type;                 /* '\0' for one without */
	const unsigned char *body; /* valid until the buffer is touched */
	size_t len;
	bool partial; /* only so much of it is there, and it is to be streamed */
	size_t missing;
};
/* Looks at the next message in IN: 1 when there, 0 when not yet, -EPROTO when it is none.
 * STREAM: types that may be answered before they are whole. */
int wire_peek(const struct wire_buf *in, const char *stream, struct wire_message *ret);
/* The same for a client's first message. */
int wire_peek_startup(const struct wire_buf *in, struct wire_message *ret);
/* Past it; what was not there yet is the reader's business. */
void wire_skip(struct wire_buf *in, const struct wire_message *m);

/* ---- building; each adds one message ---- */

int wire_put(struct wire_buf *out, char type, const void *body, size_t len);
int wire_put_text(struct wire_buf *out, char type, const char *text); /* with its NUL */
/* ErrorResponse or NoticeResponse. SEVERITY "ERROR", "FATAL", "WARNING". HINT may be NULL. */
int wire_put_error(struct wire_buf *out, const char *severity, const char *sqlstate,
                   const char *message, const char *hint);
int wire_put_ready(struct wire_buf *out, char status);

/* ---- reading bodies ---- */

struct wire_reader {
	const unsigned char *at;
	size_t left;
	bool bad; /* something was missing */
};
struct wire_reader wire_read(const struct wire_message *m);
const char *wire_text(struct wire_reader *r); /* "" when bad */
uint32_t wire_u32(struct wire_reader *r);
uint16_t wire_u16(struct wire_reader *r);
char wire_char(struct wire_reader *r);
/* A field of an ErrorResponse or NoticeResponse: 'C' the SQLSTATE, 'M' the message; "" if none. */
const char *wire_error_field(const struct wire_message *m, char field);

void wire_store_u32(unsigned char out[4], uint32_t v);

#endif
