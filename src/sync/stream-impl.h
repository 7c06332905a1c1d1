/* SPDX-License-Identifier: Apache-2.0 */
/* What writer and reader share: the shape of each record. */
#ifndef SYNC_STREAM_IMPL_H
#define SYNC_STREAM_IMPL_H

#include "sync/stream.h"

#define SYNC_MAGIC      "ATSYNC\0\1" /* the last byte is SYNC_VERSION */
#define SYNC_MAGIC_SIZE 8

/* Fields, in the order in which they are written. */
enum sync_field {
	FIELD_PATH = 0x01,
	FIELD_TO = 0x02,     /* OTHER, a path */
	FIELD_TARGET = 0x04, /* OTHER, the text of a link; may be empty in an ENTRY */
	FIELD_MODE = 0x08,
	FIELD_MTIME = 0x10,
	FIELD_SIZE = 0x20,
	FIELD_HASH = 0x40,
	FIELD_DATA = 0x80,
	FIELD_NONE = 0x100, /* of a type that has no other */
};
/* Of a type; 0: there is no such type. */
unsigned sync_fields(unsigned type);

/* Whether a record may come now, and what comes after it. */
struct sync_order {
	enum sync_type content; /* FILE or PACK while its content is under way, else 0 */
	uint64_t content_len;
	uint64_t records;
	bool ended;
};
/* REC has come: 0, or -EPROTO: it may not. */
int sync_order_add(struct sync_order *o, const struct sync_record *rec);

#define SYNC_MODE_MAX 0177777u

#endif
