/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns for paths, as people know them from git. Bytes, not characters of a locale.
 *
 *   *       any bytes within one name, a dot in front too    ?       one byte of a name
 *   [a-z]   one of these, [!a-z] none of them                \x      x itself
 *   **      as a whole name of the pattern: any number of names, none too
 *
 * A pattern without a slash is about a name, wherever it is: `*.log`, `node_modules`. One with a
 * slash in front or inside is about the path from the root on: `/build`, `docs/old`. A slash at the
 * end: directories only. What matches a directory matches all that is below it. There is no "!".
 */
#ifndef UTIL_GLOB_H
#define UTIL_GLOB_H

#include <stdbool.h>

/* PATH is relative, without "." and ".."; "" (the root itself) matches nothing. IS_DIR: of PATH. The
 * time taken is at most the product of the lengths. */
bool glob_path(const char *pattern, const char *path, bool is_dir);
/* False for a pattern that no path can match: one that is empty, or asks for an empty name, "." or
 * "..". */
bool glob_can_match(const char *pattern);

#endif
