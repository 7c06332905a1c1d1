/* SPDX-License-Identifier: Apache-2.0 */
/* Paths in streams and manifests: relative, any byte but NUL, ordered as a walk meets them. */
#ifndef SYNC_PATH_H
#define SYNC_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Components that are not empty, "." or "..", no longer than a name may be, with single slashes between
 * them; no NUL; 1 to LIMIT_PATH bytes. */
bool sync_path_is_good(const char *path, size_t len);
/* A directory before what is in it, and that before the directory's next neighbour: a slash is below
 * every other byte. */
int sync_path_compare(const char *a, const char *b);
/* PATH is below the directory DIR; "" is above all. */
bool sync_path_is_below(const char *path, const char *dir);

#endif
