/* SPDX-License-Identifier: Apache-2.0 */
/* Opening either side of a change in a tree, for whoever reads a diff. */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/live-database.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

void dir_sides_init(struct dir_sides *s, int old_fd, int new_fd)
{
	*s = (struct dir_sides){ .root_fd = { old_fd, new_fd }, .parent_fd = { FD_NONE, FD_NONE } };
}

void dir_sides_done(struct dir_sides *s)
{
	for (size_t i = 0; i < 2; i++) {
		free(s->parent[i]);
		close_fd(&s->parent_fd[i]);
	}
}

static int parent_of(struct dir_sides *s, enum atoll_side side, const char *path,
                     const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	const char *last = s->parent[side];
	int r;

	*ret_name = slash ? slash + 1 : path;
	if (last && strlen(last) == len && strncmp(last, path, len) == 0)
		return 0;
	free(s->parent[side]);
	close_fd(&s->parent_fd[side]);
	s->parent[side] = xstrndup(path, len);
	r = resolve_dir_path(s->root_fd[side], s->parent[side], &s->parent_fd[side]);
	if (r < 0) {
		free(s->parent[side]);
		s->parent[side] = NULL;
	}
	return r;
}

bool dir_is_database(struct dir_sides *s, const char *path, const struct fs_stat *old)
{
	const char *name;

	return live_database_may_be(path, old) && parent_of(s, ATOLL_SIDE_OLD, path, &name) >= 0 &&
	       live_database_at(s->parent_fd[ATOLL_SIDE_OLD], name, old);
}

int change_open_dir(const struct atoll_change *change, int *ret_fd)
{
	const struct atoll_participant *p = change->from;

	if (!p || !p->sides)
		return -ATOLL_E_UNSUPPORTED;
	return resolve_dir_path(p->sides->root_fd[ATOLL_SIDE_NEW], change->path, ret_fd);
}

int dir_content(struct atoll_participant *p, const struct atoll_change *change,
                enum atoll_side side, int *ret_fd)
{
	uint32_t mode = side == ATOLL_SIDE_OLD ? change->old_mode : change->new_mode;
	struct dir_sides *s = p->sides;
	const char *name;
	int r;

	if (!s)
		return -ATOLL_E_UNSUPPORTED;
	/* What somebody else made where there was nothing. */
	if (!mode && side == ATOLL_SIDE_OLD && change->what & ATOLL_CHANGE_CONFLICT)
		mode = S_IFREG;
	if (!mode)
		return -ENOENT;
	if (S_ISDIR(mode) || !*change->path)
		return -EISDIR;
	r = parent_of(s, side, change->path, &name);
	if (r < 0)
		return r;
	if (S_ISLNK(mode))
		return resolve_link(s->parent_fd[side], name, ret_fd);
	return S_ISREG(mode) ? resolve_file_seen(s->parent_fd[side], name, ret_fd) : -ENXIO;
}
