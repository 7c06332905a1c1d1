/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns over paths, as --exclude has them. Bytes, not characters of a locale.
 *
 *   *       any bytes within one name           ?       one byte of a name
 *   [a-z]   one of these, [!a-z] none of them   \x      x itself
 *   **      as a whole name of the pattern: any number of names, none too
 *
 * A pattern without a slash is about a name, wherever it is: `*.log`, `node_modules`. One with a
 * slash is about the path from the root on; a slash in front only says so: `/build`. A slash at the
 * end is ignored. What matches a directory matches all that is below it.
 */
#ifndef UTIL_GLOB_H
#define UTIL_GLOB_H

#include <stdbool.h>

struct strlist;

/* PATH is relative, without leading or trailing slash. The time taken is at most the product of the
 * lengths. A pattern that names nothing ("" or "/") matches nothing. */
bool glob_match(const char *pattern, const char *path);
/* One of PATTERNS does. NULL: none. */
bool glob_match_any(const struct strlist *patterns, const char *path);

#endif
