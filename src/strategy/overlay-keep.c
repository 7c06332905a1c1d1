/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch that was undone had installed becomes work again: entries return from their slots to
 * the upper, what it deleted gets whiteouts. Batches return newest first, and what the upper already
 * holds is newer: it stays. Every step can be repeated; an entry is in its slot or in the upper, or, where
 * these are on two mounts, in both.
 *
 * A directory of the upper that has to be made on the way looks as it did in the view: as some batch
 * installed it, or as the resource has it, with the attributes that a batch gave it.
 */
#include "strategy/overlay-keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/sync.h"
#include "fs/walk.h"
#include "strategy/overlay-impl.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define MADE "made"

struct keeping {
	struct atoll_participant *p;
	struct dir_batch *b;
	enum overlay_marks marks;
	int beside_fd;         /* what holds the upper, and is on its mount */
	char *noted;           /* directory of the upper, noted last for the barrier */
	struct manifest older; /* sorted, once it was asked for */
	bool older_read;
};

/* The copy of FROM, complete and on disk, is MADE. */
static int copy_beside(struct keeping *k, int from_fd, const char *from)
{
	cleanup_syncset struct syncset *sync = syncset_new();
	int r = remove_tree_at(k->beside_fd, MADE);

	if (r >= 0)
		r = copy_tree_at(from_fd, from, k->beside_fd, MADE);
	/* The marks are no part of an entry. */
	if (r >= 0 && overlay_is_opaque(from_fd, from, k->marks) == 1)
		r = overlay_set_opaque(k->beside_fd, MADE, k->marks);
	if (r >= 0)
		r = syncset_add_tree(sync, k->beside_fd, MADE);
	return r < 0 || sabotage("keep-copy") ? r : syncset_run(sync);
}

/* An entry comes into the upper, whole or not at all. A workspace may be on another mount than the slots:
 * then it is a copy, complete beside the upper and on disk before it shows there, for what shows there is
 * taken for newer work. What is in the slot goes with the batch. */
static int bring(struct keeping *k, int from_fd, const char *from, int to_fd, const char *to)
{
	int r = fs_move(from_fd, from, to_fd, to);

	if (r != -EXDEV)
		return r;
	r = copy_beside(k, from_fd, from);
	return r < 0 ? r : fs_move(k->beside_fd, MADE, to_fd, to);
}

/* The upper's directory PATH must be on disk before the slots go, whoever changed it: a run that died may have.
 * By its path: a descriptor for each would be too many. */
static int note_dir(struct keeping *k, const char *path)
{
	return k->p->batch.sync ? syncset_add(k->p->batch.sync, k->b->work_fd, path) : 0;
}

/* And all above it. */
static int note_dirs(struct keeping *k, const char *path)
{
	int r;

	/* Neighbours in a manifest share them. */
	if (k->noted && strcmp(k->noted, path) == 0)
		return 0;
	free(k->noted);
	k->noted = xstrdup(path);
	r = note_dir(k, "");
	for (size_t len = strcspn(path, "/"); *path && r >= 0;
	     len += 1 + strcspn(path + len + 1, "/")) {
		cleanup_free char *dir = xstrndup(path, len);

		r = note_dir(k, dir);
		if (!path[len])
			break;
	}
	return r;
}

/* ---- how a directory looked ---- */

/* DIR as batch NUMBER installed it, or the attributes it gave it. 1: found. */
static int look_in_batch(struct keeping *k, uint32_t number, const char *path, int *ret_fd,
                         struct manifest_dir *ret_attrs)
{
	cleanup_close int fd = FD_NONE;
	struct manifest m = MANIFEST_INIT;
	char name[24], slot[DIR_SLOT_LEN];
	int r = 0;

	(void)snprintf(name, sizeof(name), "b%u", number);
	fd = openat(k->b->area_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || manifest_read(fd, MANIFEST_NAME, "", &m, NULL) < 0)
		return 0;
	for (size_t i = 0; i < m.ops.n && r == 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		cleanup_free char *there = NULL;

		if (manifest_get(&m, i, &o) < 0 || o.flags & MANIFEST_WORK ||
		    !path_below(path, o.path))
			continue;
		dir_slot_name(i, slot);
		there = xasprintf("%s%s", slot, path + strlen(o.path));
		r = resolve_dir(fd, there, ret_fd) >= 0;
	}
	for (size_t i = 0; i < m.n_dirs && r == 0 && ret_attrs; i++) {
		if (!(m.dirs[i].flags & MANIFEST_DIR_ATTR) || strcmp(m.dirs[i].path, path) != 0)
			continue;
		*ret_attrs = m.dirs[i];
		m.dirs[i] = m.dirs[--m.n_dirs]; /* the rest of it is freed below */
		r = 1;
	}
	manifest_done(&m);
	return r;
}

