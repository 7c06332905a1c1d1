/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch installed, entry by entry, new directories with all below them, with what files and links
 * hold (fs/content.h). Written after the renames and before barrier 3; undo compares with it. On disk it is
 * a manifest of CREATEs.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/content.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "strategy/moves.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"

struct listing {
	dir_entry_fn fn;
	void *ctx;
};

static int list_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	const struct listing *l = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	return l->fn(l->ctx, path, &st);
}

int dir_each_below(int root_fd, const char *path, dir_entry_fn fn, void *ctx)
{
	struct listing l = { fn, ctx };

	return walk_tree(root_fd, path, list_entry, NULL, &l);
}

static int add_entry(void *ctx, const char *path, const struct fs_stat *st)
{
	struct manifest_op o = { .op = CHANGE_CREATE,
		                 .flags = MANIFEST_RECORD,
		                 .path = xstrdup(path),
		                 .new_stat = *st };

	return manifest_add_op(ctx, &o);
}

int dir_list_tree(int root_fd, const char *path, struct manifest *ret)
{
	return dir_each_below(root_fd, path, add_entry, ret);
}

/* As far as anybody can tell after it was moved. */
static bool same_content(const struct fs_stat *was, const struct fs_stat *now)
{
	return S_ISDIR(now->mode) ||
	       (was->mtime_ns == now->mtime_ns && was->size == now->size && was->mode == now->mode);
}

struct installing {
	struct manifest_writer *w;
	const struct atoll_participant *p;
	const struct dir_batch *b;
	/* After a redo, or an undo that was withdrawn, what was installed moved away and back, which shows
	 * on every ctime; what another process wrote to meanwhile, or put there, is not ours for that.
	 * NULL: neither was. */
	const struct manifest *was;
	struct manifest *moves; /* with it: where that is noted */
	/* Nothing is read: what an undo puts back goes by identity and times. */
	bool no_content;
};

/* NAME in DIR_FD is PATH. */
static int install_entry(struct installing *in, int dir_fd, const char *name, const char *path,
                         const struct fs_stat *st)
{
	cleanup_manifest_op struct manifest_op o = { .op = CHANGE_CREATE,
		                                     .flags = MANIFEST_RECORD,
		                                     .path = xstrdup(path),
		                                     .new_stat = *st };
	struct fs_stat before;
	int r = dir_found_given_back(in->p, in->b, path);

	if (r != 0)
		return r < 0 ? r : 0;
	r = in->was ? dir_found_or_installed(in->b, in->was, path, &before) : 0;
	if (r < 0 || (in->was && r == 0))
		return r;
	if (in->was &&
	    (before.ctime_ns == 0 || !fs_id_equal(before.id, st->id) || !same_content(&before, st)))
		o.new_stat.ctime_ns = 0;
	else if (in->was)
		o.new_stat.content = before.content;
	else if (st->ctime_ns != 0 && !in->no_content)
		fs_content_take(dir_fd, name, &o.new_stat);
	if (in->was)
		r = moves_add(in->moves, path, &before, &o.new_stat);
	return r < 0 ? r : manifest_writer_add(in->w, &o);
}

static int install_below(void *ctx, int dir_fd, const char *name, const char *path,
                         unsigned char type)
{
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	return install_entry(ctx, dir_fd, name, path, &st);
}

static int collect_op(struct dir_batch *b, const struct manifest_op *o, struct installing *in)
{
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* removed since, by somebody else */
	if (!fs_id_equal(st.id, o->new_stat.id))
		return 0;
	if (S_ISDIR(st.mode))
		return walk_tree(b->root_fd, o->path, install_below, NULL, in);
	/* Written to between the exchange and now: not what we installed, so that an undo will
	 * find it changed. */
	if (st.mtime_ns != o->new_stat.mtime_ns || st.size != o->new_stat.size)
		st.ctime_ns = 0;
	return install_entry(in, fd, name, o->path, &st);
}

static bool is_full(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

#define INSTALLED_NEW "installed.new"

static int write_record(const struct atoll_participant *p, struct dir_batch *b,
                        const struct manifest *was, struct manifest *moves)
{
	struct installing in = { .p = p, .b = b, .was = was, .moves = moves };
	int r = manifest_writer_open(b->batch_fd, INSTALLED_NEW, b->m.created_ns, &in.w);

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0)
			r = dir_found_apply(b, &o);
		if (r >= 0 && o.new_stat.mode && !(o.flags & MANIFEST_WORK))
			r = collect_op(b, &o, &in);
	}
	if (r >= 0)
		r = manifest_writer_finish(in.w);
	manifest_writer_close(in.w);
	return r < 0 ? r : fs_rename_over(b->batch_fd, INSTALLED_NEW, DIR_INSTALLED);
}

