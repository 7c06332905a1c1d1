/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant, after the decision: every step can be repeated. */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/progress.h"
#include "util/crashpoint.h"
#include "util/mem.h"

/* ---- with the disk full ---- */

bool dir_make_room(struct dir_batch *b, int r)
{
	return (r == -ENOSPC || r == -EDQUOT) && fs_unlink_at(b->area_fd, DIR_BALLAST) == 0;
}

void dir_let_go(struct dir_batch *b)
{
	(void)fs_unlink_at(b->area_fd, DIR_BALLAST);
}

void dir_finish_alone(struct atoll_participant *p)
{
	struct dir_batch *b;
	int r = dir_batch_load(p, NULL, &b);

	error_done(&p->err);
	if (r < 0)
		return; /* it stands; this is only housekeeping */
	dir_let_go(b);
	/* Not of one that was withdrawn. */
	if (p->batch.undoing && !p->batch.again)
		dir_found_say(p, b, DIR_FOUND_NEW);
	else if (p->batch.redoing && p->batch.again)
		dir_found_say(p, b, DIR_FOUND_OLD);
}

/* Renames that may need room in a directory. */
static int with_ballast(struct dir_batch *b, int (*op)(int, const char *, int, const char *),
                        int a_fd, const char *a, int c_fd, const char *c)
{
	int r = op(a_fd, a, c_fd, c);

	return dir_make_room(b, r) ? op(a_fd, a, c_fd, c) : r;
}

/* ---- an entry on its way out of the workspace ---- */

static int strip_at(int dir_fd, const char *name, uint32_t mode)
{
	int r = 0;

	if (!S_ISREG(mode))
		return 0;
	if (mode & (S_ISUID | S_ISGID))
		r = fs_set_mode(dir_fd, name, mode & 07777 & ~(mode_t)(S_ISUID | S_ISGID));
	if (r >= 0)
		r = xattr_remove_at(dir_fd, name, "security.capability");
	return r;
}

struct finalize {
	bool strip; /* set-id bits */
	bool marks; /* an overlay's */
};

static int finalize_entry(void *ctx, int dir_fd, const char *name, const char *path,
                          unsigned char type)
{
	const struct finalize *f = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)path;
	(void)type;
	/* A whiteout in a directory that is new as a whole hides nothing. */
	if (r >= 0 && f->marks && overlay_is_whiteout(&st))
		return fs_unlink_at(dir_fd, name);
	if (r >= 0 && f->marks)
		r = overlay_strip(dir_fd, name);
	if (r >= 0 && f->strip)
		r = strip_at(dir_fd, name, st.mode);
	/* A directory moved into place shows no late ctime on what is inside: bump each inode, so
	 * that other plans see it as changed. */
	if (r >= 0)
		r = fs_bump_ctime(dir_fd, name);
	return r;
}

static int finalize(struct dir_batch *b, const char *slot, const struct manifest_op *o)
{
	struct finalize f = { .strip = o->flags & MANIFEST_STRIP,
		              .marks = o->flags & MANIFEST_MARKS };
	int r = finalize_entry(&f, b->batch_fd, slot, slot, 0);

	if (r >= 0 && S_ISDIR(o->new_stat.mode))
		r = walk_tree(b->batch_fd, slot, finalize_entry, NULL, &f);
	return r;
}

/* What somebody put in the place of an entry on its way out of the workspace goes back there, or is kept. */
static int give_back(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op,
                     const char *slot)
{
	cleanup_close int dir_fd = FD_NONE;
	const char *name;
	int r = b->work_fd == FD_NONE ? -ENOENT
	                              : resolve_parent(b->work_fd, op.o->path, &dir_fd, &name);

	if (r >= 0)
		r = fs_move(b->batch_fd, slot, dir_fd, name);
	return r < 0 ? dir_keep_conflict(p, b, op.k, op.o, "put into the workspace meanwhile") : 0;
}

/* Moves the entry with this identity from the workspace into its slot. -ENOENT: it is not there. */
static int stage(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op,
                 struct fs_id id, const char *slot)
{
	struct fs_stat st, before = { 0 }, parent = { 0 };
	cleanup_close int dir_fd = FD_NONE;
	const char *name;
	int r;

