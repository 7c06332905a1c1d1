/* SPDX-License-Identifier: Apache-2.0 */
/* Any audit log: read without harm, every line told once, and none of them good but those that follow. */
#include "auth/audit.h"

#include <atoll.h>

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

struct told {
	uint64_t lines, wrong;
};

static int tell(void *user, const struct audit_line *line)
{
	struct told *t = user;

	must(line->number == ++t->lines && line->text && line->file);
	must(line->is_entry || line->wrong);
	t->wrong += line->wrong != NULL;
	return 0;
}

static uint64_t count_lines(const uint8_t *data, size_t size)
{
	uint64_t n = size > 0 && data[size - 1] != '\n';

	for (size_t i = 0; i < size; i++)
		n += data[i] == '\n';
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct atoll *a;
	struct told t = { 0 };
	struct audit_sum sum;

	if (!a)
		must(atoll_open(fuzz_dir(), &a, NULL) == 0);
	fuzz_put("audit.log", data, size);
	must(audit_read(a, tell, &t, &sum, NULL) == 0);
	must(sum.lines == t.lines && sum.wrong == t.wrong && sum.missing == 0);
	must(sum.lines == count_lines(data, size));
	return 0;
}
