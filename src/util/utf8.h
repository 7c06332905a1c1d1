/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 one character at a time, for text that comes from file names. */
#ifndef UTIL_UTF8_H
#define UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes of the character at S (LEN > 0 bytes are there), its number in *ret_char.
 * 0: the first byte begins no valid character (overlong forms, surrogates and numbers over
 * U+10FFFF are not valid). */
size_t utf8_decode(const char *s, size_t len, uint32_t *ret_char);
bool utf8_valid(const char *s, size_t len);
/* The largest length up to MAX at which S can be cut without splitting a character. */
size_t utf8_cut(const char *s, size_t max);
/* True for characters that move the cursor, change the direction of text or cannot be seen. */
bool utf8_is_hidden(uint32_t c);

#endif
