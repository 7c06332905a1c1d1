/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing into a copy what somebody else changed in the resource, where the plan changed nothing.
 * What differs between base record and resource is found first; then each such path of the
 * workspace, which is an unchanged copy, is filled anew; then the base record is written anew.
 *
 * Crash: a path that was filled and is not yet in the record is equal on both sides, which is no
 * conflict, and the next refresh records it.
 */
#include "strategy/copy-base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/base.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

struct dir_todo {
	char *path;
	uint32_t dir;
};

struct finder {
	const struct tree_compare *t;
	struct copy_foreign *out;
	struct dir_todo *v;
	size_t n, cap;
};

static char *join(const char *dir, const char *name)
{
	return xasprintf("%s%s%s", dir, *dir ? "/" : "", name);
}

static bool same_file(const struct base_entry *e, const struct fs_stat *now)
{
	return fs_id_equal(e->src.id, now->id) && e->src.ctime_ns == now->ctime_ns &&
	       e->src.size == now->size && e->src.mtime_ns == now->mtime_ns;
}

static bool same_dir(const struct base_entry *e, const struct fs_stat *now)
{
	return fs_id_equal(e->src.id, now->id) && e->src.ctime_ns == now->ctime_ns;
}

/* One name. E: in the base, or NULL. */
static int compare_name(struct finder *f, const char *dir, int fd, const char *name,
                        const struct base_entry *e)
{
	cleanup_free char *path = join(dir, name);
	struct fs_stat now;
	int r = fs_stat_at(fd, name, FS_STAT_ID, &now);

	if ((f->t->excludes && strlist_has(f->t->excludes, path)) ||
	    (e && e->flags & (BASE_UNREADABLE | BASE_SKIPPED)))
		return 0;
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == -ENOENT || !e || ((e->src.mode ^ now.mode) & S_IFMT)) {
		if (e || r >= 0)
			strlist_add(&f->out->paths, path);
		return 0;
	}
	if (e->dir == BASE_NO_DIR) {
		if (!same_file(e, &now))
			strlist_add(&f->out->paths, path);
		return 0;
	}
	if (!same_dir(e, &now))
		strlist_add(&f->out->dirs, path);
	r = grow((void **)&f->v, &f->cap, f->n + 1, sizeof(*f->v));
	if (r >= 0)
		f->v[f->n++] = (struct dir_todo){ take_ptr(path), e->dir };
	return r;
}

static int compare_dir(struct finder *f, const char *path, uint32_t dir, struct error *err)
{
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;
	int r = base_read(f->t->base, dir, &blk, err);

	if (r < 0)
		return r;
	r = resolve_dir(f->t->orig_fd, path, &fd);
	if (r >= 0)
		r = dirlist_read(fd, &names);
	if (r == -ENOENT || r == -EACCES)
		return 0;
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct base_entry *e;

		r = base_block_find(&blk, names.v[i].name, &e);
		if (r >= 0)
			r = compare_name(f, path, fd, names.v[i].name, e);
	}
	for (size_t i = 0; i < blk.n && r >= 0; i++) {
		const struct base_entry *e;
		struct fs_stat st;

		r = base_block_at(&blk, i, &e);
		if (r >= 0 && fs_stat_at(fd, e->name, 0, &st) == -ENOENT)
			r = compare_name(f, path, fd, e->name, e);
	}
	return r < 0 ? error_sys(err, r, "look for changes below", *path ? path : ".") : 0;
}

int copy_foreign_find(const struct tree_compare *t, struct copy_foreign *ret, struct error *err)
{
	struct finder f = { .t = t, .out = ret };
	const struct base_entry *root = base_root(t->base);
	struct fs_stat now;
	int r = fs_stat_at(t->orig_fd, "", FS_STAT_ID, &now);

	if (r < 0)
		return error_sys(err, r, "look at", "the resource");
	if (!same_dir(root, &now))
		strlist_add(&ret->dirs, "");
	r = compare_dir(&f, "", root->dir, err);
	while (r >= 0 && f.n) {
		struct dir_todo d = f.v[--f.n];

		r = compare_dir(&f, d.path, d.dir, err);
		free(d.path);
	}
	while (f.n)
		free(f.v[--f.n].path);
	free(f.v);
	return r;
}

void copy_foreign_done(struct copy_foreign *f)
{
	strlist_done(&f->paths);
	strlist_done(&f->dirs);
}
