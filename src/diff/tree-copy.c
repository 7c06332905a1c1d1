/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a workspace: one job per directory, which copies its files and makes its
 * subdirectories, open to us alone (0700), for jobs of their own. A directory is finished by
 * whoever finishes the last of its subdirectories: it gets its metadata, and its block of the
 * base record is written. So times are set deepest first, and memory holds the directories
 * between the root and those being copied, nothing else.
 *
 * Consistency: a directory is stat'ed before it is listed and again when it is finished. If it
 * changed in between it is listed again: new entries are copied, those gone are removed, those
 * that are other inodes now are copied anew. Each file is consistent by itself (copy_entry_at).
 */
#include "diff/tree.h"

#include "diff/base-impl.h"
#include "diff/tree-impl.h"
#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LISTINGS_MAX 8

struct copy_dir {
	struct copy_dir *parent; /* NULL: this is the root */
	size_t slot;             /* its place in PARENT's entries */
	uint32_t number;
	unsigned flags;
	unsigned listings;
	bool is_gone; /* vanished from the original before it could be read */
	struct fs_stat src;
	struct dirlist names;
	/* Per name, as in a base record without it, or empty: no entry after all. Those of subdirectories
	 * are guarded by the copier's lock, once these are on their own. */
	struct spool v;
	/* Guarded by the copier's lock: */
	size_t pending; /* its own job, and subdirectories not yet finished */
	struct copy_dir *prev, *next;
	char path[];
};

struct copier {
	int orig_fd;
	int work_fd;
	const struct strlist *excludes;
	struct base_writer *writer;
	struct tree_links *links;
	tree_note_fn note;
	void *note_ctx;
	struct base_entry root;
	struct tree_failure failure;

	pthread_mutex_t lock;  /* guards all below, and calls of NOTE */
	struct copy_dir *live; /* every directory not yet finished */
};

struct job {
	struct copy_dir *dir;
};

static void tell(struct copier *c, const char *path, const char *why)
{
	if (!c->note)
		return;
	pthread_mutex_lock(&c->lock);
	c->note(c->note_ctx, path, why);
	pthread_mutex_unlock(&c->lock);
}

/* The entry of D's name I. 0, or 1: there is none. */
static int entry_get(const struct copy_dir *d, size_t i, struct base_entry *ret)
{
	const void *data;
	size_t len;
	int r = spool_get(&d->v, i, &data, &len);

	if (r < 0 || len == 0)
		return r < 0 ? r : 1;
	(void)base_decode(data, ret);
	ret->name = d->names.v[i].name;
	return 0;
}

/* E NULL, or without a name: there is none. */
static int entry_add(struct spool *v, const struct base_entry *e)
{
	unsigned char data[BASE_ENTRY_FIXED];

	if (!e || !e->name)
		return spool_add(v, "", 0);
	base_encode(data, e, 0);
	return spool_add(v, data, sizeof(data));
}

static int entry_set(struct copier *c, struct copy_dir *d, size_t i, const struct base_entry *e)
{
	unsigned char data[BASE_ENTRY_FIXED];
	int r;

	if (e)
		base_encode(data, e, 0);
	pthread_mutex_lock(&c->lock);
	r = spool_set(&d->v, i, data, e ? sizeof(data) : 0);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static int dir_new(struct copier *c, struct copy_dir *parent, size_t slot, uint32_t number,
                   struct copy_dir **ret)
{
	const char *name = parent ? parent->names.v[slot].name : "";
	cleanup_free char *path = NULL;
	struct copy_dir *d;
	int r;

	r = tree_join(parent ? parent->path : "", name, &path);
	if (r < 0)
		return r;
	d = malloc(sizeof(*d) + strlen(path) + 1);
	if (!d)
		return -ENOMEM;
	*d = (struct copy_dir){ .parent = parent, .slot = slot, .pending = 1 };
	d->number = number;
	memcpy(d->path, path, strlen(path) + 1);

	pthread_mutex_lock(&c->lock);
	d->next = c->live;
	if (d->next)
		d->next->prev = d;
	c->live = d;
	if (parent)
		parent->pending++;
	pthread_mutex_unlock(&c->lock);
	*ret = d;
	return 0;
}

static void dir_free(struct copier *c, struct copy_dir *d)
{
	pthread_mutex_lock(&c->lock);
	if (d->next)
		d->next->prev = d->prev;
	if (d->prev)
		d->prev->next = d->next;
	else
		c->live = d->next;
	pthread_mutex_unlock(&c->lock);
	dirlist_done(&d->names);
	spool_done(&d->v);
	free(d);
}

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EISDIR;
}

