/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant, backwards: abort, revoke, undo. Every step can be repeated. */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/progress.h"
#include "util/crashpoint.h"
#include "util/escape.h"
#include "util/limits.h"
#include "util/mem.h"

/* ---- one operation ---- */

enum slot_holds { SLOT_EMPTY = 0, SLOT_NEW, SLOT_OTHER };

static int slot_look(struct dir_batch *b, const struct manifest_op *o, const char *slot,
                     enum slot_holds *ret)
{
	struct fs_stat st;
	int r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);

	if (r < 0 && r != -ENOENT)
		return r;
	*ret = r == -ENOENT                         ? SLOT_EMPTY
	       : fs_id_equal(st.id, o->new_stat.id) ? SLOT_NEW
	                                            : SLOT_OTHER;
	return 0;
}

/* What stands at the target is not what we put there: left alone, and said. */
static int leave_foreign(struct atoll_participant *p, const struct manifest_op *o)
{
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path,
	                       "changed by somebody else, left alone");
	return 0;
}

static int undo_op(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const struct manifest_op *o = op.o;
	enum slot_holds holds = SLOT_EMPTY;
	const char *name;
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	bool ours;
	int fd, r;

	dir_slot_name(op.k, slot);
	r = slot_look(b, o, slot, &holds);
	if (r < 0)
		return error_sys(&p->err, r, "look at the slot of", o->path);
	if (holds == SLOT_NEW || (holds == SLOT_EMPTY && o->op == CHANGE_DELETE))
		return 0; /* never done, or taken back already */
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r < 0 && holds == SLOT_EMPTY)
		return 0; /* nothing of ours there, nothing to put back */
	if (r < 0)
		return error_sys(&p->err, r, "open the directory of", o->path);
	r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at", o->path);
	ours = r == 0 && fs_id_equal(st.id, o->new_stat.id);

	if (r == 0 && !ours) {
		/* Foreign. Not started at all is no news; otherwise it stays, and ours is kept. */
		return holds == SLOT_EMPTY ? 0 : leave_foreign(p, o);
	}
	if (!ours && holds == SLOT_EMPTY)
		return 0;
	r = dir_open_op(b, o, fd, name, slot);
	if (r >= 0 && ours && holds == SLOT_OTHER)
		r = fs_exchange(fd, name, b->batch_fd, slot);
	else if (r >= 0 && ours)
		r = fs_move(fd, name, b->batch_fd, slot);
	else if (r >= 0)
		r = fs_move(b->batch_fd, slot, fd, name);
	return r < 0 ? error_sys(&p->err, r, "put back", o->path) : 0;
}

/* Somebody else's version was brought in where the plan had deleted it, or set other attributes. */
static int take_again(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o)
{
	cleanup_close int fd = FD_NONE;
	const char *name = "";
	int r = b->work_fd == FD_NONE ? -ENOENT
	        : dir_is_attr(o)      ? resolve_dir_path(b->work_fd, o->path, &fd)
	                              : resolve_parent(b->work_fd, o->path, &fd, &name);

	if (r >= 0 && dir_is_attr(o)) {
		r = fs_set_owner(fd, "", o->new_stat.uid, o->new_stat.gid);
		if (r >= 0 || r == -EPERM)
			r = fs_set_mode(fd, "", o->new_stat.mode & 07777);
	} else if (r >= 0) {
		r = remove_tree_at(fd, name);
	}
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "give back", o->path) : 0;
}

