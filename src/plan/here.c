/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/here.h"

#include <errno.h>
#include <stdlib.h>

#include "util/cleanup.h"

int here_failed(int r, struct error *err)
{
	if (r != -ENOENT)
		return error_sys(err, r, "find", "the current directory");
	(void)error_set(err, r, "the current directory was deleted");
	error_hint(err, "cd to a directory that is there");
	return r;
}

bool here_is_deleted(const char *path)
{
	cleanup_free char *here = *path == '/' ? NULL : realpath(".", NULL);

	return *path != '/' && !here && errno == ENOENT;
}
