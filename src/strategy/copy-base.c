/* SPDX-License-Identifier: Apache-2.0 */
/* The base record of a `copy` after a batch that left work behind. See copy-base.h. */
#include "strategy/copy-base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/base.h"
#include "fs/atomic.h"
#include "fs/content.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define NAME_LEN 64

static void base_name(const struct atoll_participant *p, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, "base%" PRIu64, p->generation);
}

static void new_name(const struct atoll_participant *p, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, "base%" PRIu64 ".new", p->generation);
}

static void saved_name(const struct atoll_participant *p, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, "base%" PRIu64 ".b%u", p->generation, p->batch.number);
}

static int open_work(struct atoll_participant *p, int *ret_fd)
{
	*ret_fd = open(p->work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", p->work) : 0;
}

/* ---- the amendments ---- */

static int add(struct spool *a, enum base_amend_kind kind, const char *path,
               const struct base_entry *e)
{
	const struct base_amendment record = { .kind = kind, .path = path, .e = *e };

	return base_amendment_add(a, &record);
}

static int dir_xattrs(int root_fd, const char *path, uint64_t *ret)
{
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir_path(root_fd, path, &fd);

	if (r >= 0)
		r = xattrs_hash_at(fd, "", ret);
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

/* What a manifest does not hold of an entry: the number of a device, how many names it has. */
static void complete(const struct dir_batch *b, const char *path, struct fs_stat *st)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_stat now;

	if (resolve_parent(b->root_fd, path, &fd, &name) < 0 ||
	    fs_stat_at(fd, name, FS_STAT_ID, &now) < 0 || !fs_id_equal(now.id, st->id))
		return;
	st->rdev = now.rdev;
	st->nlink = now.nlink;
}

/* An entry the batch installed; the workspace's own is proven equal to it by how it looked. WORK NULL:
 * one that was put back, of which the workspace has no copy. */
static int add_installed(struct spool *a, struct dir_batch *b, const struct manifest *work,
                         const char *path, const struct fs_stat *st)
{
	struct base_entry e = { .src = *st, .work_gen = work ? BASE_GEN_ANY : BASE_GEN_NONE };
	struct fs_stat copy;
	int r = work ? dir_installed_find(work, path, &copy) : 0;

	complete(b, path, &e.src);
	if (!e.src.content.known)
		fs_content_take_below(b->root_fd, path, &e.src);
	if (r > 0) {
		e.work_ino = copy.id.ino;
		e.work_gen = copy.id.gen;
		e.work_ctime_ns = copy.ctime_ns;
	}
	if (r >= 0 && S_ISDIR(st->mode))
		r = dir_xattrs(b->root_fd, path, &e.xattrs);
	return r < 0 ? r : add(a, BASE_SET, path, &e);
}

/* ---- what was taken over from somebody else ---- */

#define BROUGHT "brought"

static int work_stat(const struct dir_batch *b, const char *path, struct fs_stat *ret)
{
	cleanup_close int fd = FD_NONE;
	const char *name = "";
	int r = *path ? resolve_parent(b->work_fd, path, &fd, &name) : 0;

	return r < 0 ? r : fs_stat_at(*path ? fd : b->work_fd, name, FS_STAT_ID, ret);
}

/* Fills the place of PATH in the workspace with a copy of what is in the resource. */
static int bring(int dir_fd, struct dir_batch *b, const char *path)
{
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	const char *name;
	struct fs_stat st, parent;
	int r = resolve_parent(b->work_fd, path, &to_fd, &name);

	if (r >= 0 && fs_stat_at(to_fd, name, 0, &st) == 0)
		return 0; /* brought before */
	if (r >= 0)
		r = fs_stat_at(to_fd, "", 0, &parent);
	if (r >= 0)
		r = resolve_parent(b->root_fd, path, &from_fd, &name);
	if (r >= 0)
		r = remove_tree_at(dir_fd, BROUGHT);
	if (r >= 0)
		r = copy_tree_at(from_fd, name, dir_fd, BROUGHT);
	if (r >= 0)
		r = fs_move(dir_fd, BROUGHT, to_fd, name);
	if (r >= 0)
		r = fs_set_mtime(to_fd, "", parent.mtime_ns);
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

/* The view is made of COPY, whatever became of the original meanwhile. */
static void take_copied(const struct dir_batch *b, const char *path, struct fs_stat *copy,
                        struct fs_stat *src)
{
	cleanup_close int fd = FD_NONE;
	const char *name;

	fs_content_take_below(b->work_fd, path, copy);
	src->content = copy->content;
	if (resolve_parent(b->root_fd, path, &fd, &name) < 0 ||
	    xattrs_hash_at(fd, name, &src->content.xattrs) < 0)
		src->content.known = false;
}

/* Entries that are copies of THEIRS as it was recorded. */
static int add_theirs(struct spool *a, int dir_fd, struct dir_batch *b, const struct manifest_op *o,
                      const struct manifest *theirs)
{
	static const struct base_entry nothing;
	bool is_attr = dir_is_attr(o);
	int r = is_attr ? dir_take_attrs(b, o) : bring(dir_fd, b, o->path);
	struct fs_stat st;

	if (r >= 0) {
		r = dir_installed_find(theirs, o->path, &st);
		if (r == 0)
			return add(a, BASE_REMOVE, o->path, &nothing);
	}
	for (size_t i = 0; i < theirs->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op t = MANIFEST_OP_INIT;
		struct base_entry e = { 0 };

		r = manifest_get(theirs, i, &t);
		if (r < 0 || !path_below(t.path, o->path) ||
		    (is_attr && strcmp(t.path, o->path) != 0))
			continue;
		e.src = t.new_stat;
		complete(b, t.path, &e.src);
		if (work_stat(b, t.path, &st) == 0) {
			e.work_ino = st.id.ino;
			e.work_gen = st.id.gen;
			e.work_ctime_ns = st.ctime_ns;
			take_copied(b, t.path, &st, &e.src);
		}
		if (S_ISDIR(e.src.mode))
			r = dir_xattrs(b->root_fd, t.path, &e.xattrs);
		if (r >= 0)
			r = add(a, is_attr ? BASE_META : BASE_SET, t.path, &e);
	}
	return r;
}

/* All of LIST. */
static int add_list(struct spool *a, struct dir_batch *b, const struct manifest *list,
                    const struct manifest *work)
{
	int r = 0;

	for (size_t i = 0; i < list->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(list, i, &o);
		if (r >= 0)
			r = add_installed(a, b, work, o.path, &o.new_stat);
	}
	return r;
}

static int add_ops(struct spool *a, struct dir_batch *b, const struct manifest *installed,
                   const struct manifest *work)
{
	static const struct base_entry nothing;
	int r = add_list(a, b, installed, work);

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct fs_stat st;

		r = manifest_get(&b->m, k, &o);
		if (r < 0 || o.flags & MANIFEST_WORK)
			continue;
		if (o.op == CHANGE_DELETE) {
			r = add(a, BASE_REMOVE, o.path, &nothing);
			continue;
		}
		r = dir_installed_find(installed, o.path, &st);
		if (r == 0) {
			st = o.new_stat;
			st.ctime_ns = 0; /* somebody changed it at once: it is not as we left it */
			r = add_installed(a, b, work, o.path, &st);
		}
	}
	return r;
}

/* Directories that stayed, with the attributes and the times they have now. */
static int add_dirs(struct spool *a, struct dir_batch *b, const struct base *old)
{
	int r = 0;

	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++) {
		const struct manifest_dir *d = &b->m.dirs[i];
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
		cleanup_close int fd = FD_NONE;
		struct base_entry e;
		struct fs_stat now;

		r = base_lookup(old, d->path, &e, &blk, NULL);
		if (r != 1)
			continue;
		if (resolve_dir_path(b->root_fd, d->path, &fd) >= 0 &&
		    fs_stat_at(fd, "", FS_STAT_ID, &now) >= 0 && fs_id_equal(now.id, e.src.id))
			e.src.ctime_ns = now.ctime_ns;
		if (d->flags & MANIFEST_DIR_TIME)
			e.src.mtime_ns = d->new_stat.mtime_ns;
		if (d->flags & MANIFEST_DIR_ATTR) {
			e.src.mode = d->new_stat.mode;
			e.src.uid = d->new_stat.uid;
			e.src.gid = d->new_stat.gid;
			e.xattrs = xattrs_hash(&d->new_xattrs);
		}
		r = add(a, BASE_META, d->path, &e);
	}
	return r < 0 ? r : 0;
}