int dir_installed_write(struct atoll_participant *p, struct dir_batch *b)
{
	struct manifest was = MANIFEST_INIT, moves = MANIFEST_INIT;
	bool again;
	int r = p->batch.redoing ? manifest_read(b->batch_fd, DIR_INSTALLED, "", &was, &p->err)
	                         : -ENOENT;

	/* One that cannot be read now is no reason to take for ours what others did since. */
	if (r < 0 && r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	again = r >= 0;
	error_done(&p->err);
	spool_spill_to(&moves.ops, b->area_fd);
	r = write_record(p, b, again ? &was : NULL, &moves);
	/* With the disk full there is what prepare has set aside for it, and not for the moves. */
	if (is_full(r)) {
		(void)dir_make_room(b, r);
		manifest_done(&moves);
		r = write_record(p, b, again ? &was : NULL, NULL);
	}
	/* A rollback sets nothing aside. What it moved forward again is what the record says still, but for the
	 * times of change, which content then answers for: at worst an entry passes for changed. */
	if (is_full(r) && again) {
		(void)fs_unlink_at(b->batch_fd, INSTALLED_NEW);
		manifest_done(&moves);
		r = 0;
	}
	if (r >= 0)
		r = moves_write(p, &moves);
	manifest_done(&was);
	manifest_done(&moves);
	if (r < 0 && p->err.code)
		return r;
	if (r < 0)
		return error_sys(&p->err, r, "record what was installed in", p->root);
	return p->batch.sync ? syncset_add(p->batch.sync, b->batch_fd, DIR_INSTALLED) : 0;
}

int dir_installed_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret)
{
	int r = manifest_read(b->batch_fd, DIR_INSTALLED, "", ret, &p->err);

	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
	                 "the record of what was installed in '%s' is missing or damaged", p->root);
}

/* ---- is it still what we wrote? ---- */

int dir_installed_find(const struct manifest *installed, const char *path, struct fs_stat *ret)
{
	struct manifest_op o;
	int r = manifest_find(installed, installed->ops.n, path, &o);

	if (r > 0)
		*ret = o.new_stat;
	return r;
}

int dir_covered(const struct atoll_participant *p, const char *path)
{
	struct manifest_op o;

	return manifest_find_above(&p->put_back, path, &o);
}

static int by_id(const void *a, size_t a_len, const void *b, size_t b_len)
{
	(void)b_len;
	return memcmp(a, b, a_len);
}

static int id_against(const void *key, const void *data, size_t len)
{
	return memcmp(key, data, len);
}

static bool is_displaced(const struct atoll_participant *p, struct fs_id id)
{
	size_t i;

	/* Cannot be told: then it is somebody else's doing. */
	return spool_search(&p->displaced, p->displaced.n, id_against, &id, &i) > 0;
}

static int note_displaced(struct atoll_participant *p, const struct dir_batch *b)
{
	int r = 0;

	spool_spill_to(&p->displaced, b->area_fd);
	for (size_t k = 0; r >= 0 && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0)
			r = dir_found_apply(b, &o);
		if (r < 0 || o.flags & MANIFEST_WORK || !o.old_stat.mode ||
		    S_ISDIR(o.old_stat.mode))
			continue;
		r = spool_add(&p->displaced, &o.old_stat.id, sizeof(o.old_stat.id));
	}
	return r < 0 ? r : spool_sort(&p->displaced, by_id);
}

/* What is left alone is not put back, so it speaks for itself against them. */
static int list_put_back(const struct dir_batch *b, struct manifest *ret)
{
	int r = 0;

	spool_spill_to(&ret->ops, b->area_fd);
	for (size_t k = 0; r >= 0 && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0)
			r = dir_found_apply(b, &o);
		if (r >= 0 && !(o.flags & MANIFEST_WORK) && !b->keep[k])
			r = manifest_add_op(ret, &o);
	}
	return r < 0 ? r : manifest_sort(ret);
}