/* An empty file for one that cannot be read, as far as it can be made to look like it. */
static int stand_in_file(const struct tree_both *at, struct base_entry *e)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat made;
	int r;

	r = fs_stat_at(at->orig_fd, e->name, FS_STAT_ID, &e->src);
	if (r < 0)
		return r;
	if (!S_ISREG(e->src.mode))
		return -EACCES;
	r = fs_create_at(at->work_fd, e->name, 0600, &fd);
	if (r < 0)
		return r;
	(void)fs_set_owner(at->work_fd, e->name, e->src.uid, e->src.gid);
	r = fs_set_mode(fd, "", e->src.mode & 07777);
	if (r == 0)
		r = fs_set_mtime(fd, "", e->src.mtime_ns);
	if (r == 0)
		r = fs_stat_at(fd, "", 0, &made);
	if (r < 0)
		return r;
	e->flags |= BASE_UNREADABLE;
	e->work_ino = made.id.ino;
	e->work_ctime_ns = made.ctime_ns;
	return 0;
}

static int copy_linked(struct copier *c, const struct copy_dir *d, const struct tree_both *at,
                       struct base_entry *e)
{
	cleanup_free char *path = NULL;
	int r = tree_join(d->path, e->name, &path);

	return r < 0 ? r : tree_links_copy(c->links, at, path, e);
}

static void tell_entry(struct copier *c, const struct copy_dir *d, const char *name,
                       const char *why)
{
	cleanup_free char *path = NULL;

	if (tree_join(d->path, name, &path) == 0)
		tell(c, path, why);
}

/* An entry that is not a directory; ST is what it was a moment ago. */
static int take_file(struct copier *c, const struct copy_dir *d, const struct tree_both *at,
                     const struct fs_stat *st, struct base_entry *e)
{
	int r;

	e->dir = BASE_NO_DIR;
	if (st->mount_root) {
		tell_entry(c, d, e->name, "is a mount point, left out");
		return stand_in_file(at, e);
	}
	r = st->nlink > 1 ? copy_linked(c, d, at, e) : tree_copy_alone(at, e);
	if (r == -EACCES) {
		tell_entry(c, d, e->name, "cannot be read, left empty");
		return stand_in_file(at, e);
	}
	if (r == -EPERM && (S_ISCHR(st->mode) || S_ISBLK(st->mode))) {
		tell_entry(c, d, e->name, "is a device that cannot be made, left out");
		e->flags |= BASE_SKIPPED;
		return fs_stat_at(at->orig_fd, e->name, FS_STAT_ID, &e->src);
	}
	return r;
}

/* Copies the entry named E->name, or, for a directory, makes it for its own job to fill. */
static int take_entry(struct copier *c, const struct copy_dir *d, const struct tree_both *at,
                      struct base_entry *e)
{
	struct fs_stat st;
	int r;

	r = fs_stat_at(at->orig_fd, e->name, 0, &st);
	if (r == 0 && S_ISDIR(st.mode)) {
		e->src = st;
		e->dir = base_writer_dir(c->writer);
		r = fs_mkdir_at(at->work_fd, e->name, 0700);
	} else if (r == 0) {
		r = take_file(c, d, at, &st, e);
	}
	if (is_gone(r)) {
		/* Its directory changed, then, and will be listed again. */
		e->name = NULL;
		return 0;
	}
	if (r < 0) {
		cleanup_free char *path = NULL;

		if (tree_join(d->path, e->name, &path) < 0)
			return tree_fail_sys(&c->failure, r, "copy", d->path);
		if (r == -EAGAIN)
			return tree_fail_changing(&c->failure, path);
		return tree_fail_sys(&c->failure, r, "copy", path);
	}
	return 0;
}

