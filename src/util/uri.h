/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UTIL_URI_H
#define UTIL_URI_H

/* "file:PATH?QUERY", with whatever is not plain in PATH escaped. Caller frees. */
char *uri_of_file(const char *path, const char *query);

#endif