	if (b->work_fd == FD_NONE)
		return -ENOENT;
	r = resolve_parent(b->work_fd, op.o->path, &dir_fd, &name);
	if (r >= 0)
		r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);
	if (r < 0)
		return r == -ENOTDIR || r == -ELOOP ? -ENOENT : r;
	if (!fs_id_equal(st.id, id))
		return -ENOENT;
	r = dir_open_up(dir_fd, "", &parent);
	if (r >= 0)
		r = dir_open_up(dir_fd, name, &before);
	if (r >= 0)
		r = with_ballast(b, fs_move, dir_fd, name, b->batch_fd, slot);
	/* Somebody who still has the workspace's path may have swapped it in between. */
	if (r >= 0)
		r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r >= 0 && !fs_id_equal(st.id, id)) {
		r = give_back(p, b, op, slot);
		r = r < 0 ? r : -ENOENT;
	}
	if (parent.mode && (parent.mode & 0300) != 0300 && geteuid() != 0)
		(void)fs_set_mode(dir_fd, "", parent.mode & 07777);
	return r;
}

/* ---- one operation ---- */

int dir_open_op(struct dir_batch *b, const struct manifest_op *o, int fd, const char *name,
                const char *slot)
{
	struct fs_stat st;
	int r = dir_open_up(fd, "", &st);

	if (r >= 0 && o->flags & MANIFEST_TEMP) {
		r = dir_open_up(fd, name, &st);
		if (r == -ENOENT)
			r = 0;
		if (r >= 0)
			r = dir_open_up(b->batch_fd, slot, &st);
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}

/* What the exchange displaced must be what prepare saw; otherwise somebody changed it in the last
 * microseconds. Before the acknowledgement that revokes the batch (invariant 5). */
static int displaced_ok(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op,
                        const char *slot)
{
	const struct manifest_op *o = op.o;
	struct fs_stat st;
	int late = 0, r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);

	if (r >= 0)
		r = late = dir_late_write(b, op.k, o);
	if (r < 0)
		return error_sys(&p->err, r, "look at what was displaced by", o->path);
	if (fs_id_equal(st.id, o->old_stat.id) && !late)
		return 0;
	if (p->batch.recovering)
		return 0; /* kept and named by late_writes() */
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path, "changed at the last moment");
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "'%s' was changed by somebody else at the last moment", o->path);
}

static int apply_delete(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op, int fd,
                        const char *name, const char *slot)
{
	const struct manifest_op *o = op.o;
	struct fs_stat st;
	int r = fs_stat_at(fd, name, FS_STAT_ID, &st);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return error_sys(&p->err, r, "look at", o->path);
	if (!fs_id_equal(st.id, o->old_stat.id)) {
		atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path,
		                       "replaced by somebody else, left alone");
		return p->batch.recovering
		               ? 0
		               : error_set(&p->err, -ATOLL_E_CONFLICT,
		                           "'%s' was replaced by somebody else at the last moment",
		                           o->path);
	}
	r = dir_open_op(b, o, fd, name, slot);
	if (r >= 0)
		r = with_ballast(b, fs_move, fd, name, b->batch_fd, slot);
	if (r < 0)
		return error_sys(&p->err, r, "remove", o->path);
	return displaced_ok(p, b, op, slot);
}

static int apply_new(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op, int fd,
                     const char *name, const char *slot)
{
	const struct manifest_op *o = op.o;
	bool replace = o->op == CHANGE_REPLACE;
	int r = finalize(b, slot, o);

	if (r >= 0)
		r = dir_open_op(b, o, fd, name, slot);
	if (r < 0)
		return error_sys(&p->err, r, "finish", o->path);
	crashpoint("dir.apply.staged");

	r = replace ? with_ballast(b, fs_exchange, fd, name, b->batch_fd, slot)
	            : with_ballast(b, fs_move, b->batch_fd, slot, fd, name);
	/* After a crash the decision stands: something foreign in the way is exchanged into the
	 * slot and kept, a target that vanished is simply filled. */
	if (r == -ENOENT && replace && p->batch.recovering)
		r = fs_move(b->batch_fd, slot, fd, name);
	else if (r == -EEXIST && !replace && p->batch.recovering)
		r = fs_exchange(fd, name, b->batch_fd, slot);
	else if (r >= 0 && replace)
		return displaced_ok(p, b, op, slot);
	if (r == -ENOENT || r == -EEXIST) {
		atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path,
		                       "changed at the last moment");
		return error_set(&p->err, -ATOLL_E_CONFLICT,
		                 "'%s' was %s by somebody else at the last moment", o->path,
		                 r == -ENOENT ? "deleted" : "created");
	}
	return r < 0 ? error_sys(&p->err, r, replace ? "replace" : "create", o->path) : 0;
}

