/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a batch's directory. Before it goes its slots are looked at once more: what is
 * nowhere else, or what somebody else wrote, is kept under conflicts/.
 *
 * Of a committed batch the slots hold originals, wanted no more unless somebody wrote to one. Of
 * an undone batch they hold what was installed, wanted no more unless somebody changed it after
 * the undo had looked; an original found there was not put back (--keep-theirs) and is the last.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/remove.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

struct look {
	const struct dir_batch *b;
	const struct manifest *installed;
	const struct manifest_op *op;
	size_t slot_len; /* of its name, which stands for the operation's path */
	bool changed;
};

/* Moving an entry changes its ctime, so that cannot be asked here. */
static bool is_as_installed(const struct fs_stat *was, const struct fs_stat *now)
{
	return was && fs_id_equal(was->id, now->id) &&
	       (S_ISDIR(now->mode) || (was->mtime_ns == now->mtime_ns && was->size == now->size &&
	                               was->mode == now->mode));
}

static int look_at(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct look *l = ctx;
	cleanup_free char *there = xasprintf("%s%s", l->op->path, path + l->slot_len);
	struct fs_stat st, was;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	r = dir_found_or_installed(l->b, l->installed, there, &was);
	if (r < 0)
		return r;
	if (!is_as_installed(r ? &was : NULL, &st))
		l->changed = true;
	return l->changed ? WALK_SKIP : 0;
}

/* Why slot K of an undone batch may not go; NULL: it may. When it cannot be told, it may not. */
const char *dir_undone_reason(struct dir_batch *b, const struct manifest *installed,
                              struct dir_kth op, bool keeps, int *ret_error)
{
	const struct manifest_op *o = op.o;
	struct look l = { .b = b, .installed = installed, .op = o };
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int r;

	*ret_error = 0;
	if (o->flags & MANIFEST_WORK && !(o->flags & MANIFEST_THEIRS && keeps))
		return NULL;
	dir_slot_name(op.k, slot);
	if (o->flags & MANIFEST_WORK)
		return o->op == CHANGE_DELETE && !overlay_is_whiteout(&o->old_stat) &&
		                       fs_stat_at(b->batch_fd, slot, 0, &st) >= 0
		               ? "the plan's version, given up for what is there"
		               : NULL;
	l.slot_len = strlen(slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r == -ENOENT)
		return NULL;
	if (r >= 0 && o->old_stat.mode && fs_id_equal(st.id, o->old_stat.id))
		return "the original, which was not put back";
	if (r >= 0)
		r = look_at(&l, b->batch_fd, slot, slot, 0);
	if (r == 0 && S_ISDIR(st.mode))
		r = walk_tree(b->batch_fd, slot, look_at, NULL, &l);
	if (r < 0) {
		*ret_error = r;
		return "it could not be looked at";
	}
	return l.changed ? "changed by somebody else while it was taken back" : NULL;
}

/* The slot of OP holds what an undo or a redo moved away because the user insisted. */
static bool is_insisted(const struct dir_batch *b, enum dir_found side, struct dir_kth op)
{
	char slot[DIR_SLOT_LEN];
	struct fs_stat st;

	dir_slot_name(op.k, slot);
	return !(op.o->flags & MANIFEST_WORK) && dir_found_insisted(b, side, op.o->path) &&
	       fs_stat_at(b->batch_fd, slot, 0, &st) >= 0;
}

static int rescue_undone(struct atoll_participant *p, struct dir_batch *b)
{
	struct manifest installed = MANIFEST_INIT;
	int unseen, r = dir_installed_read(p, b, &installed);

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		const char *why;

		r = dir_op(p, b, k, &o);
		if (r < 0)
			break;
		why = dir_undone_reason(b, &installed, (struct dir_kth){ &o, k },
		                        p->batch.flags & ATOLL_KEEP_WORK, &unseen);
		if (!why && is_insisted(b, DIR_FOUND_NEW, (struct dir_kth){ &o, k }))
			why = "the version that undo --ours moved away";
		if (why)
			r = dir_keep_conflict(p, b, k, &o, why);
	}
	manifest_done(&installed);
	return r;
}

static int rescue_late(struct atoll_participant *p, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		int late = 0;

		r = dir_op(p, b, k, &o);
		if (r >= 0 && !(o.flags & MANIFEST_WORK))
			late = dir_late_write(b, k, &o);
		if (r >= 0 && !late && is_insisted(b, DIR_FOUND_OLD, (struct dir_kth){ &o, k }))
			r = dir_keep_conflict(p, b, k, &o,
			                      "the version that redo --ours moved away");
		else if (late)
			r = dir_keep_conflict(p, b, k, &o,
			                      late > 0 ? "written to after it was replaced"
			                               : "it could not be looked at");
	}
	return r;
}

bool dir_keeps_conflicts(const char *area)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_free char *path = xasprintf("%s/%s", area, DIR_CONFLICTS);
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno != ENOENT && errno != ENOTDIR;
	return dirlist_read(fd, &list) < 0 || list.n > 0;
}

int dir_release(struct atoll_participant *p)
{
	struct dir_batch *b;
	int r = dir_batch_load(p, NULL, &b);

	if (r == -ENOENT) {
		error_done(&p->err);
		return 0;
	}
	/* Damaged: nothing can be judged, so nothing is dropped. */
	if (r < 0)
		return r;
	r = p->batch.undoing ? rescue_undone(p, b) : rescue_late(p, b);
	if (r < 0)
		return r;
	dir_let_go(b);
	return dir_remove_batch(p, b);
}
