/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as JSON: read without harm. Each part of what is accepted is accepted alone, and so is the
 * whole without blanks.
 */
#include "util/json-read.h"

#include <errno.h>

#include "fuzz/fuzz.h"

#define ELEMENTS 1000

static void look(const char *value, size_t len);

static int member(void *user, const char *key, const char *value, size_t len)
{
	(void)user;
	must(strlen(key) <= JSON_KEY_MAX);
	look(value, len);
	return 0;
}

static int element(void *user, size_t i, const char *value, size_t len)
{
	size_t *next = user;

	must(i == (*next)++);
	look(value, len);
	return 0;
}

static void look(const char *value, size_t len)
{
	char *text = malloc(len + 1);
	size_t next = 0;
	int64_t number;
	bool is;

	must(text && json_check(value, len) == 0);
	(void)json_members(value, len, member, NULL);
	(void)json_elements(value, len, ELEMENTS, element, &next);
	(void)json_decode_bool(value, len, &is);
	(void)json_decode_int(value, len, &number);
	if (json_decode_string(value, len, text, len + 1) == 0)
		must(strlen(text) <= len);
	must(json_decode_string(value, len, text, 0) < 0);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	size_t next = 0;
	char *compact;

	if (size > 1 << 14)
		return 0; /* each part is looked at once for each level above it */
	if (json_check(text, size) < 0) {
		must(json_members(text, size, member, NULL) < 0);
		must(json_elements(text, size, ELEMENTS, element, &next) < 0);
		return 0;
	}
	look(text, size);
	compact = malloc(size + 1);
	must(compact != NULL);
	next = json_compact(text, size, compact);
	must(next <= size && json_check(compact, next) == 0);
	free(compact);
	return 0;
}
