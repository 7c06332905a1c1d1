/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hard links that would lead from the resource back into the workspace. An entry of which not all
 * names are committed must not be moved: through a name left behind the workspace would still
 * reach the resource's file. Such a one is staged by copying.
 */
#include "strategy/dir.h"

#include <string.h>
#include <sys/stat.h>

#include "fs/walk.h"
#include "util/mem.h"

static int count_link(struct dir_links *l, const struct fs_stat *st)
{
	int r;

	if (S_ISDIR(st->mode) || st->nlink < 2)
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		if (l->v[i].id.ino == st->id.ino) {
			l->v[i].seen++;
			return 0;
		}
	}
	r = grow((void **)&l->v, &l->cap, l->n + 1, sizeof(*l->v));
	if (r >= 0)
		l->v[l->n++] = (struct dir_link_count){ st->id, st->nlink, 1 };
	return r;
}

static int count_below(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct dir_links *l = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)type;
	/* An overlay's whiteouts share one inode with all others. */
	if (r < 0 || overlay_is_whiteout(&st))
		return r;
	l->record += MANIFEST_OP_SIZE + strlen(path);
	return count_link(l, &st);
}

int dir_links_count(struct dir_batch *b, const struct changeset *cs, struct dir_links *l)
{
	int r = 0;

	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0 || (c.op != CHANGE_CREATE && c.op != CHANGE_REPLACE))
			continue;
		if (!S_ISDIR(c.work.mode))
			l->record += MANIFEST_OP_SIZE + strlen(c.path);
		r = S_ISDIR(c.work.mode) ? walk_tree(b->work_fd, c.path, count_below, NULL, l)
		                         : count_link(l, &c.work);
	}
	return r;
}

struct leaves {
	const struct dir_links *l;
	bool leaves;
};

/* Not all names of the entry are committed: one is left behind, through which the workspace would
 * still reach the resource's file. */
static bool link_leaves(const struct dir_links *l, const struct fs_stat *st)
{
	if (S_ISDIR(st->mode) || st->nlink < 2)
		return false;
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].id.ino == st->id.ino)
			return l->v[i].seen < l->v[i].nlink;
	return false;
}

static int look_below(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct leaves *look = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)path;
	(void)type;
	if (r >= 0 && !overlay_is_whiteout(&st))
		look->leaves = look->leaves || link_leaves(look->l, &st);
	return r;
}

int dir_links_leave(struct dir_batch *b, const struct change *c, const struct dir_links *l,
                    bool *ret)
{
	struct leaves look = { .l = l };
	int r = 0;

	*ret = false;
	if (l->n == 0 || c->op == CHANGE_DELETE)
		return 0;
	if (S_ISDIR(c->work.mode))
		r = walk_tree(b->work_fd, c->path, look_below, NULL, &look);
	*ret = look.leaves || link_leaves(l, &c->work);
	return r;
}
