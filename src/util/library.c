/* SPDX-License-Identifier: Apache-2.0 */
#include "util/library.h"

#include <dlfcn.h>
#include <string.h>

/* What dlsym() gives is a pointer to an object, which C cannot turn into one to a function. */
bool library_find(void *handle, const char *name, void *ret, size_t size)
{
	void *symbol = dlsym(handle, name);

	memcpy(ret, &symbol, size);
	return symbol != NULL;
}
