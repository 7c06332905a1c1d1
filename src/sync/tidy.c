/* SPDX-License-Identifier: Apache-2.0 */
/* What an apply that was killed has left. */
#include "sync/apply.h"

#include "fs/remove.h"
#include "fs/walk.h"

#include <string.h>

bool sync_is_temporary(const char *name)
{
	size_t len = strlen(SYNC_TEMPORARY);

	return strncmp(name, SYNC_TEMPORARY, len) == 0 &&
	       strlen(name) == len + SYNC_TEMPORARY_HEX &&
	       strspn(name + len, "0123456789abcdef") == SYNC_TEMPORARY_HEX;
}

static int remove_ours(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	(void)ctx;
	(void)path;
	(void)type;
	if (!sync_is_temporary(name))
		return 0;
	(void)remove_tree_at(dir_fd, name);
	return WALK_SKIP;
}

int sync_tidy(int root_fd)
{
	return walk_tree(root_fd, "", remove_ours, NULL, NULL);
}
