/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A streaming JSON writer. Commas, quoting and nesting are its business; misuse is a BUG().
 * Strings that are not valid UTF-8 are written with each bad byte as U+FFFD; json_bytes() also
 * adds a "<key>_b64" member with the exact bytes when that happened (so it needs a key).
 * Control and bidi characters are written as \uNNNN.
 */
#ifndef UTIL_JSON_H
#define UTIL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 16

struct json {
	FILE *out;
	unsigned depth;
	bool need_comma[JSON_MAX_DEPTH];
	char kind[JSON_MAX_DEPTH]; /* '{' or '[' */
};

void json_init(struct json *j, FILE *out);
/* KEY is NULL inside an array and at the top. */
void json_open_object(struct json *j, const char *key);
void json_open_array(struct json *j, const char *key);
void json_close(struct json *j);
void json_string(struct json *j, const char *key, const char *value); /* NULL: null */
void json_bytes(struct json *j, const char *key, const char *value);
/* The same of LEN bytes, NULs among them. */
void json_data(struct json *j, const char *key, const char *data, size_t len);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_seconds(struct json *j, const char *key, int64_t ms); /* MS >= 0, as seconds: 1.500 */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
void json_end(struct json *j); /* newline; every level must be closed */

#endif
