/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/path.h"

#include "util/limits.h"

#include <limits.h>
#include <string.h>

static bool component_is_good(const char *c, size_t len)
{
	if (len == 0 || len > NAME_MAX)
		return false;
	if (c[0] != '.' || len > 2)
		return true;
	return len == 2 && c[1] != '.';
}

bool sync_path_is_good(const char *path, size_t len)
{
	const char *at = path, *end = path + len;

	if (len == 0 || len > LIMIT_PATH || memchr(path, '\0', len))
		return false;
	for (;;) {
		const char *slash = memchr(at, '/', (size_t)(end - at));

		if (!component_is_good(at, (size_t)((slash ? slash : end) - at)))
			return false;
		if (!slash)
			return true;
		at = slash + 1;
	}
}

int sync_path_compare(const char *a, const char *b)
{
	unsigned x, y;

	while (*a && *a == *b)
		a++, b++;
	/* The end of a path comes first, then what is below it. */
	x = *a == '/' ? 1 : *a ? (unsigned)(unsigned char)*a + 1 : 0;
	y = *b == '/' ? 1 : *b ? (unsigned)(unsigned char)*b + 1 : 0;
	return x < y ? -1 : x > y;
}

bool sync_path_is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return len == 0 || (strncmp(path, dir, len) == 0 && path[len] == '/');
}