/* Its place in the workspace is somebody else's by now. What he made there is newer, and stays. */
static bool is_taken(int r)
{
	return r == -EEXIST || r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* Returns a new entry from its slot to the workspace, whose work is kept. */
static int unstage_op(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	static const char taken[] = "its place in the workspace is taken";
	const struct manifest_op *o = op.o;
	cleanup_close int dir_fd = FD_NONE;
	struct fs_stat parent = { 0 }, before;
	enum slot_holds holds = SLOT_EMPTY;
	const char *name;
	char slot[DIR_SLOT_LEN];
	int r;

	dir_slot_name(op.k, slot);
	r = slot_look(b, o, slot, &holds);
	if (o->flags & MANIFEST_WORK && holds == SLOT_OTHER)
		holds = SLOT_NEW;
	if (o->flags & MANIFEST_THEIRS && o->op == CHANGE_CREATE)
		return r < 0 ? error_sys(&p->err, r, "look at the slot of", o->path)
		             : take_again(p, b, o);
	if (r < 0 || holds != SLOT_NEW || o->flags & MANIFEST_STAGED)
		return r < 0 ? error_sys(&p->err, r, "look at the slot of", o->path) : 0;
	if (b->work_fd == FD_NONE)
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the workspace of '%s' is gone, its '%s' is kept in '%s'", p->root,
		                 o->path, p->area);
	r = resolve_parent(b->work_fd, o->path, &dir_fd, &name);
	if (is_taken(r))
		return dir_keep_conflict(p, b, op.k, o, taken);
	if (r >= 0)
		r = dir_open_up(dir_fd, "", &parent);
	if (r >= 0)
		r = dir_open_up(b->batch_fd, slot, &before);
	/* What was brought in in its place. */
	if (r >= 0 && o->flags & MANIFEST_THEIRS)
		r = remove_tree_at(dir_fd, name);
	if (r >= 0 && o->flags & MANIFEST_OPAQUE)
		r = overlay_set_opaque(b->batch_fd, slot,
		                       geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER);
	if (r >= 0)
		r = fs_move(b->batch_fd, slot, dir_fd, name);
	if (r >= 0 && o->flags & MANIFEST_TEMP && S_ISDIR(o->new_stat.mode))
		r = fs_set_mode(dir_fd, name, o->new_stat.mode & 07777);
	if (parent.mode && geteuid() != 0 && (parent.mode & 0300) != 0300)
		(void)fs_set_mode(dir_fd, "", parent.mode & 07777);
	if (is_taken(r))
		return dir_keep_conflict(p, b, op.k, o, taken);
	return r < 0 ? error_sys(&p->err, r, "return to the workspace", o->path) : 0;
}

/* ---- the verbs ---- */

int dir_read_keep(struct atoll_participant *p, struct dir_batch *b)
{
	cleanup_close int fd = openat(b->batch_fd, DIR_KEEP, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *data = NULL;
	size_t len = 0;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : error_sys(&p->err, -errno, "open", DIR_KEEP);
	/* Earlier versions had no directories in it. */
	r = fs_read_all(fd, b->m.ops.n + b->m.n_dirs, &data, &len);
	if (r < 0 || (len != b->m.ops.n && len != b->m.ops.n + b->m.n_dirs))
		return error_set(&p->err, -ATOLL_E_DAMAGED, "'%s' of batch %u of '%s' is damaged",
		                 DIR_KEEP, p->batch.number, p->root);
	free(b->keep);
	b->keep = xcalloc(b->m.ops.n + b->m.n_dirs + 1, sizeof(*b->keep));
	for (size_t k = 0; k < len; k++)
		b->keep[k] = data[k] == '1';
	return 0;
}

int dir_keep(struct atoll_participant *p, const char *work, dir_keep_fn keep)
{
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r >= 0)
		r = dir_read_keep(p, b);
	if (r < 0)
		return r;
	r = keep(p, b);
	if (!dir_make_room(b, r))
		return r;
	error_done(&p->err);
	return keep(p, b);
}

int dir_unstage(struct atoll_participant *p, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0 || (b->keep && b->keep[k]) || o.flags & MANIFEST_THEIRS)
			continue;
		r = unstage_op(p, b, (struct dir_kth){ &o, k });
		crashpoint("dir.keep.unstage");
	}
	if (r >= 0)
		dir_restore_work(b);
	return r;
}

/* Somebody wrote to it between the last look and the exchange: before the undo is acknowledged that
 * refuses it, and everything goes forward again. */
static int taken_back_ok(struct atoll_participant *p, struct dir_batch *b,
                         const struct manifest *installed, struct dir_kth op)
{
	const struct manifest_op *o = op.o;
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int r;

	if (!o->new_stat.mode)
		return 0;
	dir_slot_name(op.k, slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r == -ENOENT || (r >= 0 && !fs_id_equal(st.id, o->new_stat.id)))
		return 0;
	if (r >= 0 && !dir_undone_reason(b, installed, op, false, &r))
		return 0;
	if (r < 0)
		return error_sys(&p->err, r, "look at what was taken back from", o->path);
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path, "changed at the last moment");
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "'%s' was changed by somebody else at the last moment", o->path);
}

/* Entries that were taken back return to the workspace. */
static int unstage_all(struct atoll_participant *p, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r >= 0)
			r = unstage_op(p, b, (struct dir_kth){ &o, k });
		crashpoint("dir.undo.unstage");
	}
	return r;
}

