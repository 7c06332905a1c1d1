/* SPDX-License-Identifier: Apache-2.0 */
/* Destructors for scope-bound variables. They run on the way out of a failing function, so errno
 * survives them. */
#include "util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cleanup_freep(void *p)
{
	int saved = errno;
	void *mem;

	/* P points to a pointer of any type; reading it as a void * would break aliasing rules. */
	memcpy(&mem, p, sizeof(mem));
	free(mem);
	errno = saved;
}

void close_fd(int *fd)
{
	int saved = errno;

	if (*fd == FD_NONE)
		return;
	/* On Linux the descriptor is gone even when close() fails; trying again would close
	 * somebody else's. What must be durable was synced before. */
	(void)close(*fd);
	*fd = FD_NONE;
	errno = saved;
}

void cleanup_closep(int *fd)
{
	close_fd(fd);
}

int take_fd(int *fd)
{
	int taken = *fd;

	*fd = FD_NONE;
	return taken;
}
