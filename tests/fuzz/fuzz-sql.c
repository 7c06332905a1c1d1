/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as SQL: its statements lie in it, one behind the other, and no ';' between them is lost. */
#include "postgres/sql.h"

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

static void look(const char *text, size_t size, bool backslashes)
{
	cleanup_sql struct sql s = SQL_INIT;
	size_t end = 0;

	must(sql_split(&s, text, size, backslashes) == 0);
	for (size_t i = 0; i < s.n; i++) {
		const struct sql_statement *st = &s.v[i];

		must(st->start >= end && st->start < st->end && st->end <= size);
		must(st->kind < SQL_KIND_END_);
		must(st->stop >= st->end && st->stop <= size);
		must(i + 1 == s.n || text[st->stop - 1] == ';');
		/* It is ended by one, or by the end of the text. */
		must(i + 1 == s.n || memchr(text + st->end, ';', s.v[i + 1].start - st->end));
		if (st->name_end > st->name_start) {
			cleanup_free char *name =
				sql_name(text + st->name_start, st->name_end - st->name_start);

			must(st->name_start >= st->start && st->name_end <= st->end && name);
		}
		end = st->end;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	look((const char *)data, size, false);
	look((const char *)data, size, true);
	return 0;
}