/* The slot holds something else than the new entry: 1, what was displaced; 0, what somebody put in the place of
 * the new entry while it was moved here. */
static int already_done(struct atoll_participant *p, struct dir_batch *b,
                        const struct manifest_op *o, const struct fs_stat *in_slot)
{
	const char *name;
	struct fs_stat st;
	int fd, r;

	if (fs_id_equal(in_slot->id, o->old_stat.id) || !o->new_stat.mode)
		return 1;
	/* Something foreign was, if the new entry is in its place; else the staged entry itself was
	 * swapped for another. */
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r >= 0 && fs_id_equal(st.id, o->new_stat.id))
		return 1;
	if (!(o->flags & MANIFEST_STAGED))
		return 0;
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING, "the new version of '%s' was replaced",
	                 o->path);
}

/* 1: a later operation than the Kth was carried out, and they are in their order. */
static int came_further(struct atoll_participant *p, struct dir_batch *b, size_t k)
{
	struct fs_stat st;
	int r = fs_stat_at(b->batch_fd, DIR_INSTALLED, 0, &st);

	for (k++; r == -ENOENT && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		char slot[DIR_SLOT_LEN];
		const char *name;
		int fd;

		r = dir_op(p, b, k, &o);
		if (r < 0)
			return r;
		r = -ENOENT;
		if (o.flags & MANIFEST_WORK)
			continue;
		dir_slot_name(k, slot);
		r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
		if (r >= 0 && fs_id_equal(st.id, o.new_stat.id))
			return 0; /* it waits to be installed */
		if (r != -ENOENT || !o.new_stat.mode)
			continue;
		r = dir_parent(b, b->root_fd, o.path, &fd, &name);
		if (r >= 0)
			r = fs_stat_at(fd, name, FS_STAT_ID, &st);
		if (r >= 0 && !fs_id_equal(st.id, o.new_stat.id))
			r = -ENOENT;
		else if (r == -ENOTDIR || r == -ELOOP)
			r = -ENOENT;
	}
	return r == -ENOENT ? 0
	       : r < 0      ? error_sys(&p->err, r, "look how far it came in", p->area)
	                    : 1;
}

/* The new entry is neither in its slot nor in the workspace. It was moved to the target, which had nothing to
 * displace; or somebody took it away: then nothing was done, and all can go back. */
static int find_installed(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const struct manifest_op *o = op.o;
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r >= 0 && fs_id_equal(st.id, o->new_stat.id))
		return 0;
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return error_sys(&p->err, r, "look at", o->path);
	/* Installed, then moved or removed by somebody since? A slot is nobody else's. */
	r = !p->batch.recovering || o->op != CHANGE_CREATE ? 0
	    : o->flags & MANIFEST_STAGED                   ? 1
	                                                   : came_further(p, b, op.k);
	if (r != 0)
		return r < 0 ? r : 0;
	if (o->flags & MANIFEST_STAGED)
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the new version of '%s' is gone", o->path);
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path,
	                       "taken out of the workspace at the last moment");
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "the new version of '%s' was taken out of the workspace by somebody else",
	                 o->path);
}

static int apply_op(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const struct manifest_op *o = op.o;
	const char *name;
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int fd, r;

	dir_slot_name(op.k, slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at the slot of", o->path);
	if (o->flags & MANIFEST_WORK) {
		r = r == -ENOENT && o->op == CHANGE_DELETE ? stage(p, b, op, o->old_stat.id, slot)
		                                           : 0;
		return r == -ENOENT || r >= 0 ? 0
		       : p->err.code          ? r
		                              : error_sys(&p->err, r, "take over", o->path);
	}
	if (r == 0 && !fs_id_equal(st.id, o->new_stat.id)) {
		r = already_done(p, b, o, &st);
		if (r != 0)
			return r < 0 ? r : 0;
		r = give_back(p, b, op, slot);
		if (r < 0)
			return r;
		r = -ENOENT;
	}
	if (r == -ENOENT && o->new_stat.mode && !(o->flags & MANIFEST_STAGED)) {
		r = stage(p, b, op, o->new_stat.id, slot);
		if (r < 0 && r != -ENOENT)
			return p->err.code ? r : error_sys(&p->err, r, "stage", o->path);
	}
	if (r == -ENOENT && o->new_stat.mode)
		return find_installed(p, b, op);
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r < 0)
		return error_sys(&p->err, r, "open the directory of", o->path);
	return o->op == CHANGE_DELETE ? apply_delete(p, b, op, fd, name, slot)
	                              : apply_new(p, b, op, fd, name, slot);
}

