/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an undo found in the places of a batch's entries: the same, but for times or inode.
 *
 * The steps after the decision know entries by identity, and identities come from the manifest, whose hash is
 * in the registry. So what prepare found instead is written beside it, before the decision, and takes the
 * place of what the manifest and `installed` say: each later step, also of recovery, of a redo or of
 * another undo, looks for the entry that was compared, and its size, mode and mtime are those that an
 * exchange must bring along. On disk it is a manifest of CREATEs; what an earlier undo of the batch found
 * stays in it.
 *
 * Crash: written under another name and renamed; the old one or the new one. Of an undo that was given up it
 * says nothing wrong: that entry does hold what was installed.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <string.h>

#include "fs/atomic.h"
#include "util/mem.h"

#define FOUND_NEW "found.new"

int dir_found_read(struct atoll_participant *p, struct dir_batch *b)
{
	int r = manifest_read(b->batch_fd, DIR_FOUND, "", &b->found, &p->err);

	if (r >= 0)
		return 0;
	b->found = MANIFEST_INIT;
	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	return 0;
}

int dir_found_apply(const struct dir_batch *b, struct manifest_op *o)
{
	struct fs_stat now;
	int r;

	if (!b->found.ops.n || !o->new_stat.mode || o->flags & MANIFEST_WORK)
		return 0;
	r = dir_installed_find(&b->found, o->path, &now);
	if (r > 0)
		o->new_stat = now;
	return r < 0 ? r : 0;
}

int dir_found_or_installed(const struct dir_batch *b, const struct manifest *installed,
                           const char *path, struct fs_stat *ret)
{
	int r = b->found.ops.n ? dir_installed_find(&b->found, path, ret) : 0;

	return r != 0 ? r : dir_installed_find(installed, path, ret);
}

int dir_found_add(struct manifest *found, const char *path, const struct fs_stat *now)
{
	struct manifest_op o = { .op = CHANGE_CREATE,
		                 .flags = MANIFEST_RECORD,
		                 .path = xstrdup(path),
		                 .new_stat = *now };

	return manifest_add_op(found, &o);
}

static int add_earlier(struct manifest *to, const struct manifest *earlier)
{
	size_t n = to->ops.n;
	int r = manifest_sort(to);

	for (size_t i = 0; i < earlier->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct manifest_op newer;

		r = manifest_get(earlier, i, &o);
		if (r >= 0)
			r = manifest_find(to, n, o.path, &newer);
		if (r == 0)
			r = manifest_add_op(to, &o);
	}
	return r < 0 ? r : manifest_sort(to);
}

int dir_found_write(struct atoll_participant *p, struct dir_batch *b, struct manifest *found)
{
	struct manifest m = *found;
	char hash[HASH_TEXT_LEN];
	int r;

	*found = MANIFEST_INIT;
	if (!m.ops.n) {
		manifest_done(&m);
		return 0;
	}
	m.created_ns = b->m.created_ns;
	r = add_earlier(&m, &b->found);
	if (r >= 0)
		r = manifest_write(&m, b->batch_fd, FOUND_NEW, hash, NULL);
	if (r >= 0)
		r = fs_rename_over(b->batch_fd, FOUND_NEW, DIR_FOUND);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, DIR_FOUND);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, "");
	if (r < 0) {
		manifest_done(&m);
		return error_sys(&p->err, r, "record what was found in", p->root);
	}
	manifest_done(&b->found);
	b->found = m;
	return 0;
}
