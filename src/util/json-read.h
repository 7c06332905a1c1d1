/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading one JSON object (RFC 8259) from somebody who is not trusted: strict, nothing is allocated,
 * nesting is bounded by JSON_MAX_DEPTH.
 */
#ifndef UTIL_JSON_READ_H
#define UTIL_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_KEY_MAX 64 /* bytes of a key, decoded */

/* KEY is decoded; VALUE is LEN bytes of the text, a whole value. A negative answer ends the walk. */
typedef int (*json_member_fn)(void *user, const char *key, const char *value, size_t len);

/* Calls FN for each member of the object that TEXT is. The whole text is checked before the first
 * call: -EBADMSG when it is no object, has a key twice, one that is too long, or anything behind it. */
int json_members(const char *text, size_t len, json_member_fn fn, void *user);
/* The same for each element of the array that TEXT is, of which there are MAX at most (-E2BIG). I is the
 * element's number, from 0. */
typedef int (*json_element_fn)(void *user, size_t i, const char *value, size_t len);
int json_elements(const char *text, size_t len, size_t max, json_element_fn fn, void *user);
/* Is TEXT one value and nothing else? */
int json_check(const char *text, size_t len);
/* The value without blanks between its parts. OUT has room for LEN + 1 bytes. The length. */
size_t json_compact(const char *value, size_t len, char *out);
/* -EBADMSG when it is no string, or holds a NUL; -ENOSPC when OUT is too small for it and its NUL. */
int json_decode_string(const char *value, size_t len, char *out, size_t size);
/* -EBADMSG when it is neither true nor false. */
int json_decode_bool(const char *value, size_t len, bool *ret);
/* -EBADMSG when it is no whole number, -ERANGE when it is too large. */
int json_decode_int(const char *value, size_t len, int64_t *ret);

#endif