static int drop_entry(struct copier *c, const struct copy_dir *d, const struct tree_both *at,
                      size_t i)
{
	struct base_entry e;
	int r = entry_get(d, i, &e);

	if (r == 0)
		r = remove_tree_at(at->work_fd, e.name);
	return r < 0 ? tree_fail_sys(&c->failure, r, "remove the copy of", d->path) : 0;
}

/* OLD was copied when the directory was listed before: is it still that inode? */
static int retake_entry(struct copier *c, const struct copy_dir *d, const struct tree_both *at,
                        size_t i, struct base_entry *e)
{
	struct base_entry old;
	struct fs_stat st;
	int r = entry_get(d, i, &old);

	if (r == 0 && fs_stat_at(at->orig_fd, e->name, FS_STAT_ID, &st) == 0 &&
	    fs_id_equal(st.id, old.src.id)) {
		const char *name = e->name;

		*e = old;
		e->name = name;
		return 0;
	}
	r = drop_entry(c, d, at, i);
	return r < 0 ? r : take_entry(c, d, at, e);
}

static bool is_excluded(const struct copier *c, const struct copy_dir *d, const char *name)
{
	cleanup_free char *path = NULL;

	if (!c->excludes || c->excludes->n == 0)
		return false;
	return tree_join(d->path, name, &path) == 0 && tree_excluded(c->excludes, path);
}

/* Goes through the directory's old entries (none the first time) and its new names side by side,
 * and fills V with one for each name. */
static int take_names(struct copier *c, struct copy_dir *d, const struct tree_both *at,
                      const struct dirlist *names, struct spool *v)
{
	size_t old = 0;
	int r = 0;

	for (size_t i = 0; i < names->n && r == 0; i++) {
		struct base_entry e = { .name = names->v[i].name };
		int order = 1, added;

		if (is_excluded(c, d, e.name))
			e.name = NULL;
		while (e.name && old < d->v.n && r == 0) {
			order = strcmp(d->names.v[old].name, e.name);
			if (order >= 0)
				break;
			r = drop_entry(c, d, at, old++);
		}
		if (r < 0)
			break;
		if (e.name && old < d->v.n && order == 0)
			r = retake_entry(c, d, at, old++, &e);
		else if (e.name)
			r = take_entry(c, d, at, &e);
		added = entry_add(v, &e);
		if (r == 0 && added < 0)
			r = tree_fail_sys(&c->failure, added, "copy", d->path);
	}
	while (old < d->v.n && r == 0)
		r = drop_entry(c, d, at, old++);
	return r;
}

static int take_listing(struct copier *c, struct copy_dir *d, const struct tree_both *at)
{
	struct dirlist names = DIRLIST_INIT;
	struct spool v = { 0 };
	int r;

	r = dirlist_read(at->orig_fd, &names);
	if (r < 0)
		return tree_fail_sys(&c->failure, r, "list", d->path);
	spool_spill_to(&v, c->work_fd);
	r = take_names(c, d, at, &names, &v);
	spool_done(&d->v);
	dirlist_done(&d->names);
	if (r < 0)
		spool_cut(&v, 0);
	d->v = v;
	d->names = names;
	return r;
}

/* The directory cannot be read: what stands for it stays (or becomes) empty. */
static int stand_in_dir(struct copier *c, struct copy_dir *d, int work_fd, int why)
{
	const struct tree_both at = { .orig_fd = FD_NONE, .work_fd = work_fd };
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r;

	r = resolve_parent(c->orig_fd, d->path, &fd, &name);
	if (r == 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &d->src);
	if (is_gone(r)) {
		d->is_gone = true;
		return 0;
	}
	if (r < 0)
		return tree_fail_sys(&c->failure, r, "stat", d->path);
	for (size_t i = 0; i < d->v.n && r == 0; i++)
		r = drop_entry(c, d, &at, i);
	spool_cut(&d->v, 0);
	d->flags |= BASE_UNREADABLE;
	tell(c, d->path,
	     why == -EXDEV ? "is a mount point, left out" : "cannot be read, left empty");
	return r;
}