/* ---- directories that stay ---- */

static int apply_dir(const struct dir_batch *b, const struct manifest_dir *d, int fd, bool back)
{
	unsigned flags = dir_is_kept(b, d) ? d->flags & ~MANIFEST_DIR_ATTR : d->flags;
	bool times = !(b->foreign_dirs && b->foreign_dirs[d - b->m.dirs]);
	struct fs_stat now, wanted;
	const struct fs_stat *want = &wanted;
	int r = dir_found_attrs(b, d, back ? DIR_FOUND_OLD : DIR_FOUND_NEW, &wanted);

	if (r >= 0)
		r = fs_stat_at(fd, "", FS_STAT_ID, &now);
	if (r < 0 || !fs_id_equal(now.id, d->old_stat.id))
		return r == -ENOENT ? 0 : r; /* replaced by somebody: not ours to touch */
	if (flags & MANIFEST_DIR_ATTR) {
		/* An ordinary owner may write attributes only where he may write. */
		if (geteuid() != 0 && !(now.mode & 0200))
			r = fs_set_mode(fd, "", (now.mode & 07777) | 0200);
		if (r >= 0 && (now.uid != want->uid || now.gid != want->gid))
			r = fs_set_owner(fd, "", want->uid, want->gid);
		if (r >= 0)
			r = xattrs_write_at(fd, "", back ? &d->old_xattrs : &d->new_xattrs);
		if (r >= 0)
			r = fs_stat_at(fd, "", FS_STAT_ID, &now); /* an ACL changes the mode */
	}
	if (r >= 0 && flags & (MANIFEST_DIR_ATTR | MANIFEST_DIR_TEMP) && now.mode != want->mode)
		r = fs_set_mode(fd, "", want->mode & 07777);
	/* Only when needed: a batch withdrawn before its decision leaves not even a ctime behind. */
	if (r >= 0 && times && flags & MANIFEST_DIR_TIME && now.mtime_ns != want->mtime_ns)
		r = fs_set_mtime(fd, "", want->mtime_ns);
	return r;
}

int dir_apply_attrs(struct atoll_participant *p, struct dir_batch *b, bool back)
{
	for (size_t i = b->m.n_dirs; i-- > 0;) {
		const struct manifest_dir *d = &b->m.dirs[i];
		cleanup_close int fd = FD_NONE;
		int r = resolve_dir_path(b->root_fd, d->path, &fd);

		if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
			continue; /* gone or replaced by somebody: not ours to touch */
		if (r >= 0)
			r = apply_dir(b, d, fd, back);
		if (r < 0)
			return error_sys(&p->err, r, "set the attributes of",
			                 *d->path ? d->path : p->root);
	}
	return 0;
}

void dir_mark_foreign(struct dir_batch *b, bool back)
{
	free(b->foreign_dirs);
	b->foreign_dirs = xcalloc(b->m.n_dirs + 1, sizeof(*b->foreign_dirs));
	for (size_t i = 0; i < b->m.n_dirs; i++) {
		cleanup_close int fd = FD_NONE;
		const struct manifest_dir *d = &b->m.dirs[i];
		struct fs_stat st;

		if (resolve_dir_path(b->root_fd, d->path, &fd) >= 0 &&
		    fs_stat_at(fd, "", 0, &st) >= 0)
			b->foreign_dirs[i] =
				st.mtime_ns != (back ? d->new_stat.mtime_ns : d->old_stat.mtime_ns);
	}
}