int dir_undo(struct atoll_participant *p, const char *work)
{
	struct manifest installed = MANIFEST_INIT;
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r < 0)
		return r == -ENOENT ? error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                                "the undo data of '%s' is gone", p->root)
		                    : r;
	if (p->batch.undoing)
		r = dir_read_keep(p, b);
	if (r >= 0 && p->batch.undoing && !p->batch.recovering)
		r = dir_installed_read(p, b, &installed);
	if (r >= 0 && !p->batch.recovering)
		dir_mark_foreign(b, p->batch.undoing);
	progress_phase("undoing", b->m.ops.n);
	for (size_t k = b->m.ops.n; k-- > 0 && r >= 0;) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct dir_kth op = { &o, k };

		progress_add(1, 0);
		r = dir_op(p, b, k, &o);
		if (r < 0 || (b->keep && b->keep[k]) || o.flags & MANIFEST_WORK)
			continue;
		r = undo_op(p, b, op);
		if (r >= 0 && p->batch.undoing && !p->batch.recovering)
			r = taken_back_ok(p, b, &installed, op);
		crashpoint("dir.undo.op");
		if (r >= 0 && k > 0)
			r = progress_check();
	}
	manifest_done(&installed);
	if (r >= 0)
		r = dir_close_up(p, b, true);
	/* Taken back before anybody saw it: nobody else can have meant those times. */
	if (!p->batch.undoing) {
		free(b->foreign_dirs);
		b->foreign_dirs = NULL;
	}
	if (r >= 0)
		r = dir_apply_attrs(p, b, true);
	crashpoint("dir.undo.attrs");
	if (r >= 0 && p->batch.undoing)
		r = dir_back_write(p, b);
	if (r >= 0 && !p->batch.undoing)
		r = dir_restored_write(p, b);
	if (r >= 0 && !p->batch.undoing)
		r = unstage_all(p, b);
	if (r >= 0 && !p->batch.undoing)
		dir_restore_work(b);
	if (r >= 0)
		r = dir_sync_parents(p, b);
	return r;
}

/* Never, by invariant 2, before a decision; then not a time of the resource is touched either. But
 * slots are about to be removed: better one look too many. */
static bool anything_moved(struct dir_batch *b)
{
	for (size_t k = 0; k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct fs_stat st;
		char slot[DIR_SLOT_LEN];

		if (manifest_get(&b->m, k, &o) < 0)
			return true;
		dir_slot_name(k, slot);
		if (!(o.flags & MANIFEST_STAGED) &&
		    fs_stat_at(b->batch_fd, slot, 0, &st) != -ENOENT)
			return true;
		if (o.old_stat.mode && fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st) >= 0 &&
		    fs_id_equal(st.id, o.old_stat.id))
			return true;
	}
	return false;
}

int dir_abort(struct atoll_participant *p, const char *work)
{
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r == -ENOENT && !p->state) {
		error_done(&p->err);
		return 0; /* not even its directory was made */
	}
	/* A manifest that is missing or torn: prepare died, so nothing was moved (invariant 2). */
	if (r == -ENOENT || r == -ATOLL_E_DAMAGED) {
		error_done(&p->err);
		r = 0;
		b = p->state;
	} else if (r >= 0 && anything_moved(b)) {
		r = dir_undo(p, work);
	}
	if (r < 0)
		return r;
	crashpoint("dir.abort.undone");
	(void)fs_unlink_at(b->area_fd, DIR_BALLAST);
	return dir_remove_batch(p, b);
}

/* ---- before an undo is decided ---- */

static int have_original(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const struct manifest_op *o = op.o;
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int r;

	if (!o->old_stat.mode)
		return 0;
	dir_slot_name(op.k, slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r == 0 && fs_id_equal(st.id, o->old_stat.id))
		return 0;
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at the original of", o->path);
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING, "the original of '%s' is gone",
	                 o->path);
}

/* What an undo took back, before it is done again. *ret_why: what became of it; NULL: nothing. */
static int have_new(struct atoll_participant *p, struct dir_batch *b,
                    const struct manifest *installed, struct dir_kth op, const char **ret_why)
{
	const struct manifest_op *o = op.o;
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int r;

	*ret_why = NULL;
	if (!o->new_stat.mode)
		return 0;
	dir_slot_name(op.k, slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	/* It was deleted by another process before the undo. */
	if (r == -ENOENT || (r >= 0 && !fs_id_equal(st.id, o->new_stat.id))) {
		*ret_why = "was gone before the undo, so there is no version to bring back";
		return 0;
	}
	if (r >= 0)
		*ret_why = dir_undone_reason(b, installed, op, false, &r);
	return r < 0 ? error_sys(&p->err, r, "look at what was taken back from", o->path) : 0;
}

/* Immutable entries and parents would refuse the exchange: found out now, not half-way. */
static int movable(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o)
{
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, "", 0, &st);
	if (r >= 0 && st.immutable)
		return error_sys(&p->err, -EPERM, "change an immutable directory, that of",
		                 o->path);
	if (r >= 0)
		r = fs_stat_at(fd, name, 0, &st);
	if (r >= 0 && st.immutable)
		return error_sys(&p->err, -EPERM, "put back, it is immutable or append-only,",
		                 o->path);
	return 0; /* absent or out of reach: judged by the comparison */
}