static int set_attrs(int fd, struct manifest_dir *d)
{
	int r = fs_set_owner(fd, "", d->new_stat.uid, d->new_stat.gid);

	if (r == -EPERM)
		r = 0;
	if (r >= 0)
		r = xattrs_write_at(fd, "", &d->new_xattrs);
	return r < 0 ? r : fs_set_mode(fd, "", d->new_stat.mode & 07777);
}

/* Beside it nobody sees that the mode changes. The kernel will show it with what the resource has there, as if it
 * had been copied up. */
static int note_origin(struct keeping *k, const char *path, int fd)
{
	cleanup_close int orig_fd = FD_NONE;
	struct fs_stat orig, made;
	int r;

	if (resolve_dir_path(k->b->root_fd, path, &orig_fd) < 0)
		return 0;
	r = fs_stat_at(orig_fd, "", 0, &orig);
	if (r >= 0)
		r = dir_open_up(fd, "", &made);
	if (r >= 0)
		r = overlay_note_origin(k->beside_fd, MADE, k->marks, orig.id.ino);
	return r < 0 ? r : fs_set_mode(fd, "", made.mode & 07777);
}

/* Makes PATH, complete, beside; then it is moved into the upper. */
static int make_dir(struct keeping *k, const char *path, int to_fd, const char *to)
{
	struct manifest_dir attrs = { 0 };
	cleanup_close int from_fd = FD_NONE, fd = FD_NONE;
	int r = 0;

	for (uint32_t n = k->p->batch.number; n > 0 && r == 0; n--)
		r = look_in_batch(k, n, path, &from_fd, &attrs);
	r = from_fd == FD_NONE ? resolve_dir(k->b->root_fd, path, &from_fd) : 0;
	if (r >= 0)
		r = remove_tree_at(k->beside_fd, MADE);
	if (r >= 0)
		r = fs_mkdir_at(k->beside_fd, MADE, 0700);
	if (r >= 0)
		r = resolve_dir(k->beside_fd, MADE, &fd);
	if (r >= 0)
		r = copy_dir_meta(from_fd, fd);
	if (r >= 0)
		r = overlay_strip(k->beside_fd, MADE);
	if (r >= 0 && attrs.path)
		r = set_attrs(fd, &attrs);
	for (size_t i = 0; i < k->b->m.n_dirs && r >= 0; i++)
		if (k->b->m.dirs[i].flags & MANIFEST_DIR_TIME &&
		    strcmp(k->b->m.dirs[i].path, path) == 0)
			r = fs_set_mtime(fd, "", k->b->m.dirs[i].new_stat.mtime_ns);
	if (r >= 0)
		r = note_origin(k, path, fd);
	if (r >= 0)
		r = fs_move(k->beside_fd, MADE, to_fd, to);
	free(attrs.path);
	xattrs_done(&attrs.old_xattrs);
	xattrs_done(&attrs.new_xattrs);
	return r;
}

/* Runs on with the directory's time, and the mode that dir_open_up() changed, as they were. */
static int keep_time(int fd, const struct fs_stat *was, int r)
{
	int back = fs_set_mtime(fd, "", was->mtime_ns);

	if (back >= 0 && geteuid() != 0 && (was->mode & 0300) != 0300)
		back = fs_set_mode(fd, "", was->mode & 07777);
	return r < 0 ? r : back;
}

/* The upper's directory PATH, made when missing. 0: newer work is in the way. */
static int reach_dir(struct keeping *k, const char *path)
{
	for (size_t len = strcspn(path, "/"); *path; len += 1 + strcspn(path + len + 1, "/")) {
		cleanup_free char *dir = xstrndup(path, len);
		cleanup_close int fd = FD_NONE;
		const char *name;
		struct fs_stat st, parent;
		int r = resolve_parent(k->b->work_fd, dir, &fd, &name);

		if (r >= 0)
			r = fs_stat_at(fd, name, 0, &st);
		if (r == -ENOENT) {
			r = dir_open_up(fd, "", &parent);
			if (r >= 0)
				r = keep_time(fd, &parent, make_dir(k, dir, fd, name));
			st.mode = S_IFDIR;
		}
		if (r < 0)
			return r;
		if (!S_ISDIR(st.mode) || overlay_is_opaque(fd, name, k->marks) == 1)
			return 0;
		if (!path[len])
			break;
	}
	return 1;
}

/* ---- one operation ---- */

static bool is_dir_there(struct keeping *k, const char *path)
{
	cleanup_close int fd = FD_NONE;

	return resolve_dir_path(k->b->root_fd, path, &fd) >= 0;
}