/* Those of FROM that TO, of an older batch, has no say about. */
static int add_newer(struct manifest *to, const struct manifest *from)
{
	struct manifest more = MANIFEST_INIT;
	int r = 0;

	more.ops.may_spill = to->ops.may_spill;
	more.ops.dir_fd = to->ops.dir_fd;
	for (size_t i = 0; r >= 0 && i < from->ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct manifest_op above;

		r = manifest_get(from, i, &o);
		if (r >= 0)
			r = manifest_find_above(to, o.path, &above);
		if (r == 0)
			r = manifest_add_op(&more, &o);
	}
	for (size_t i = 0; r >= 0 && i < more.ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&more, i, &o);
		if (r >= 0)
			r = manifest_add_op(to, &o);
	}
	manifest_done(&more);
	return r < 0 ? r : manifest_sort(to);
}

int dir_note_undone(struct atoll_participant *p, const struct dir_batch *b)
{
	struct manifest m = MANIFEST_INIT;
	int r = note_displaced(p, b);

	if (r >= 0)
		r = list_put_back(b, &m);
	if (r >= 0)
		r = add_newer(&m, &p->put_back);
	if (r < 0) {
		manifest_done(&m);
		return error_sys(&p->err, r, "note what is put back in", p->root);
	}
	manifest_done(&p->put_back);
	p->put_back = m;
	for (size_t i = 0; i < b->m.n_dirs; i++)
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR)
			strlist_add(&p->undone_attrs, b->m.dirs[i].path);
	return 0;
}

/* Where a newer batch of the same undo moved another name of it away, its ctime says nothing; another undo
 * or redo left word of what it did. */
static bool same(struct atoll_participant *p, const struct fs_stat *was, const struct fs_stat *now)
{
	return fs_id_equal(was->id, now->id) &&
	       (S_ISDIR(now->mode) || was->ctime_ns == now->ctime_ns ||
	        (was->ctime_ns != 0 && same_content(was, now) &&
	         (is_displaced(p, now->id) ||
	          moves_same(p, now->id, was->ctime_ns, now->ctime_ns))));
}

struct check {
	struct atoll_participant *p;
	struct dir_batch *b;
	struct dir_found_check *f;
};

/* ---- what is not ---- */

static int insist_below(void *ctx, int dir_fd, const char *name, const char *path,
                        unsigned char type)
{
	struct check *c = ctx;
	struct fs_stat now;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &now);

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	return dir_found_add(c->f->found, path, &now, MANIFEST_INSISTED | MANIFEST_PENDING);
}

static int insist(struct check *c, const char *path, const struct fs_stat *now)
{
	if (now && S_ISDIR(now->mode))
		return walk_tree(c->b->root_fd, path, insist_below, NULL, c);
	return dir_found_add(c->f->found, path, now, MANIFEST_INSISTED | MANIFEST_PENDING);
}

/* What keeps NOW, at PATH, from being moved away; NULL: nothing. */
static const char *why_not(const struct check *c, const char *path, const struct fs_stat *now)
{
	cleanup_close int fd = FD_NONE;
	const char *name;

	if (!now)
		return NULL;
	if (now->mount_root)
		return "is a mount point, which cannot be moved away";
	/* Its ".." is written anew. */
	if (S_ISDIR(now->mode) && now->uid != geteuid() &&
	    (resolve_parent(c->b->root_fd, path, &fd, &name) < 0 ||
	     faccessat(fd, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) < 0))
		return "is another user's directory, which cannot be moved away";
	return NULL;
}

/* At PATH is NOW (NULL: nothing), and that is not what is on record: WHY, which is taken over. */
static int differs(struct check *c, const char *path, const struct fs_stat *now, char *why)
{
	struct dir_found_check *f = c->f;
	enum dir_side side = f->used ? dir_side_of(c->p, path, f->used) : DIR_SIDE_NONE;
	const char *cannot = side == DIR_SIDE_OURS ? why_not(c, path, now) : NULL;

	if (side == DIR_SIDE_OURS && !cannot) {
		free(why);
		return insist(c, path, now);
	}
	if (cannot) {
		free(why);
		why = xstrdup(cannot);
	}
	f->open |= side != DIR_SIDE_THEIRS;
	if (f->why)
		free(why);
	else
		f->why = why;
	return 0;
}

/* There is no place to put anything: not to be insisted on. */
static void has_no_place(struct check *c, const char *path)
{
	enum dir_side side = c->f->used ? dir_side_of(c->p, path, c->f->used) : DIR_SIDE_NONE;

	c->f->open |= side != DIR_SIDE_THEIRS;
	c->f->why =
		xstrdup(side == DIR_SIDE_OURS ? "its directory is gone: make it again, then --ours"
	                                      : "its directory is gone");
}