static int write_keep(struct atoll_participant *p, struct dir_batch *b)
{
	size_t n = b->m.ops.n + b->m.n_dirs;
	cleanup_free char *text = xcalloc(n + 1, 1);
	int r;

	for (size_t k = 0; k < n; k++)
		text[k] = b->keep[k] ? '1' : '0';
	r = fs_replace_file(b->batch_fd, DIR_KEEP, text, n, 0600);
	return r < 0 ? error_sys(&p->err, r, "write", DIR_KEEP) : 0;
}

/* What an undo that was given up wanted to keep must not bind this one. */
static int drop_keep(struct atoll_participant *p, struct dir_batch *b)
{
	int r = fs_unlink_at(b->batch_fd, DIR_KEEP);

	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, "");
	return r < 0 ? error_sys(&p->err, r, "remove", DIR_KEEP) : 0;
}

/* ---- attributes of directories ---- */

enum attrs { ATTRS_SAME = 0, ATTRS_CHANGED, ATTRS_EXTENDED };

/* BACK: an undo has put them back. *ret_now, and *ret: are they what they were set to? ATTRS_EXTENDED: not those of
 * which a record could say how they are. */
static int look_at_attrs(struct atoll_participant *p, struct dir_batch *b,
                         const struct manifest_dir *d, bool back, struct fs_stat *ret_now,
                         enum attrs *ret)
{
	cleanup_close int fd = FD_NONE;
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	struct fs_stat want;
	int r = dir_found_attrs(b, d, back ? DIR_FOUND_OLD : DIR_FOUND_NEW, &want);

	if (r < 0)
		return error_sys(&p->err, r, "read what was found at", d->path);
	r = resolve_dir_path(b->root_fd, d->path, &fd);
	if (r >= 0)
		r = fs_stat_at(fd, "", FS_STAT_ID, ret_now);
	if (r >= 0)
		r = xattrs_read_at(fd, "", &x);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return error_sys(&p->err, r, "look at", d->path);
	if (r < 0 || !fs_id_equal(ret_now->id, d->old_stat.id) ||
	    !xattrs_equal(&x, back ? &d->old_xattrs : &d->new_xattrs))
		*ret = ATTRS_EXTENDED;
	else if (ret_now->mode != want.mode || ret_now->uid != want.uid || ret_now->gid != want.gid)
		*ret = ATTRS_CHANGED;
	else
		*ret = ATTRS_SAME;
	return 0;
}

/* Directory I: whether its attributes are left alone, insisted on, or a conflict, as of an operation. */
static int check_attrs(struct atoll_participant *p, struct dir_batch *b, size_t i, bool back,
                       struct dir_found_check *f)
{
	const struct manifest_dir *d = &b->m.dirs[i];
	enum dir_side side = DIR_SIDE_NONE;
	enum attrs how = ATTRS_SAME;
	struct fs_stat now;
	int r = look_at_attrs(p, b, d, back, &now, &how);

	if (r < 0 || how == ATTRS_SAME)
		return r;
	if (f->used)
		side = dir_side_of(p, d->path, f->used);
	if (side == DIR_SIDE_OURS && how == ATTRS_CHANGED)
		return dir_found_add(f->found, d->path, &now, MANIFEST_INSISTED | MANIFEST_PENDING);
	f->open = side != DIR_SIDE_THEIRS;
	f->why = xstrdup(side == DIR_SIDE_OURS
	                         ? "its extended attributes, or the directory itself, were changed "
	                           "since; they cannot be kept"
	                         : "its attributes were changed since");
	return 0;
}

/* ---- before an undo is decided: conflicts ---- */

struct conflicts {
	size_t n, open; /* those that were not settled */
};