static bool is_there(struct keeping *k, const char *path)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_stat st;

	return resolve_parent(k->b->root_fd, path, &fd, &name) >= 0 &&
	       fs_stat_at(fd, name, 0, &st) >= 0;
}

/* What the batches before this one installed. All are undone on the resource already, and it is still to
 * return. */
static int read_older(struct keeping *k)
{
	int r = 0;

	spool_spill_to(&k->older.ops, k->b->area_fd);
	for (uint32_t n = k->p->batch.number; n > 1 && r >= 0; n--) {
		cleanup_close int fd = FD_NONE;
		struct manifest m = MANIFEST_INIT;
		char name[24];

		(void)snprintf(name, sizeof(name), "b%u", n - 1);
		fd = openat(k->b->area_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || manifest_read(fd, MANIFEST_NAME, "", &m, NULL) < 0)
			continue;
		for (size_t i = 0; i < m.ops.n && r >= 0; i++) {
			cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

			r = manifest_get(&m, i, &o);
			if (r >= 0 && o.op != CHANGE_DELETE && !(o.flags & MANIFEST_WORK))
				r = manifest_add_op(&k->older, &o);
		}
		manifest_done(&m);
	}
	k->older_read = true;
	return r < 0 ? r : manifest_sort(&k->older);
}

/* Has a whiteout at PATH something to delete, or something to keep out that an older batch would bring back? 1,
 * 0 or -errno. */
static int has_purpose(struct keeping *k, const char *path)
{
	struct manifest_op o;
	int r;

	if (is_there(k, path))
		return 1;
	r = k->older_read ? 0 : read_older(k);
	return r < 0 ? r : manifest_find_above(&k->older, path, &o);
}

/* In the upper, or in a slot. */
struct place {
	int fd;
	const char *name;
};

/* PATH, which a newer batch deleted, is a whiteout in the upper, AT. When it has no purpose any more it goes; what
 * it kept out first, or a repetition would find that in its slot and nothing in the way. */
static int settle_whiteout(struct keeping *k, const char *path, struct place at, struct place from)
{
	int r = has_purpose(k, path);

	if (r != 0)
		return r < 0 ? r : 0;
	r = remove_tree_at(from.fd, from.name);
	return r < 0 ? r : fs_unlink_at(at.fd, at.name);
}

struct todo {
	char *from, *to; /* below bN, below the upper */
};

/* What the upper's directory TO lacks comes from FROM. One level; directories in both are left for
 * later. */
static int merge_level(struct keeping *k, const struct todo *at, struct strlist *more)
{
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	struct fs_stat was;
	int r = resolve_dir(k->b->batch_fd, at->from, &from_fd);

	if (r >= 0)
		r = resolve_dir(k->b->work_fd, at->to, &to_fd);
	if (r >= 0)
		r = dir_open_up(from_fd, "", &was);
	if (r >= 0)
		r = dirlist_read(from_fd, &names);
	if (r >= 0)
		r = dir_open_up(to_fd, "", &was);
	if (r < 0)
		return r;
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const char *name = names.v[i].name;
		struct fs_stat a, b;

		r = fs_stat_at(from_fd, name, 0, &a);
		if (r >= 0 && fs_stat_at(to_fd, name, 0, &b) == -ENOENT)
			r = bring(k, from_fd, name, to_fd, name);
		else if (r >= 0 && S_ISDIR(a.mode) && S_ISDIR(b.mode) &&
		         overlay_is_opaque(to_fd, name, k->marks) == 0)
			strlist_add(more, name);
		else if (r >= 0 && overlay_is_whiteout(&b)) {
			cleanup_free char *path = xasprintf("%s/%s", at->to, name);

			r = settle_whiteout(k, path, (struct place){ to_fd, name },
			                    (struct place){ from_fd, name });
		}
	}
	r = keep_time(to_fd, &was, r);
	return r < 0 ? r : note_dir(k, at->to);
}

static int merge(struct keeping *k, const char *slot, const char *path)
{
	cleanup_strlist struct strlist todo = STRLIST_INIT; /* relative to both */
	int r = 0;

	strlist_add(&todo, "");
	for (size_t i = 0; i < todo.n && r >= 0; i++) {
		cleanup_strlist struct strlist more = STRLIST_INIT;
		struct todo at = { xasprintf("%s%s", slot, todo.v[i]),
			           xasprintf("%s%s", path, todo.v[i]) };

		r = merge_level(k, &at, &more);
		for (size_t n = 0; n < more.n; n++) {
			cleanup_free char *next = xasprintf("%s/%s", todo.v[i], more.v[n]);

			strlist_add(&todo, next);
		}
		free(at.from);
		free(at.to);
	}
	return r;
}