/* Lists the directory and copies what is not copied yet. */
static int take_dir(struct copier *c, struct copy_dir *d)
{
	cleanup_close int orig_fd = FD_NONE;
	cleanup_close int work_fd = FD_NONE;
	int r;

	r = resolve_dir(c->work_fd, d->path, &work_fd);
	/* It may have its final mode already, when it is listed again. */
	if (r == 0 && d->listings > 0)
		r = fs_set_mode(work_fd, "", 0700);
	if (r < 0)
		return tree_fail_sys(&c->failure, r, "open the copy of", d->path);
	d->listings++;

	r = resolve_dir(c->orig_fd, d->path, &orig_fd);
	/* By ".", which needs the right to search the directory, as its entries do. */
	if (r == 0)
		r = fs_stat_at(orig_fd, ".", FS_STAT_ID, &d->src);
	if (r == 0)
		return take_listing(c, d, &(struct tree_both){ orig_fd, work_fd });
	if (d->parent && (r == -EACCES || r == -EXDEV))
		return stand_in_dir(c, d, work_fd, r);
	if (d->parent && is_gone(r)) {
		d->is_gone = true;
		return 0;
	}
	return tree_fail_sys(&c->failure, r, "open", d->path);
}

/* Jobs for the subdirectories made by the last listing. */
static int push_children(struct pool *p, struct copier *c, struct copy_dir *d)
{
	for (size_t i = 0; i < d->v.n; i++) {
		struct base_entry e;
		struct job *job;
		int r;

		/* Those that were pushed already may be finishing, and say so. */
		pthread_mutex_lock(&c->lock);
		r = entry_get(d, i, &e);
		pthread_mutex_unlock(&c->lock);
		if (r < 0)
			return tree_fail_sys(&c->failure, r, "copy below", d->path);
		if (r == 1 || e.dir == BASE_NO_DIR || e.work_ino != 0)
			continue;
		job = xcalloc(1, sizeof(*job));
		r = dir_new(c, d, i, e.dir, &job->dir);
		if (r < 0) {
			free(job);
			return tree_fail_sys(&c->failure, r, "copy below", d->path);
		}
		pool_push(p, job);
	}
	return 0;
}

/* Metadata of a directory that can only be stat'ed. */
static int stand_in_meta(const struct copy_dir *d, int work_fd)
{
	int r;

	(void)fs_set_owner(work_fd, "", d->src.uid, d->src.gid);
	r = fs_set_mode(work_fd, "", d->src.mode & 07777);
	return r < 0 ? r : fs_set_mtime(work_fd, "", d->src.mtime_ns);
}

/* Metadata of the original, or 1 when that changed since it was listed. */
static int take_meta(struct copier *c, struct copy_dir *d, int work_fd, uint64_t *ret_xattrs)
{
	cleanup_close int orig_fd = FD_NONE;
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	struct fs_stat now;
	bool is_same;
	int r;

	r = resolve_dir(c->orig_fd, d->path, &orig_fd);
	if (d->parent && (is_gone(r) || r == -EACCES || r == -EXDEV))
		return 1;
	if (r == 0)
		r = copy_dir_meta(orig_fd, work_fd);
	if (r == 0)
		r = xattrs_read_at(orig_fd, "", &x);
	if (r == 0)
		r = fs_stat_at(orig_fd, "", FS_STAT_ID, &now);
	if (r < 0)
		return r;
	*ret_xattrs = xattrs_hash(&x);
	is_same = fs_id_equal(now.id, d->src.id) && now.ctime_ns == d->src.ctime_ns &&
	          now.mtime_ns == d->src.mtime_ns;
	return is_same ? 0 : 1;
}

static int write_block(struct copier *c, struct copy_dir *d)
{
	cleanup_base_draft struct base_draft draft = { 0 };
	int r = 0;

	base_draft_init(&draft, c->writer, d->number);
	for (size_t i = 0; i < d->v.n && r >= 0; i++) {
		struct base_entry e;

		r = entry_get(d, i, &e);
		if (r == 0)
			r = base_draft_add(&draft, &e);
	}
	return r < 0 ? r : base_draft_put(&draft, c->writer);
}

/* It was made for a directory that is no more. */
static int remove_gone(struct copier *c, struct copy_dir *d)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r;

	r = entry_set(c, d->parent, d->slot, NULL);
	if (r >= 0)
		r = resolve_parent(c->work_fd, d->path, &fd, &name);
	return r < 0 ? r : remove_tree_at(fd, name);
}

