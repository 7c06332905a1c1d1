/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What our own batches left in the resource, so that it does not pass for somebody else's change.
 *
 * What a batch that was taken back put back: moving an original away and back leaves its content
 * and times alone but not its ctime, by which the base record would take it for somebody else's
 * change, and the same work could not be committed again. So it is written down, after the last
 * move, how each looks since. And what a batch installed that left work behind, whose view's base is
 * older. On disk it is a manifest of CREATEs in the area.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define RESTORED     "restored"
#define RESTORED_NEW "restored.new"

/* Back where it was, as it was; and it went away meanwhile. */
static bool was_moved(const struct fs_stat *was, const struct fs_stat *now)
{
	return fs_id_equal(was->id, now->id) && was->mode == now->mode && was->uid == now->uid &&
	       was->gid == now->gid && was->size == now->size && was->mtime_ns == now->mtime_ns &&
	       was->ctime_ns != now->ctime_ns;
}

static int add(struct manifest *m, const char *path, const struct fs_stat *st)
{
	struct manifest_op o = { .op = CHANGE_CREATE,
		                 .flags = MANIFEST_RECORD,
		                 .path = xstrdup(path),
		                 .new_stat = *st };

	return manifest_add_op(m, &o);
}

static int add_op(struct dir_batch *b, const struct manifest_op *o, struct manifest *m)
{
	const char *name;
	struct fs_stat st;
	int fd, r;

	if (!o->old_stat.mode)
		return 0;
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	return was_moved(&o->old_stat, &st) ? add(m, o->path, &st) : 0;
}

/* What earlier batches put back, and this one did not touch, still counts. */
static int add_earlier(struct dir_batch *b, struct manifest *m)
{
	struct manifest earlier = MANIFEST_INIT;
	size_t n = m->ops.n;
	int r = 0;

	if (manifest_read(b->area_fd, RESTORED, "", &earlier, NULL) < 0)
		earlier = MANIFEST_INIT;
	for (size_t i = 0; i < earlier.ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct manifest_op so_far;

		r = manifest_get(&earlier, i, &o);
		if (r >= 0)
			r = manifest_find(m, n, o.path, &so_far);
		if (r == 0)
			r = manifest_add_op(m, &o);
	}
	manifest_done(&earlier);
	return r < 0 ? r : manifest_sort(m);
}

static int install(struct dir_batch *b)
{
	int r = fs_move(b->area_fd, RESTORED_NEW, b->area_fd, RESTORED);

	if (r != -EEXIST)
		return r;
	r = fs_exchange(b->area_fd, RESTORED, b->area_fd, RESTORED_NEW);
	return r < 0 ? r : fs_unlink_at(b->area_fd, RESTORED_NEW);
}

/* Takes over what M holds. */
static int save(struct atoll_participant *p, struct dir_batch *b, struct manifest *m, int r)
{
	char hash[HASH_TEXT_LEN];

	if (r >= 0 && m->ops.n) {
		r = add_earlier(b, m);
		if (r >= 0)
			r = manifest_write(m, b->area_fd, RESTORED_NEW, hash, NULL);
		if (r >= 0)
			r = install(b);
		if (r >= 0 && p->batch.sync)
			r = syncset_add(p->batch.sync, b->area_fd, RESTORED);
		if (r >= 0 && p->batch.sync)
			r = syncset_add(p->batch.sync, b->area_fd, "");
	}
	manifest_done(m);
	return r < 0 ? error_sys(&p->err, r, "record what was left in", p->root) : 0;
}

int dir_restored_write(struct atoll_participant *p, struct dir_batch *b)
{
	struct manifest m = { .created_ns = b->m.created_ns };
	int r = 0;

	spool_spill_to(&m.ops, b->area_fd);
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0 && !(o.flags & MANIFEST_WORK))
			r = add_op(b, &o, &m);
	}
	return save(p, b, &m, r);
}

static int add_all(struct manifest *m, const struct manifest *from)
{
	int r = 0;

	for (size_t i = 0; i < from->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(from, i, &o);
		if (r >= 0)
			r = add(m, o.path, &o.new_stat);
	}
	return r;
}

int dir_restored_add(struct atoll_participant *p, struct dir_batch *b,
                     const struct manifest *installed, const struct manifest *theirs, bool back)
{
	struct manifest m = { .created_ns = b->m.created_ns };
	int r = 0;

	spool_spill_to(&m.ops, b->area_fd);
	r = add_all(&m, installed);
	if (r >= 0)
		r = add_all(&m, theirs);
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++) {
		cleanup_close int fd = FD_NONE;
		struct fs_stat st;

		if (resolve_dir_path(b->root_fd, b->m.dirs[i].path, &fd) < 0 ||
		    fs_stat_at(fd, "", FS_STAT_ID, &st) < 0 ||
		    st.mtime_ns != (back ? b->m.dirs[i].old_stat.mtime_ns
		                         : b->m.dirs[i].new_stat.mtime_ns))
			continue;
		r = add(&m, b->m.dirs[i].path, &st);
	}
	if (r >= 0)
		r = manifest_sort(&m);
	return save(p, b, &m, r);
}

uint64_t dir_restored_size(const struct atoll_participant *p)
{
	cleanup_close int area_fd = dir_open_area(p);
	struct fs_stat st;

	return area_fd < 0 || fs_stat_at(area_fd, RESTORED, 0, &st) < 0 ? 0 : st.size;
}

int dir_restored_read(struct atoll_participant *p, struct manifest *ret)
{
	cleanup_close int area_fd = dir_open_area(p);
	int r;

	if (area_fd < 0)
		return error_sys(&p->err, -errno, "open", p->area);
	r = manifest_read(area_fd, RESTORED, "", ret, &p->err);
	if (r >= 0)
		return 0;
	*ret = MANIFEST_INIT;
	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	/* Torn, entries put back look like somebody else's: safe, only tiresome. */
	error_done(&p->err);
	return 0;
}

bool dir_restored_known(const void *restored, const char *path, const struct fs_stat *now)
{
	const struct manifest *m = restored;
	struct fs_stat was;

	/* When it cannot be read it is as if nothing was written down. */
	return dir_installed_find(m, path, &was) > 0 && fs_id_equal(was.id, now->id) &&
	       was.ctime_ns == now->ctime_ns && was.mtime_ns == now->mtime_ns &&
	       was.size == now->size;
}