/* Nothing newer is at PATH. */
static int place_new(struct keeping *k, const struct manifest_op *o, const char *slot, int fd,
                     const char *name)
{
	struct fs_stat before;
	int r;

	if (o->op == CHANGE_DELETE && !(o->flags & MANIFEST_WORK)) {
		r = has_purpose(k, o->path);
		return r > 0 ? overlay_make_whiteout(fd, name) : r;
	}
	r = dir_open_up(k->b->batch_fd, slot, &before);
	if (r >= 0 && S_ISDIR(before.mode) &&
	    (o->flags & MANIFEST_OPAQUE || is_dir_there(k, o->path)))
		r = overlay_set_opaque(k->b->batch_fd, slot, k->marks);
	if (r >= 0)
		r = bring(k, k->b->batch_fd, slot, fd, name);
	if (r >= 0 && o->flags & MANIFEST_TEMP && S_ISDIR(o->new_stat.mode))
		r = fs_set_mode(fd, name, o->new_stat.mode & 07777);
	return r;
}

static int place(struct keeping *k, size_t i, const struct manifest_op *o)
{
	cleanup_free char *above = NULL;
	cleanup_close int fd = FD_NONE;
	const char *slash = strrchr(o->path, '/'), *name;
	struct fs_stat st, parent, in_slot = { 0 };
	char slot[DIR_SLOT_LEN];
	int r;

	dir_slot_name(i, slot);
	r = fs_stat_at(k->b->batch_fd, slot, 0, &in_slot);
	if (r < 0 && r != -ENOENT)
		return r;
	if ((r == -ENOENT && (o->op != CHANGE_DELETE || o->flags & MANIFEST_WORK)) ||
	    o->flags & MANIFEST_THEIRS)
		return 0;
	above = xstrndup(o->path, slash ? (size_t)(slash - o->path) : 0);
	r = reach_dir(k, above);
	if (r <= 0)
		return r;
	r = resolve_parent(k->b->work_fd, o->path, &fd, &name);
	if (r < 0)
		return r;
	r = note_dirs(k, above);
	if (r >= 0)
		r = fs_stat_at(fd, name, 0, &st);
	if (r == -ENOENT) {
		r = dir_open_up(fd, "", &parent);
		if (r >= 0)
			r = keep_time(fd, &parent, place_new(k, o, slot, fd, name));
		return r < 0 || !S_ISDIR(in_slot.mode) ? r : note_dir(k, o->path);
	}
	if (r >= 0 && overlay_is_whiteout(&st) && o->op != CHANGE_DELETE) {
		const struct place at = { fd, name }, from = { k->b->batch_fd, slot };

		r = dir_open_up(fd, "", &parent);
		if (r >= 0)
			r = keep_time(fd, &parent, settle_whiteout(k, o->path, at, from));
	}
	if (r < 0 || !S_ISDIR(st.mode))
		return r;
	r = note_dir(k, o->path);
	if (r < 0 || overlay_is_opaque(fd, name, k->marks) == 1)
		return r;
	r = S_ISDIR(in_slot.mode) ? merge(k, slot, o->path) : 0;
	if (r >= 0 && is_dir_there(k, o->path))
		r = overlay_set_opaque(fd, name, k->marks);
	return r;
}

int overlay_keep_batch(struct atoll_participant *p, struct dir_batch *b, enum overlay_marks marks)
{
	cleanup_close int beside_fd = FD_NONE;
	struct keeping k = { .p = p, .b = b, .marks = marks, .older = MANIFEST_INIT };
	int r = overlay_open_dir(p, p->work, &beside_fd);

	if (r < 0)
		return r;
	k.beside_fd = beside_fd;

	/* Names and whiteouts that were moved out first: they are what the view was made of. */
	for (size_t pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < b->m.ops.n && r >= 0; i++) {
			cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

			r = dir_op(p, b, i, &o);
			if (r < 0 || (b->keep && b->keep[i]) ||
			    (pass == 0) != ((o.flags & MANIFEST_WORK) != 0))
				continue;
			r = place(&k, i, &o);
			if (r < 0)
				r = error_sys(&p->err, r, "return to the workspace", o.path);
		}
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++)
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR && *b->m.dirs[i].path) {
			r = reach_dir(&k, b->m.dirs[i].path);
			if (r > 0)
				r = note_dirs(&k, b->m.dirs[i].path);
			if (r < 0)
				r = error_sys(&p->err, r, "return to the workspace",
				              b->m.dirs[i].path);
		}
	free(k.noted);
	manifest_done(&k.older);
	(void)remove_tree_at(beside_fd, MADE); /* of a run that died, for an entry that is there */
	return r < 0 ? r : 0;
}