/* ---- the record ---- */

static int open_base(struct atoll_participant *p, int dir_fd, struct base **ret)
{
	char name[NAME_LEN];
	cleanup_close int fd = FD_NONE;

	base_name(p, name);
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_sys(&p->err, -errno, "open the base record in", p->work);
	return base_open(fd, ret, &p->err);
}

/* Puts NEW in the place of the record, which is kept first. */
static int install(struct atoll_participant *p, int dir_fd)
{
	char name[NAME_LEN], new[NAME_LEN], saved[NAME_LEN];
	int r = 0;

	base_name(p, name);
	new_name(p, new);
	saved_name(p, saved);
	if (!p->batch.redoing)
		r = fs_link_at(dir_fd, name, dir_fd, saved);
	if (r == -EEXIST)
		r = 0;
	if (r >= 0)
		r = fs_rename_over(dir_fd, new, name);
	crashpoint("copy.commit.rebased");
	if (r >= 0 && p->batch.sync)
		r = syncset_add(p->batch.sync, dir_fd, name);
	if (r >= 0 && p->batch.sync)
		r = syncset_add(p->batch.sync, dir_fd, "");
	return r < 0 ? error_sys(&p->err, r, "write the base record in", p->work) : 0;
}

static int amend(struct atoll_participant *p, int dir_fd, const struct base *old, struct spool *a)
{
	cleanup_close int fd = FD_NONE;
	char name[NAME_LEN];
	int r;

	new_name(p, name);
	(void)fs_unlink_at(dir_fd, name);
	r = fs_create_at(dir_fd, name, 0600, &fd);
	if (r < 0)
		return error_sys(&p->err, r, "write the base record in", p->work);
	r = base_amend(old, a, dir_fd, fd, &p->err);
	if (r < 0)
		return r;
	/* What has its name is whole, also after a power cut: nobody could go on without it. */
	r = fs_sync_file(fd);
	return r < 0 ? error_sys(&p->err, r, "write the base record in", p->work)
	             : install(p, dir_fd);
}

