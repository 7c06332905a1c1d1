/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/place.h"

#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sync_place_enter(struct sync_place *p, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (p->dir_fd == FD_NONE || strlen(p->dir) != len || memcmp(p->dir, path, len) != 0) {
		int fd, r = resolve_parent(p->root_fd, path, &fd, ret_name);

		if (r < 0)
			return r;
		sync_place_done(p);
		p->dir_fd = fd;
		p->dir = xstrndup(path, len);
	}
	*ret_name = slash ? slash + 1 : path;
	return 0;
}

void sync_place_done(struct sync_place *p)
{
	int e = errno;

	close_fd(&p->dir_fd);
	free(take_ptr(p->dir));
	errno = e;
}