/* ---- of an undo ---- */

/* 1: what the batch installed at PATH is there still, NOW; or it holds the same. 0, or a code. */
static int is_installed(struct check *c, const char *path, struct fs_stat *now)
{
	struct fs_stat was;
	int r = dir_found_or_installed(c->b, c->f->record, path, &was);

	if (r <= 0 || same(c->p, &was, now))
		return r;
	if (was.ctime_ns == 0 || !fs_content_same(c->b->root_fd, path, &was, now))
		return 0;
	r = dir_found_add(c->f->found, path, now, 0);
	return r < 0 ? r : 1;
}

static int check_entry(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct check *c = ctx;
	struct fs_stat st, was;
	bool known;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r >= 0)
		r = dir_covered(c->p, path);
	if (r == -ENOENT || r > 0)
		return WALK_SKIP;
	if (r >= 0)
		r = is_installed(c, path, &st);
	if (r != 0)
		return r < 0 ? r : 0;
	r = dir_installed_find(c->f->record, path, &was);
	if (r < 0)
		return r;
	known = r > 0;
	cleanup_free char *shown = escape_dup(path);
	r = differs(c, path, &st,
	            xasprintf(known ? "'%s' was changed since" : "holds '%s', which is not ours",
	                      shown));
	return r < 0 ? r : WALK_SKIP;
}

/* An original that waited in a slot: its ctime is that of moving it there, or of an earlier undo. */
static bool same_original(const struct fs_stat *was, const struct fs_stat *old)
{
	return fs_id_equal(was->id, old->id) &&
	       (was->ctime_ns == old->ctime_ns || (was->ctime_ns != 0 && same_content(was, old)));
}

/* BACK is what will be at operation O's path or below it: is it what O's batch installed? NULL, or what
 * somebody did to it in between. */
static char *judge_put_back(struct check *c, const struct manifest_op *o,
                            const struct manifest_op *back)
{
	const struct fs_stat *old = &back->old_stat;
	bool is_self = strcmp(back->path, o->path) == 0;
	struct fs_stat was;

	if (!old->mode)
		return is_self && o->op == CHANGE_REPLACE ? xstrdup("was deleted since") : NULL;
	if (dir_found_or_installed(c->b, c->f->record, back->path, &was) > 0 &&
	    (same_original(&was, old) || (was.ctime_ns != 0 && fs_content_equal(&was, old) &&
	                                  dir_found_add(c->f->found, back->path, old, 0) >= 0)))
		return NULL;
	if (is_self)
		return xstrdup(o->op == CHANGE_DELETE ? "was created since" : "was changed since");
	cleanup_free char *shown = escape_dup(back->path);
	return xasprintf("will hold '%s', which is not ours", shown);
}

/* All that newer batches of this undo put back there. */
static int check_put_back(struct check *c, const struct manifest_op *o, char **ret_why)
{
	const struct manifest *put_back = &c->p->put_back;
	size_t i = 0;
	int r = manifest_from(put_back, o->path, &i);

	for (*ret_why = NULL; r >= 0 && !*ret_why && i < put_back->ops.n; i++) {
		cleanup_manifest_op struct manifest_op back = MANIFEST_OP_INIT;

		r = manifest_get(put_back, i, &back);
		if (r < 0 || !path_below(back.path, o->path))
			break;
		*ret_why = judge_put_back(c, o, &back);
	}
	return r;
}

/* NOW is at the target of O, of which the batch made something. */
static int check_target(struct check *c, const struct manifest_op *o, struct fs_stat *now)
{
	int r = is_installed(c, o->path, now);

	if (r < 0)
		return error_sys(&c->p->err, r, "read", DIR_INSTALLED);
	if (r == 0)
		return differs(c, o->path, now, xstrdup("was changed since"));
	return S_ISDIR(now->mode) ? walk_tree(c->b->root_fd, o->path, check_entry, NULL, c) : 0;
}

/* Nothing is at the target of O. That is no conflict for what the batch created or deleted, but the redo of it
 * would miss what is to be brought back. */
static int check_gone(struct check *c, const struct manifest_op *o)
{
	if (o->op == CHANGE_REPLACE)
		return differs(c, o->path, NULL, xstrdup("was deleted since"));
	if (o->op == CHANGE_CREATE && dir_side_of(c->p, o->path, c->f->used) == DIR_SIDE_OURS)
		return insist(c, o->path, NULL);
	return 0;
}

