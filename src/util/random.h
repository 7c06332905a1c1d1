/* SPDX-License-Identifier: Apache-2.0 */
/* Unguessable names. */
#ifndef UTIL_RANDOM_H
#define UTIL_RANDOM_H

#include <stddef.h>

void random_bytes(void *out, size_t len); /* getrandom(2); aborts if the kernel refuses */
/* LEN lower-case hex digits and a NUL into OUT (LEN + 1 bytes). */
void random_hex(char *out, size_t len);

#endif
