/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are opened on first use. */
#ifndef UTIL_LIBRARY_H
#define UTIL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* The function NAME of what dlopen() gave, into a pointer to it of SIZE bytes; false: it lacks it. */
bool library_find(void *handle, const char *name, void *ret, size_t size);

#endif