/* XFS gives both directories of an exchange a new mtime; other filesystems do not. */
static int close_up_at(const struct manifest_op *o, const struct fs_stat *want, int fd,
                       const char *name)
{
	struct fs_stat now;
	int r = S_ISDIR(want->mode) ? fs_stat_at(fd, name, FS_STAT_ID, &now) : -ENOENT;

	if (r < 0 || !fs_id_equal(now.id, want->id))
		return r == -ENOENT ? 0 : r;
	if (o->flags & MANIFEST_TEMP && now.mode != want->mode)
		r = fs_set_mode(fd, name, want->mode & 07777);
	if (r >= 0 && o->op == CHANGE_REPLACE && now.mtime_ns != want->mtime_ns)
		r = fs_set_mtime(fd, name, want->mtime_ns);
	return r;
}

static int close_up(struct dir_batch *b, struct dir_kth op, bool back)
{
	const struct manifest_op *o = op.o;
	const struct fs_stat *in_slot = back ? &o->new_stat : &o->old_stat;
	const struct fs_stat *in_place = back ? &o->old_stat : &o->new_stat;
	const char *name;
	char slot[DIR_SLOT_LEN];
	int fd, r;

	if ((!(o->flags & MANIFEST_TEMP) && o->op != CHANGE_REPLACE) || o->flags & MANIFEST_WORK)
		return 0;
	dir_slot_name(op.k, slot);
	r = close_up_at(o, in_slot, b->batch_fd, slot);
	if (r >= 0 && S_ISDIR(in_place->mode)) {
		r = dir_parent(b, b->root_fd, o->path, &fd, &name);
		r = r == -ENOENT ? 0 : r < 0 ? r : close_up_at(o, in_place, fd, name);
	}
	return r;
}

int dir_close_up(struct atoll_participant *p, struct dir_batch *b, bool back)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0)
			break;
		r = close_up(b, (struct dir_kth){ &o, k }, back);
		if (r < 0)
			r = error_sys(&p->err, r, "set the mode of", o.path);
	}
	return r;
}

static int late_writes(struct atoll_participant *p, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct fs_stat st;
		char slot[DIR_SLOT_LEN];

		r = dir_op(p, b, k, &o);
		dir_slot_name(k, slot);
		if (r < 0 || o.flags & MANIFEST_WORK ||
		    fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st) < 0)
			continue;
		if (!fs_id_equal(st.id, o.old_stat.id))
			r = dir_keep_conflict(p, b, k, &o, "put there by somebody else");
		else if (dir_late_write(b, k, &o) > 0)
			atoll_participant_note(
				p, ATOLL_NOTE_LATE_WRITE, o.path,
				"somebody wrote to the original after it was replaced; "
				"it is kept with the undo data");
	}
	return r;
}

static bool is_left_alone(const struct atoll_participant *p, const struct dir_batch *b,
                          const struct manifest_op *o, size_t k)
{
	return p->batch.alone && (o->flags & MANIFEST_WORK || (b->keep && b->keep[k]));
}

int dir_commit(struct atoll_participant *p, const char *work)
{
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r < 0)
		return r == -ENOENT ? error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                                "the manifest of batch %u of '%s' is gone",
		                                p->batch.number, p->root)
		                    : r;
	/* A redo leaves what its undo left, and no workspace has a part in it. */
	if (p->batch.alone)
		r = dir_read_keep(p, b);
	if (!p->batch.recovering)
		dir_mark_foreign(b, false);
	progress_phase("committing", b->m.ops.n);
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r >= 0 && !is_left_alone(p, b, &o, k))
			r = apply_op(p, b, (struct dir_kth){ &o, k });
		progress_add(1, 0);
		crashpoint("dir.apply.op");
		if (r >= 0 && k + 1 < b->m.ops.n)
			r = progress_check();
	}
	if (r >= 0)
		r = dir_close_up(p, b, false);
	if (r >= 0)
		r = dir_apply_attrs(p, b, false);
	crashpoint("dir.apply.attrs");
	if (r >= 0)
		r = late_writes(p, b);
	if (r >= 0)
		r = dir_installed_write(p, b);
	if (b->measured)
		dir_note_size(p, b);
	if (r >= 0)
		r = p->batch.alone ? 0 : dir_leaves_work(p, b);
	p->rest = r > 0;
	if (r > 0)
		dir_restore_work(b);
	if (r >= 0)
		r = dir_sync_parents(p, b);
	/* Where work is left behind, its base is written anew yet; of one batch alone, finish lets it go. */
	if (!p->rest && !p->batch.alone)
		dir_let_go(b);
	return r;
}