static void note_conflict(struct atoll_participant *p, const char *path,
                          const struct dir_found_check *f, struct conflicts *c)
{
	cleanup_free char *left = f->open ? NULL : xasprintf("%s; left as it is", f->why);

	c->open += f->open;
	if (c->n++ < LIMIT_CONFLICTS)
		atoll_participant_note(p, ATOLL_NOTE_CONFLICT, path, left ? left : f->why);
}

/* KTH is an operation, or after those a directory. */
static int undo_conflict(struct atoll_participant *p, struct dir_batch *b, size_t kth,
                         struct dir_found_check *f, struct conflicts *c)
{
	cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
	size_t n_found = f->found->ops.n;
	const char *path;
	int r = 0;

	if (kth < b->m.ops.n) {
		r = dir_op(p, b, kth, &o);
		path = o.path;
		if (r >= 0 && !(o.flags & MANIFEST_WORK))
			r = dir_installed_check(p, b, &o, f);
	} else {
		size_t i = kth - b->m.ops.n;

		path = b->m.dirs[i].path;
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR && !strlist_has(&p->undone_attrs, path))
			r = dir_covered(p, path);
		else
			return 0;
		if (r < 0)
			return error_sys(&p->err, r, "look at", path);
		r = r > 0 ? 0 : check_attrs(p, b, i, false, f);
	}
	if (!f->why)
		return r;
	/* It stays as a whole. */
	spool_cut(&f->found->ops, n_found);
	b->keep[kth] = true;
	note_conflict(p, path, f, c);
	free(f->why);
	f->why = NULL;
	return r;
}

static int undo_conflicts(struct atoll_participant *p, struct dir_batch *b,
                          const struct manifest *installed, struct manifest *found,
                          struct conflicts *c)
{
	cleanup_strlist struct strlist used = STRLIST_INIT;
	size_t n = b->m.ops.n + b->m.n_dirs;
	int r = 0;

	b->keep = xcalloc(n + 1, sizeof(*b->keep));
	for (size_t k = 0; k < n && r >= 0; k++) {
		struct dir_found_check f = { .record = installed, .found = found, .used = &used };

		r = undo_conflict(p, b, k, &f, c);
		if (r >= 0 && progress_check_look() < 0)
			r = error_set(&p->err, -ECANCELED, "interrupted");
	}
	if (r >= 0)
		dir_note_unused(p, &used);
	return r;
}

static int refuse_undo(struct atoll_participant *p, size_t conflicts)
{
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu entr%s changed by another process since the commit", conflicts,
	                conflicts == 1 ? "y was" : "ies were");
	if (p->batch.alone)
		error_hint(
			&p->err,
			"atoll undo %s --keep-theirs leaves them and undoes the rest; --ours PATH "
			"puts back what was there before, and keeps the version that is there now",
			p->plan);
	else
		error_hint(&p->err,
		           "atoll rollback %s --keep-theirs leaves them and undoes the rest",
		           p->plan);
	return -ATOLL_E_CONFLICT;
}

/* Every original is there, and can be put back. */
static int check_originals(struct atoll_participant *p, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; r >= 0 && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0 || o.flags & MANIFEST_WORK)
			continue;
		r = have_original(p, b, (struct dir_kth){ &o, k });
		if (r >= 0)
			r = movable(p, b, &o);
	}
	return r;
}

int dir_prepare_undo(struct atoll_participant *p, const char *work)
{
	struct manifest installed = MANIFEST_INIT, found = MANIFEST_INIT;
	struct conflicts c = { 0 };
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r == -ENOENT || r == -ATOLL_E_DAMAGED) {
		error_done(&p->err);
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the undo data of '%s' is gone or damaged", p->root);
	}
	if (r >= 0)
		r = dir_found_begin(b, DIR_FOUND_NEW);
	if (r >= 0)
		r = check_originals(p, b);
	if (r >= 0)
		r = dir_installed_read(p, b, &installed);
	if (r >= 0)
		spool_spill_to(&found.ops, b->area_fd);
	if (r >= 0)
		r = undo_conflicts(p, b, &installed, &found, &c);
	manifest_done(&installed);
	if (r >= 0)
		r = c.open ? refuse_undo(p, c.open) : c.n ? write_keep(p, b) : drop_keep(p, b);
	if (r >= 0)
		r = dir_found_write(p, b, DIR_FOUND_NEW, &found);
	manifest_done(&found);
	if (r >= 0)
		r = dir_note_undone(p, b);
	if (r >= 0 && p->batch.alone)
		r = dir_back_set_aside(p, b);
	p->changes = r >= 0 ? b->m.ops.n : 0;
	return r;
}