/* What the record OLD, which lies in DIR_FD, is to say otherwise because of batch B. */
typedef int (*gather_fn)(struct atoll_participant *p, struct dir_batch *b, int dir_fd,
                         const struct base *old, struct spool *a);

uint64_t copy_base_size(const struct atoll_participant *p)
{
	cleanup_free char *path = NULL;
	char name[NAME_LEN];
	struct fs_stat st;

	base_name(p, name);
	path = xasprintf("%s/%s", p->work, name);
	return fs_stat_at(AT_FDCWD, path, 0, &st) < 0 ? 0 : st.size;
}

static int rewrite_once(struct atoll_participant *p, struct dir_batch *b, gather_fn gather)
{
	cleanup_close int dir_fd = FD_NONE;
	cleanup_base struct base *old = NULL;
	struct spool a = { 0 };
	int r = open_work(p, &dir_fd);

	if (r >= 0)
		r = open_base(p, dir_fd, &old);
	if (r >= 0) {
		spool_spill_to(&a, dir_fd);
		r = gather(p, b, dir_fd, old, &a);
		if (r < 0 && !p->err.code)
			r = error_sys(&p->err, r, "look at what is the base now in", p->root);
	}
	if (r >= 0)
		r = amend(p, dir_fd, old, &a);
	spool_done(&a);
	return r;
}

static int rewrite(struct atoll_participant *p, struct dir_batch *b, gather_fn gather)
{
	int r = rewrite_once(p, b, gather);

	if (!dir_make_room(b, r))
		return r;
	error_done(&p->err);
	return rewrite_once(p, b, gather);
}

