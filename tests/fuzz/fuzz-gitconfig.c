/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any file: read without harm; and when it can be read, setting a key and taking it out again changes
 * that key and nothing else.
 */
#include "util/gitconfig.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KEY   "fuzz.a \"b.name"
#define VALUE " new; \"value\" "

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	struct strbuf others; /* key and value of all but KEY */
	size_t keys;
	struct strbuf last; /* value of the last KEY */
};

static int see(void *user, const struct gitconfig_entry *e)
{
	struct seen *s = user;

	if (strcmp(e->key, KEY) == 0) {
		s->keys++;
		strbuf_truncate(&s->last, 0);
		strbuf_puts(&s->last, e->value ? e->value : "");
	} else {
		strbuf_printf(&s->others, "%s=%s%c", e->key, e->value ? e->value : "", '\0');
	}
	return 0;
}

static void done(struct seen *s)
{
	strbuf_done(&s->others);
	strbuf_done(&s->last);
}

static void must(bool what)
{
	if (!what)
		abort();
}

static void same_others(const struct seen *a, const struct seen *b)
{
	must(a->others.len == b->others.len &&
	     (a->others.len == 0 || memcmp(a->others.buf, b->others.buf, a->others.len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_strbuf struct strbuf set = STRBUF_INIT, unset = STRBUF_INIT;
	const char *text = (const char *)data;
	struct seen before = { 0 }, with = { 0 }, without = { 0 };
	unsigned line;

	if (gitconfig_read(text, size, see, &before, &line) == 0) {
		must(gitconfig_edit(text, size, KEY, VALUE, &set, &line) == 0);
		must(gitconfig_read(strbuf_str(&set), set.len, see, &with, &line) == 0);
		same_others(&before, &with);
		must(with.keys == (before.keys ? before.keys : 1));
		must(strcmp(strbuf_str(&with.last), VALUE) == 0);
		must(gitconfig_edit(strbuf_str(&set), set.len, KEY, NULL, &unset, &line) == 0);
		must(gitconfig_read(strbuf_str(&unset), unset.len, see, &without, &line) == 0);
		same_others(&before, &without);
		must(without.keys == 0);
	} else {
		must(line > 0);
	}
	done(&before);
	done(&with);
	done(&without);
	return 0;
}
