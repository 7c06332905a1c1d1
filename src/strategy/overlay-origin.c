/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file of an overlay's upper came from. See overlay-origin.h. */
#include "strategy/overlay-origin.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

void overlay_hidden_done(struct overlay_hidden *h)
{
	free(h->v);
	*h = (struct overlay_hidden){ 0 };
}

/* ---- what the upper hides ---- */

struct hiding {
	const struct upper_compare *u;
	struct overlay_hidden *h;
};

/* Out of reach: not known, so that it explains nothing. */
static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV || r == -EACCES;
}

static bool is_excluded(const struct upper_compare *u, const char *path)
{
	for (size_t i = 0; u->excludes && i < u->excludes->n; i++)
		if (path_below(path, u->excludes->v[i]))
			return true;
	return false;
}

static int add_below(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct hiding *x = ctx;
	struct fs_stat st;
	int r = is_excluded(x->u, path) ? -ENOENT : fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r >= 0)
		r = grow((void **)&x->h->v, &x->h->cap, x->h->n + 1, sizeof(*x->h->v));
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	x->h->v[x->h->n++] = st;
	return 0;
}

/* One entry of the upper: with what the resource has there, unless both are directories of one view. */
static int add_covered(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct hiding *x = ctx;
	cleanup_close int fd = FD_NONE;
	int r;

	if (is_excluded(x->u, path))
		return WALK_SKIP;
	if (type == DT_DIR && resolve_dir_path(x->u->orig_fd, path, &fd) >= 0 &&
	    overlay_is_opaque(dir_fd, name, x->u->marks) != 1)
		return 0;
	r = walk_tree(x->u->orig_fd, path, add_below, NULL, x);
	return r < 0 && !is_absent(r) ? r : WALK_SKIP;
}

/* ---- the question ---- */

static bool is_origin(struct fs_id origin, const struct change *c, const struct fs_stat *st)
{
	if (overlay_origin_known(origin))
		return overlay_origin_is(origin, st->id);
	return st->mode == c->work.mode && st->size == c->work.size &&
	       st->mtime_ns == c->work.mtime_ns;
}

int overlay_misses_origin(const struct upper_compare *u, const struct manifest *records,
                          const struct change *c, struct overlay_hidden *h)
{
	struct hiding x = { u, h };
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_id origin = { 0 };
	int r = resolve_parent(u->upper_fd, c->path, &fd, &name);

	if (r >= 0)
		r = overlay_origin(fd, name, u->marks, &origin);
	if (r <= 0)
		return r;
	if (c->base.mode &&
	    (!overlay_origin_known(origin) || overlay_origin_is(origin, c->base.id)))
		return 0;
	for (size_t i = 0; i < records->ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(records, i, &o);
		if (r < 0)
			return r;
		if (is_origin(origin, c, &o.old_stat))
			return 0;
	}
	if (!h->read) {
		r = walk_tree(u->upper_fd, "", add_covered, NULL, &x);
		if (r < 0)
			return r;
		h->read = true;
	}
	for (size_t i = 0; i < h->n; i++)
		if (is_origin(origin, c, &h->v[i]))
			return 0;
	return 1;
}
