/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes of a PostgreSQL client or server: in pieces of any size the same messages as at once, none
 * of which reaches beyond what is there; and bodies read as everything that a body can be.
 */
#include "postgres/wire.h"

#include <errno.h>

#include "fuzz/fuzz.h"

#define STREAMED "dD"

struct outcome {
	size_t messages, bytes;
	uint64_t types;
	int last;
};

static void read_body(const struct wire_message *m)
{
	struct wire_reader r = wire_read(m), numbers = wire_read(m);
	size_t texts = 0;

	while (!r.bad && r.left > 0)
		texts += strlen(wire_text(&r)) + 1;
	must(r.bad || texts == m->len);
	while (!numbers.bad && numbers.left > 0) {
		(void)wire_u32(&numbers);
		(void)wire_u16(&numbers);
		(void)wire_char(&numbers);
	}
	must(strlen(wire_error_field(m, 'M')) <= m->len &&
	     strlen(wire_error_field(m, 'C')) <= m->len);
}

static void take_messages(struct wire_buf *in, bool startup, const char *stream, struct outcome *o)
{
	struct wire_message m;

	while ((o->last = startup && o->messages == 0 ? wire_peek_startup(in, &m)
	                                              : wire_peek(in, stream, &m)) > 0) {
		must(m.body + m.len <= in->v + in->len && m.body >= in->v + in->off);
		read_body(&m);
		o->messages++;
		o->types = o->types * 31 + (unsigned char)m.type;
		o->bytes += m.len;
		wire_skip(in, &m);
		if (m.partial)
			return;
	}
	must(o->last == 0 || o->last == -EPROTO);
}

static struct outcome read_all(const uint8_t *data, size_t size, bool startup, size_t piece,
                               const char *stream)
{
	struct wire_buf in = { 0 };
	struct outcome o = { 0 };

	for (size_t at = 0; at < size && o.last >= 0;) {
		size_t n = size - at < piece ? size - at : piece;

		must(wire_add(&in, data + at, n) == 0);
		at += n;
		take_messages(&in, startup, stream, &o);
		if (*stream && o.last > 0)
			break;
	}
	wire_buf_done(&in);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t pieces[] = { 1, 4, 5, 7, 4096 };

	for (int startup = 0; startup <= 1; startup++) {
		struct outcome whole = read_all(data, size, startup, SIZE_MAX, "");

		for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
			struct outcome o = read_all(data, size, startup, pieces[i], "");

			must(o.messages == whole.messages && o.types == whole.types &&
			     o.bytes == whole.bytes && o.last == whole.last);
		}
		(void)read_all(data, size, startup, 4096, STREAMED);
	}
	return 0;
}
