/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of records, and the order in which they may come. */
#include "sync/stream-impl.h"

#include <errno.h>

static const struct {
	enum sync_type type;
	unsigned fields;
} shapes[] = {
	{ SYNC_DIR, FIELD_PATH | FIELD_MODE | FIELD_MTIME },
	{ SYNC_FILE, FIELD_PATH | FIELD_MODE | FIELD_MTIME },
	{ SYNC_LINK, FIELD_PATH | FIELD_TARGET | FIELD_MTIME },
	{ SYNC_GONE, FIELD_PATH },
	{ SYNC_MOVE, FIELD_PATH | FIELD_TO },
	{ SYNC_META, FIELD_PATH | FIELD_MODE | FIELD_MTIME },
	{ SYNC_PACK, FIELD_NONE },
	{ SYNC_SKIPPED, FIELD_PATH | FIELD_MODE },
	{ SYNC_ENTRY,
	  FIELD_PATH | FIELD_TARGET | FIELD_MODE | FIELD_MTIME | FIELD_SIZE | FIELD_HASH },
	{ SYNC_DATA, FIELD_DATA },
	{ SYNC_HOLE, FIELD_SIZE },
	{ SYNC_DONE, FIELD_SIZE },
	{ SYNC_END, FIELD_SIZE | FIELD_HASH },
};

unsigned sync_fields(unsigned type)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if ((unsigned)shapes[i].type == type)
			return shapes[i].fields;
	return 0;
}

/* A file cannot be longer than off_t counts. */
static int add_content(struct sync_order *o, uint64_t len)
{
	if (len == 0 || len > (uint64_t)INT64_MAX - o->content_len)
		return -EPROTO;
	o->content_len += len;
	return 0;
}

static int within_content(struct sync_order *o, const struct sync_record *rec)
{
	bool good = rec->type == SYNC_DONE && rec->size == o->content_len;

	if (rec->type == SYNC_DATA)
		return add_content(o, rec->len);
	if (rec->type == SYNC_HOLE && o->content == SYNC_FILE)
		return add_content(o, rec->size);
	o->content = 0;
	o->content_len = 0;
	return good ? 0 : -EPROTO;
}

static int outside(struct sync_order *o, const struct sync_record *rec)
{
	if (rec->type == SYNC_DATA || rec->type == SYNC_HOLE || rec->type == SYNC_DONE)
		return -EPROTO;
	if (rec->type == SYNC_END) {
		o->ended = true;
		return rec->size == o->records ? 0 : -EPROTO;
	}
	if (rec->type == SYNC_FILE || rec->type == SYNC_PACK)
		o->content = rec->type;
	return 0;
}

int sync_order_add(struct sync_order *o, const struct sync_record *rec)
{
	int r;

	if (o->ended)
		return -EPROTO;
	r = o->content ? within_content(o, rec) : outside(o, rec);
	o->records++;
	return r;
}