static int gather_installed(struct atoll_participant *p, struct dir_batch *b, int dir_fd,
                            const struct base *old, struct spool *a)
{
	struct manifest installed = MANIFEST_INIT, work = MANIFEST_INIT, theirs = MANIFEST_INIT;
	int r = dir_installed_read(p, b, &installed);

	dir_work_read(b, &work);
	if (r >= 0)
		r = dir_theirs_read(p, b, &theirs);
	if (r >= 0)
		r = add_ops(a, b, &installed, &work);
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r >= 0 && o.flags & MANIFEST_THEIRS)
			r = add_theirs(a, dir_fd, b, &o, &theirs);
	}
	if (r >= 0)
		r = add_dirs(a, b, old);
	manifest_done(&installed);
	manifest_done(&work);
	manifest_done(&theirs);
	return r;
}

int copy_base_rebase(struct atoll_participant *p, struct dir_batch *b)
{
	return rewrite(p, b, gather_installed);
}

static int add_now(struct spool *a, struct dir_batch *b, const struct manifest *now)
{
	static const struct base_entry nothing;
	int r = add_list(a, b, now, NULL);

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct fs_stat st;

		r = manifest_get(&b->m, k, &o);
		if (r < 0 || o.flags & MANIFEST_WORK)
			continue;
		r = dir_installed_find(now, o.path, &st);
		if (r == 0)
			r = add(a, BASE_REMOVE, o.path, &nothing);
	}
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++) {
		const char *path = b->m.dirs[i].path;
		cleanup_close int fd = FD_NONE;
		struct base_entry e = { 0 };

		if (resolve_dir_path(b->root_fd, path, &fd) < 0 ||
		    fs_stat_at(fd, "", FS_STAT_ID, &e.src) < 0)
			continue;
		r = dir_xattrs(b->root_fd, path, &e.xattrs);
		if (r >= 0)
			r = add(a, BASE_META, path, &e);
	}
	return r;
}

/* The workspace's unchanged copy of PATH goes; its directory keeps its time. */
static int clear(struct dir_batch *b, const char *path)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_stat parent;
	int r = resolve_parent(b->work_fd, path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, "", 0, &parent);
	if (r >= 0)
		r = remove_tree_at(fd, name);
	if (r >= 0)
		r = fs_set_mtime(fd, "", parent.mtime_ns);
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

/* A copy of the resource's PATH takes the place of the workspace's in one step: in between it would
 * pass for deleted by the plan. */
static int exchange(int dir_fd, struct dir_batch *b, const char *path)
{
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	const char *name;
	struct fs_stat parent;
	int r = resolve_parent(b->root_fd, path, &from_fd, &name);

	if (r >= 0)
		r = resolve_parent(b->work_fd, path, &to_fd, &name);
	if (r >= 0)
		r = fs_stat_at(to_fd, "", 0, &parent);
	if (r >= 0)
		r = remove_tree_at(dir_fd, BROUGHT);
	if (r >= 0)
		r = copy_tree_at(from_fd, name, dir_fd, BROUGHT);
	if (r >= 0)
		r = fs_move(dir_fd, BROUGHT, to_fd, name);
	if (r == -EEXIST)
		r = fs_exchange(to_fd, name, dir_fd, BROUGHT);
	if (r >= 0)
		r = fs_set_mtime(to_fd, "", parent.mtime_ns);
	if (r >= 0)
		r = remove_tree_at(dir_fd, BROUGHT);
	return r;
}

static int refresh_path(struct spool *a, int dir_fd, struct dir_batch *b, const char *path,
                        bool fill)
{
	union {
		const char *in;
		char *out;
	} u = { .in = path };
	const struct manifest_op o = { .op = CHANGE_DELETE, .path = u.out };
	struct manifest theirs = MANIFEST_INIT;
	/* Looked at before it is copied: what changes in between is found the next time. */
	int r;

	spool_spill_to(&theirs.ops, dir_fd);
	r = dir_list_tree(b->root_fd, path, &theirs);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
		r = 0;
	if (r >= 0 && fill)
		r = theirs.ops.n ? exchange(dir_fd, b, path) : clear(b, path);
	crashpoint("copy.refresh.path");
	if (r >= 0)
		r = add_theirs(a, dir_fd, b, &o, &theirs);
	manifest_done(&theirs);
	return r;
}

