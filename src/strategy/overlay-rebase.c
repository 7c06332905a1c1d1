/* SPDX-License-Identifier: Apache-2.0 */
/* The base of an overlay after a batch that left work behind, or was taken back. See overlay-base.h. */
#include "strategy/overlay-base-impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"

static void saved_name(const struct atoll_participant *p, char out[64])
{
	char name[OVERLAY_BASE_NAME_LEN];

	overlay_base_file_name(p, "records", name);
	(void)snprintf(out, 64, "%s.b%u", name, p->batch.number);
}

/* The operations of B that settle what the base is at their paths, sorted. */
static int list_settled(const struct dir_batch *b, struct manifest *ret)
{
	int r = 0;

	spool_spill_to(&ret->ops, b->area_fd);
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0 && (!(o.flags & MANIFEST_WORK) || o.flags & MANIFEST_THEIRS))
			r = manifest_add_op(ret, &o);
	}
	return r < 0 ? r : manifest_sort(ret);
}

/* 1 or 0. An operation is about all that is below its path, unless it is about attributes. */
static int in_batch(const struct dir_batch *b, const struct manifest *settled, const char *path)
{
	for (size_t len = strlen(path);; len--) {
		cleanup_free char *dir = xstrndup(path, len);
		struct manifest_op o;
		int r = manifest_find(settled, settled->ops.n, dir, &o);

		if (r < 0)
			return r;
		if (r > 0 && (!path[len] || !(dir_is_attr(&o) && o.flags & MANIFEST_THEIRS)))
			return 1;
		while (len > 0 && path[len - 1] != '/')
			len--;
		if (len == 0)
			break;
	}
	for (size_t i = 0; i < b->m.n_dirs; i++)
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR && strcmp(path, b->m.dirs[i].path) == 0)
			return 1;
	return 0;
}

/* What B's record says now of the paths that the batch has nothing to do with. */
static int keep_others(struct overlay_base *to, const struct manifest *from,
                       const struct dir_batch *b)
{
	struct manifest settled = MANIFEST_INIT;
	int r = list_settled(b, &settled);

	for (size_t i = 0; i < from->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(from, i, &o);
		if (r >= 0)
			r = in_batch(b, &settled, o.path);
		if (r == 0)
			r = manifest_add_op(&to->records, &o);
	}
	manifest_done(&settled);
	return r < 0 ? r : 0;
}

/* NOW of mode 0: nothing is there. */
static int record_now(struct overlay_base *to, const struct dir_batch *b, const char *path,
                      const struct fs_stat *now)
{
	uint64_t xattrs = 0;

	/* One that went again at once has none. */
	if (S_ISDIR(now->mode) && overlay_base_xattrs(b->root_fd, path, &xattrs, NULL) >= 0)
		return overlay_base_record_dir(to, path, now, 0, xattrs);
	return overlay_base_record(to, path, now, false);
}

static int record_batch(struct overlay_base *to, const struct dir_batch *b,
                        const struct manifest *installed, const struct manifest *theirs, bool back)
{
	static const struct fs_stat none;
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct fs_stat st;
		const struct fs_stat *now;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0)
			r = dir_installed_find(o.flags & MANIFEST_THEIRS ? theirs : installed,
			                       o.path, &st);
		if (r < 0)
			break;
		now = r > 0 ? &st : NULL;
		r = 0;
		if (o.flags & MANIFEST_THEIRS && !back) {
			r = record_now(to, b, o.path, now ? now : &none);
			continue;
		}
		if (o.flags & MANIFEST_WORK)
			continue;
		/* Gone already: what was installed was changed by somebody at once. */
		if (!now)
			now = back || o.op == CHANGE_DELETE ? &none : &o.new_stat;
		r = record_now(to, b, o.path, now);
	}
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++) {
		const struct manifest_dir *d = &b->m.dirs[i];

		if (d->flags & MANIFEST_DIR_ATTR)
			r = overlay_base_record_dir(
				to, d->path, back ? &d->old_stat : &d->new_stat, 0,
				xattrs_hash(back ? &d->old_xattrs : &d->new_xattrs));
	}
	return r;
}

static int save_records(struct atoll_participant *p, int area_fd)
{
	char name[OVERLAY_BASE_NAME_LEN], saved[64];
	int r;

	if (p->batch.redoing)
		return 0;
	overlay_base_file_name(p, "records", name);
	saved_name(p, saved);
	r = fs_link_at(area_fd, name, area_fd, saved);
	return r == -EEXIST || r == -ENOENT ? 0 : r;
}

static int rebase_once(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                       const struct manifest *installed, bool back)
{
	struct overlay_base to = OVERLAY_BASE_INIT;
	struct manifest from = MANIFEST_INIT, theirs = MANIFEST_INIT;
	char name[OVERLAY_BASE_NAME_LEN];
	int r;

	spool_spill_to(&to.records.ops, area_fd);
	overlay_base_file_name(p, "records", name);
	r = manifest_read(area_fd, name, "", &from, &p->err);
	if (r == -ENOENT) {
		error_done(&p->err);
		r = 0;
	}
	if (r >= 0)
		r = keep_others(&to, &from, b);
	if (r >= 0 && !back)
		r = dir_theirs_read(p, b, &theirs);
	if (r >= 0)
		r = record_batch(&to, b, installed, &theirs, back);
	if (r >= 0)
		r = overlay_base_save_whole(p, area_fd, &to);
	manifest_done(&from);
	overlay_base_done(&to);
	if (r >= 0)
		r = overlay_base_sync(p, area_fd);
	if (r < 0 && !p->err.code)
		r = error_sys(&p->err, r, "write the records in", p->area);
	if (r >= 0)
		r = dir_restored_add(p, b, installed, &theirs, back);
	manifest_done(&theirs);
	return r;
}

static int rebase(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                  const struct manifest *installed, bool back)
{
	int r = rebase_once(p, area_fd, b, installed, back);

	if (!dir_make_room(b, r))
		return r;
	error_done(&p->err);
	return rebase_once(p, area_fd, b, installed, back);
}

int overlay_base_rebase(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                        const struct manifest *installed)
{
	int r = save_records(p, area_fd);

	return r < 0 ? error_sys(&p->err, r, "keep the records in", p->area)
	             : rebase(p, area_fd, b, installed, false);
}

int overlay_base_back(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                      const struct manifest *now)
{
	return rebase(p, area_fd, b, now, true);
}

int overlay_base_revert(struct atoll_participant *p, int area_fd)
{
	char name[OVERLAY_BASE_NAME_LEN], saved[64];
	int r;

	overlay_base_file_name(p, "records", name);
	saved_name(p, saved);
	(void)fs_unlink_at(area_fd, "records.new");
	r = fs_link_at(area_fd, saved, area_fd, "records.new");
	if (r >= 0)
		r = fs_rename_over(area_fd, "records.new", name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, area_fd, "");
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "put back the records in", p->area)
	                             : 0;
}

void overlay_base_settle(struct atoll_participant *p, int area_fd)
{
	char saved[64];

	saved_name(p, saved);
	(void)fs_unlink_at(area_fd, saved);
}
