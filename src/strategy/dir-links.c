/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hard links that would lead from the resource back into the workspace. An entry of which not all
 * names are committed must not be moved: through a name left behind the workspace would still
 * reach the resource's file. Such a one is staged by copying.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/walk.h"
#include "util/mem.h"

#define LEAST_PLACES 256u /* a power of two */

/* Where INO is, or would be, among the places, of which some are free. */
static size_t *place_of(const struct dir_links *l, uint64_t ino)
{
	size_t i = (size_t)(ino * 0x9e3779b97f4a7c15u >> 32);

	for (;; i++) {
		size_t *place = &l->places[i & (l->n_places - 1)];

		if (*place == 0 || l->v[*place - 1].id.ino == ino)
			return place;
	}
}

static const struct dir_link_count *find_link(const struct dir_links *l, uint64_t ino)
{
	size_t *place = l->n ? place_of(l, ino) : NULL;

	return place && *place ? &l->v[*place - 1] : NULL;
}

static int add_places(struct dir_links *l)
{
	size_t n = l->n_places ? 2 * l->n_places : LEAST_PLACES;
	size_t *places = calloc(n, sizeof(*places));

	if (!places)
		return -ENOMEM;
	free(l->places);
	l->places = places;
	l->n_places = n;
	for (size_t i = 0; i < l->n; i++)
		*place_of(l, l->v[i].id.ino) = i + 1;
	return 0;
}

static int count_link(struct dir_links *l, const struct fs_stat *st)
{
	size_t *place;
	int r = 0;

	if (S_ISDIR(st->mode) || st->nlink < 2)
		return 0;
	if (2 * (l->n + 1) > l->n_places)
		r = add_places(l);
	if (r < 0)
		return r;
	place = place_of(l, st->id.ino);
	if (*place) {
		l->v[*place - 1].seen++;
		return 0;
	}
	r = grow((void **)&l->v, &l->cap, l->n + 1, sizeof(*l->v));
	if (r < 0)
		return r;
	l->v[l->n++] = (struct dir_link_count){ st->id, st->nlink, 1 };
	*place = l->n;
	return 0;
}

void dir_links_done(struct dir_links *l)
{
	free(l->v);
	free(l->places);
	*l = (struct dir_links){ 0 };
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
	l->record += MANIFEST_OP_SIZE + MANIFEST_CONTENT + strlen(path);
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
			l->record += MANIFEST_OP_SIZE + MANIFEST_CONTENT + strlen(c.path);
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
	const struct dir_link_count *known;

	if (S_ISDIR(st->mode) || st->nlink < 2)
		return false;
	known = find_link(l, st->id.ino);
	return known && known->seen < known->nlink;
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