static int refresh_dir(struct spool *a, struct dir_batch *b, const char *path)
{
	union {
		const char *in;
		char *out;
	} u = { .in = path };
	const struct manifest_op o = { .path = u.out };
	cleanup_close int fd = FD_NONE;
	struct base_entry e = { 0 };
	int r = resolve_dir_path(b->root_fd, path, &fd);

	if (r >= 0)
		r = fs_stat_at(fd, "", FS_STAT_ID, &e.src);
	if (r >= 0)
		r = dir_xattrs(b->root_fd, path, &e.xattrs);
	if (r >= 0)
		r = dir_take_attrs(b, &o);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
		return 0;
	return r < 0 ? r : add(a, BASE_META, path, &e);
}

/* Where the plan's version was given up, what is there is the plan's, too. The workspace that the batch
 * used up has nothing in that place. */
static int refresh_theirs(struct spool *a, int dir_fd, struct dir_batch *b)
{
	int r = 0;

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(&b->m, k, &o);
		if (r < 0 || !(o.flags & MANIFEST_THEIRS))
			continue;
		r = dir_is_attr(&o) ? refresh_dir(a, b, o.path)
		                    : refresh_path(a, dir_fd, b, o.path, true);
	}
	return r;
}

static int gather_now(struct atoll_participant *p, struct dir_batch *b, int dir_fd,
                      const struct base *old, struct spool *a)
{
	struct manifest now = MANIFEST_INIT;
	int r = dir_list_now(p, b, &now);

	(void)old;
	if (r >= 0)
		r = add_now(a, b, &now);
	if (r >= 0)
		r = dir_used_up(p);
	if (r > 0)
		r = refresh_theirs(a, dir_fd, b);
	manifest_done(&now);
	return r;
}

int copy_base_back(struct atoll_participant *p, struct dir_batch *b)
{
	int r = rewrite(p, b, gather_now);

	if (r >= 0)
		copy_base_settle(p);
	return r;
}

int copy_base_refresh(struct atoll_participant *p, const struct tree_compare *t,
                      const struct copy_foreign *f, const struct strlist *equal)
{
	cleanup_close int dir_fd = FD_NONE;
	struct dir_batch b = { .root_fd = t->orig_fd, .work_fd = t->work_fd };
	struct spool a = { 0 };
	int r = open_work(p, &dir_fd);

	if (r >= 0)
		spool_spill_to(&a, dir_fd);
	for (size_t i = 0; i < f->paths.n && r >= 0; i++)
		r = refresh_path(&a, dir_fd, &b, f->paths.v[i], true);
	for (size_t i = 0; i < equal->n && r >= 0; i++)
		r = refresh_path(&a, dir_fd, &b, equal->v[i], false);
	/* Their times last, the deepest first. */
	for (size_t i = f->dirs.n; i-- > 0 && r >= 0;)
		r = refresh_dir(&a, &b, f->dirs.v[i]);
	if (r < 0 && !p->err.code)
		r = error_sys(&p->err, r, "bring in changes from", p->root);
	crashpoint("copy.refresh.brought");
	if (r >= 0 && a.n)
		r = amend(p, dir_fd, t->base, &a);
	spool_done(&a);
	if (r >= 0)
		copy_base_settle(p);
	return r;
}

int copy_base_revert(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	char name[NAME_LEN], new[NAME_LEN], saved[NAME_LEN];
	int r = open_work(p, &dir_fd);

	if (r < 0)
		return r;
	base_name(p, name);
	new_name(p, new);
	saved_name(p, saved);
	(void)fs_unlink_at(dir_fd, new);
	r = fs_link_at(dir_fd, saved, dir_fd, new);
	if (r >= 0)
		r = fs_rename_over(dir_fd, new, name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, dir_fd, "");
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "put back the base record in", p->work)
	                             : 0;
}

void copy_base_settle(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	char saved[NAME_LEN];

	if (open_work(p, &dir_fd) >= 0) {
		saved_name(p, saved);
		(void)fs_unlink_at(dir_fd, saved);
	}
	error_done(&p->err);
}