/* ---- before a redo is decided, and again right before it ---- */

static int redo_conflict(struct atoll_participant *p, struct dir_batch *b,
                         const struct manifest *installed, size_t k, struct dir_found_check *f)
{
	cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
	const char *slot_why = NULL;
	int r = dir_op(p, b, k, &o);

	if (r < 0 || o.flags & MANIFEST_WORK || (b->keep && b->keep[k]))
		return r;
	r = have_new(p, b, installed, (struct dir_kth){ &o, k }, &slot_why);
	if (r >= 0)
		r = movable(p, b, &o);
	if (r >= 0)
		r = dir_back_check(p, b, &o, f);
	/* What is not there cannot be insisted on. */
	if (r >= 0 && slot_why && !f->why)
		f->why = xstrdup(slot_why);
	return r;
}

/* FOUND NULL: nothing is settled. */
static int redo_conflicts(struct atoll_participant *p, struct dir_batch *b,
                          const struct manifest *installed, const struct manifest *back,
                          struct manifest *found, struct conflicts *c)
{
	cleanup_strlist struct strlist used = STRLIST_INIT;
	size_t n = b->m.ops.n + b->m.n_dirs;
	int r = 0;

	for (size_t k = 0; k < n && r >= 0; k++) {
		struct dir_found_check f = { .record = back,
			                     .found = found,
			                     .used = found ? &used : NULL };

		if (k < b->m.ops.n)
			r = redo_conflict(p, b, installed, k, &f);
		else if (b->m.dirs[k - b->m.ops.n].flags & MANIFEST_DIR_ATTR &&
		         !(b->keep && b->keep[k]))
			r = check_attrs(p, b, k - b->m.ops.n, true, &f);
		if (!f.why)
			continue;
		if (r >= 0 && k < b->m.ops.n) {
			cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

			r = dir_op(p, b, k, &o);
			if (r >= 0)
				note_conflict(p, o.path, &f, c);
		} else if (r >= 0) {
			note_conflict(p, b->m.dirs[k - b->m.ops.n].path, &f, c);
		}
		free(f.why);
	}
	if (r >= 0 && found)
		dir_note_unused(p, &used);
	return r;
}

/* For DIR_INSTALLED, which is written anew, and for DIR_BACK if the redo is withdrawn. */
static int set_aside_redo(struct atoll_participant *p, const struct dir_batch *b)
{
	struct fs_stat back;
	int r = fs_stat_at(b->batch_fd, DIR_BACK, 0, &back);

	return r < 0 ? error_sys(&p->err, r, "look at", DIR_BACK) : dir_set_aside(p, back.size, 0);
}

static int refuse_redo(struct atoll_participant *p, size_t conflicts)
{
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu entr%s changed outside the plan since the undo", conflicts,
	                conflicts == 1 ? "y was" : "ies were");
	error_hint(
		&p->err,
		"atoll redo %s --ours PATH brings the commit's version back, and keeps the one that "
		"is there now; or put back what the undo left there, then atoll redo %s",
		p->plan, p->plan);
	return -ATOLL_E_CONFLICT;
}

int dir_prepare_redo(struct atoll_participant *p, const char *work, bool again)
{
	struct manifest installed = MANIFEST_INIT, back = MANIFEST_INIT, found = MANIFEST_INIT;
	struct conflicts c = { 0 };
	struct dir_batch *b;
	int r = dir_batch_load(p, work, &b);

	if (r == -ENOENT || r == -ATOLL_E_DAMAGED) {
		error_done(&p->err);
		return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
		                 "the undo data of '%s' is gone or damaged", p->root);
	}
	if (r >= 0 && !again)
		r = dir_found_begin(b, DIR_FOUND_OLD);
	if (r >= 0)
		r = dir_read_keep(p, b);
	if (r >= 0)
		r = dir_installed_read(p, b, &installed);
	if (r >= 0)
		r = dir_back_read(p, b, &back);
	if (r >= 0)
		spool_spill_to(&found.ops, b->area_fd);
	if (r >= 0)
		r = redo_conflicts(p, b, &installed, &back, again ? NULL : &found, &c);
	manifest_done(&installed);
	manifest_done(&back);
	p->changes = r >= 0 ? b->m.ops.n : 0;
	if (r >= 0 && c.n)
		r = refuse_redo(p, c.n);
	if (r >= 0 && !again)
		r = dir_found_write(p, b, DIR_FOUND_OLD, &found);
	manifest_done(&found);
	return r < 0 ? r : set_aside_redo(p, b);
}
