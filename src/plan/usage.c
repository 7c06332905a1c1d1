/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sandboxes take on disk. Measured where somebody works on a plan anyway, and kept in the
 * registry, so that a listing of a thousand plans reads nothing else. Losing a figure harms nobody.
 */
#include "plan/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fs/stat.h"
#include "fs/walk.h"
#include "util/cleanup.h"

static int add_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct usage *u = ctx;
	struct fs_stat st;

	(void)path;
	/* Gone meanwhile, or not ours to look at: it does not count. */
	if (fs_stat_at(dir_fd, name, 0, &st) == 0) {
		u->bytes += st.disk;
		u->entries++;
	}
	/* What is closed to us, as the kernel's own directory beside an upper one, must not end it. */
	if (type == DT_DIR && faccessat(dir_fd, name, R_OK | X_OK, AT_EACCESS) < 0)
		return WALK_SKIP;
	return 0;
}

void usage_add(const char *path, struct usage *u)
{
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)add_entry(u, fd, "", "", 0);
	(void)walk_tree(fd, "", add_entry, NULL, u);
}

/* A whole copy would take as long as making it: it is measured when it is new. */
static bool is_cheap(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return row->entries == 0 || (strategy_find(row->strategy, &s, NULL) == 0 &&
	                             (s->capabilities & ATOLL_CAP_MOUNTS) != 0);
}

void usage_measure(struct sandboxes *boxes)
{
	for (size_t i = 0; i < boxes->n; i++) {
		struct sandbox_row *row = &boxes->v[i];
		struct usage u = { 0 };

		if (!is_cheap(row))
			continue;
		usage_add(row->area, &u);
		if (strcmp(row->work, row->area) != 0)
			usage_add(row->work, &u);
		row->bytes = u.bytes;
		row->entries = u.entries;
	}
}

int usage_write(struct registry *reg, const struct sandboxes *boxes, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < boxes->n; i++)
		r = registry_sandbox_set_usage(reg, boxes->v[i].id, boxes->v[i].bytes,
		                               boxes->v[i].entries, err);
	return r;
}