int dir_installed_check(struct atoll_participant *p, struct dir_batch *b,
                        const struct manifest_op *o, struct dir_found_check *f)
{
	struct check c = { .p = p, .b = b, .f = f };
	const char *name;
	struct fs_stat st;
	int fd, r;

	/* Of what newer batches put back nothing is insisted on: that is asked of one batch alone. */
	r = check_put_back(&c, o, &f->why);
	f->open = f->why && !(p->batch.flags & ATOLL_KEEP_THEIRS);
	if (r >= 0 && !f->why)
		r = dir_covered(p, o->path);
	if (r < 0)
		return error_sys(&p->err, r, "look at what is put back at", o->path);
	if (f->why || r > 0)
		return 0;
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return error_sys(&p->err, r, "look at", o->path);
	if (r < 0) {
		/* Absent: fine for what we created or deleted. */
		if (o->op == CHANGE_REPLACE || r != -ENOENT)
			has_no_place(&c, o->path);
		return 0;
	}
	r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at", o->path);
	if (r < 0)
		r = check_gone(&c, o);
	else if (o->op == CHANGE_DELETE)
		r = differs(&c, o->path, &st, xstrdup("was created since"));
	else
		r = check_target(&c, o, &st);
	return r < 0 && !p->err.code ? error_sys(&p->err, r, "look below", o->path) : r;
}

/* ---- what an undo put back, and whether it is there still ---- */

#define BACK_NEW "back.new"

/* What stands at the target of O, if that is the original: into IN->moves, and, where IN->w is open, the record. */
static int collect_back(void *ctx, struct dir_batch *b, const struct manifest_op *o, size_t k)
{
	struct installing *in = ctx;
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	(void)k;
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0 || !fs_id_equal(st.id, o->old_stat.id))
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	r = moves_add(in->moves, o->path, &o->old_stat, &st);
	if (r < 0 || !in->w)
		return r;
	return S_ISDIR(st.mode) ? walk_tree(b->root_fd, o->path, install_below, NULL, in)
	                        : install_entry(in, fd, name, o->path, &st);
}

typedef int (*back_fn)(void *ctx, struct dir_batch *b, const struct manifest_op *o, size_t k);

/* FN for every original that comes back from its slot, the Kth. */
static int each_back(struct dir_batch *b, back_fn fn, void *ctx)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r >= 0)
			r = dir_found_apply(b, &o);
		if (r >= 0 && o.old_stat.mode && !(o.flags & MANIFEST_WORK) &&
		    !(b->keep && b->keep[k]))
			r = fn(ctx, b, &o, k);
	}
	return r;
}

static int write_back(const struct atoll_participant *p, struct dir_batch *b,
                      struct manifest *moves)
{
	struct installing in = { .p = p, .b = b, .moves = moves, .no_content = true };
	int r = manifest_writer_open(b->batch_fd, BACK_NEW, b->m.created_ns, &in.w);

	if (r >= 0)
		r = each_back(b, collect_back, &in);
	if (r >= 0)
		r = manifest_writer_finish(in.w);
	manifest_writer_close(in.w);
	return r < 0 ? r : fs_rename_over(b->batch_fd, BACK_NEW, DIR_BACK);
}

/* Of a rollback, which is not done again: the moves are all there is to write, and may be missing. */
static int note_moves(const struct atoll_participant *p, struct dir_batch *b,
                      struct manifest *moves)
{
	struct installing in = { .p = p, .b = b, .moves = moves };
	int r = each_back(b, collect_back, &in);

	if (!is_full(r))
		return r;
	manifest_done(moves);
	return 0;
}

int dir_back_write(struct atoll_participant *p, struct dir_batch *b)
{
	struct manifest moves = MANIFEST_INIT;
	int r;

	spool_spill_to(&moves.ops, b->area_fd);
	r = p->batch.alone ? write_back(p, b, &moves) : note_moves(p, b, &moves);
	/* With the disk full there is what dir_back_set_aside() has set aside, and not for the moves. */
	if (p->batch.alone && is_full(r)) {
		(void)dir_make_room(b, r);
		manifest_done(&moves);
		r = write_back(p, b, NULL);
	}
	if (r >= 0)
		r = moves_write(p, &moves);
	manifest_done(&moves);
	if (r < 0)
		return p->err.code ? r
		                   : error_sys(&p->err, r, "record what was put back in", p->root);
	return p->batch.alone && p->batch.sync ? syncset_add(p->batch.sync, b->batch_fd, DIR_BACK)
	                                       : 0;
}