/* Everything below is complete. 1: the original changed, it must be listed again. */
static int finish_dir(struct copier *c, struct copy_dir *d)
{
	cleanup_close int work_fd = FD_NONE;
	struct base_entry e;
	uint64_t xattrs = 0;
	struct fs_stat made;
	int r;

	if (d->is_gone)
		return remove_gone(c, d);
	r = resolve_dir(c->work_fd, d->path, &work_fd);
	if (r == 0 && (d->flags & BASE_UNREADABLE))
		r = stand_in_meta(d, work_fd);
	else if (r == 0)
		r = take_meta(c, d, work_fd, &xattrs);
	if (r != 0)
		return r;
	r = write_block(c, d);
	if (r == 0)
		r = fs_stat_at(work_fd, "", FS_STAT_ID, &made);
	if (r < 0)
		return r;
	e = (struct base_entry){
		.name = "",
		.flags = d->flags,
		.src = d->src,
		.work_ino = made.id.ino,
		.work_gen = made.id.gen,
		.work_ctime_ns = made.ctime_ns,
		.dir = d->number,
		.xattrs = xattrs,
	};
	if (d->parent)
		return entry_set(c, d->parent, d->slot, &e);
	c->root = e;
	return 0;
}

/* One part of the directory is done. True: it was the last, and it is ours now. */
static bool release(struct copier *c, struct copy_dir *d)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = --d->pending == 0;
	if (last)
		d->pending = 1;
	pthread_mutex_unlock(&c->lock);
	return last;
}

/* Lists D (again) and gives its subdirectories to the pool. */
static int copy_dir(struct pool *p, struct copier *c, struct copy_dir *d)
{
	int r;

	if (d->listings >= LISTINGS_MAX)
		return tree_fail_changing(&c->failure, d->path);
	tree_pause(d->listings);
	r = take_dir(c, d);
	return r < 0 ? r : push_children(p, c, d);
}

static int run_job(struct pool *p, void *ctx, void *item)
{
	cleanup_free struct job *job = item;
	struct copy_dir *d = job->dir;
	struct copier *c = ctx;
	int r;

	r = copy_dir(p, c, d);
	while (r == 0 && d && release(c, d)) {
		struct copy_dir *parent = d->parent;

		r = finish_dir(c, d);
		if (r < 0)
			return tree_fail_sys(&c->failure, r, "finish the copy of", d->path);
		if (r == 1) {
			r = copy_dir(p, c, d);
			continue;
		}
		dir_free(c, d);
		d = parent;
	}
	return r;
}

static int copy_all(struct copier *c, unsigned threads)
{
	struct job *job = xcalloc(1, sizeof(*job));
	int r;

	r = dir_new(c, NULL, 0, base_writer_dir(c->writer), &job->dir);
	if (r < 0) {
		free(job);
		return tree_fail_sys(&c->failure, r, "copy", "");
	}
	r = pool_run(threads ? threads : pool_default_threads(), run_job, c, job);
	if (r < 0)
		return r;
	r = tree_links_record(c->links, c->writer);
	if (r == 0)
		r = base_writer_finish(c->writer, &c->root);
	return r < 0 ? tree_fail_sys(&c->failure, r, "write", "base record") : 0;
}

int tree_copy(int orig_fd, int work_fd, const struct strlist *excludes, struct base_writer *w,
              unsigned threads, tree_note_fn note, void *ctx, struct error *err)
{
	struct copier c = {
		.orig_fd = orig_fd,
		.work_fd = work_fd,
		.excludes = excludes,
		.writer = w,
		.links = tree_links_new(work_fd),
		.note = note,
		.note_ctx = ctx,
		.root.name = "",
		.failure = TREE_FAILURE_INIT(err),
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	int r;

	base_writer_spill_to(w, work_fd);
	r = copy_all(&c, threads);
	while (c.live)
		dir_free(&c, c.live);
	tree_links_free(c.links);
	pthread_mutex_destroy(&c.lock);
	pthread_mutex_destroy(&c.failure.lock);
	return r;
}
