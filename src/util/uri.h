/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UTIL_URI_H
#define UTIL_URI_H

#include <stddef.h>

/* "file:PATH?QUERY", with whatever is not plain in PATH escaped. Caller frees. */
char *uri_of_file(const char *path, const char *query);

/* The LEN bytes of TEXT with each %XX as the byte it stands for. NULL when one is broken or stands for
 * NUL. Caller frees. */
char *uri_decode(const char *text, size_t len);

#endif