struct back_room {
	const struct manifest_op *o;
	uint64_t bytes;
};

static int add_room(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct back_room *room = ctx;

	(void)dir_fd;
	(void)name;
	(void)type;
	room->bytes +=
		MANIFEST_OP_SIZE + MANIFEST_CONTENT + strlen(room->o->path) + 1 + strlen(path);
	return 0;
}

/* Operation O of B waits in slot K. */
static int add_original(void *ctx, struct dir_batch *b, const struct manifest_op *o, size_t k)
{
	struct back_room *room = ctx;
	char slot[DIR_SLOT_LEN];

	room->o = o;
	dir_slot_name(k, slot);
	(void)add_room(room, b->batch_fd, slot, slot, 0);
	return S_ISDIR(o->old_stat.mode) ? walk_tree(b->batch_fd, slot, add_room, NULL, room) : 0;
}

int dir_back_set_aside(struct atoll_participant *p, struct dir_batch *b)
{
	struct back_room room = { 0 };
	int r = each_back(b, add_original, &room);

	return r < 0 ? error_sys(&p->err, r, "look at the originals of", p->root)
	             : dir_set_aside(p, room.bytes, 0);
}

int dir_back_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret)
{
	int r = manifest_read(b->batch_fd, DIR_BACK, "", ret, &p->err);

	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
	                 "the record of what was put back in '%s' is missing or damaged", p->root);
}

/* 1: NOW, at PATH, is what the undo of O's batch put there; or it holds the same. 0, or a code. */
static int is_back(struct check *c, const struct manifest_op *o, const char *path,
                   struct fs_stat *now)
{
	const struct fs_stat *old = &o->old_stat;
	struct fs_stat was;
	int r = dir_found_pending(c->b, path, &was);

	if (r == 0)
		r = dir_installed_find(c->f->record, path, &was);
	if (r <= 0 || same(c->p, &was, now))
		return r;
	/* What it holds was on record when the commit replaced it. */
	if (!c->f->found || was.ctime_ns == 0 || strcmp(path, o->path) != 0 ||
	    !old->content.known || !fs_id_equal(was.id, old->id) || !same_content(old, &was))
		return 0;
	was.content = old->content;
	if (!fs_content_same(c->b->root_fd, path, &was, now))
		return 0;
	r = dir_found_add(c->f->found, path, now, MANIFEST_PENDING);
	return r < 0 ? r : 1;
}

struct back_below {
	struct check *c;
	const struct manifest_op *o;
};

static int check_back_below(void *ctx, int dir_fd, const char *name, const char *path,
                            unsigned char type)
{
	const struct back_below *below = ctx;
	struct check *c = below->c;
	struct fs_stat st, was;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st), known;

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	r = is_back(c, below->o, path, &st);
	if (r != 0)
		return r < 0 ? r : 0;
	known = dir_installed_find(c->f->record, path, &was);
	if (known < 0)
		return known;
	cleanup_free char *shown = escape_dup(path);
	r = differs(c, path, &st,
	            xasprintf(known ? "'%s' was changed since" : "holds '%s', which was not there",
	                      shown));
	return r < 0 ? r : WALK_SKIP;
}

/* NOW is at the target of O. */
static int check_back_target(struct check *c, const struct manifest_op *o, struct fs_stat *now)
{
	struct back_below below = { c, o };
	int r = is_back(c, o, o->path, now);

	if (r < 0)
		return r;
	if (r == 0)
		return differs(
			c, o->path, now,
			xstrdup(o->old_stat.mode ? "was changed since" : "was created since"));
	return S_ISDIR(now->mode)
	               ? walk_tree(c->b->root_fd, o->path, check_back_below, NULL, &below)
	               : 0;
}

int dir_back_check(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o,
                   struct dir_found_check *f)
{
	struct check c = { .p = p, .b = b, .f = f };
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP) {
		has_no_place(&c, o->path);
		return 0;
	}
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at", o->path);
	if (r == 0)
		r = check_back_target(&c, o, &st);
	else if (o->old_stat.mode)
		r = differs(&c, o->path, NULL, xstrdup("was deleted since"));
	else
		r = 0;
	return r < 0 && !p->err.code ? error_sys(&p->err, r, "look below", o->path) : r;
}
