/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a workspace changed: one job per directory that both the workspace and the base have. The
 * job goes through the directory's names and its block of the base record side by side. An
 * unchanged entry costs one statx. The original's directories are never listed.
 */
#include "diff/tree.h"

#include "diff/tree-impl.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/pool.h"
#include "util/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ATTEMPTS_MAX 5

struct differ {
	const struct tree_compare *t;
	struct tree_owner owner;
	struct tree_failure failure;

	pthread_mutex_t lock; /* guards all below */
	struct changeset *cs;
};

/* A directory in both. */
struct diff_job {
	unsigned flags;
	uint32_t dir;
	struct fs_stat base;
	struct fs_stat work;
	char path[];
};

struct diff_dir {
	struct pool *pool;
	struct differ *d;
	const struct diff_job *job;
	int work_fd;
	int orig_fd; /* FD_NONE until asked for, and where there is none */
	bool orig_asked;
	bool is_touched; /* an entry of it changes */
};

static struct diff_job *job_new(const char *path, const struct base_entry *e,
                                const struct fs_stat *work)
{
	size_t len = strlen(path) + 1;
	struct diff_job *job = malloc(sizeof(*job) + len);

	if (!job)
		return NULL;
	*job = (struct diff_job){ .flags = e->flags, .dir = e->dir, .base = e->src, .work = *work };
	memcpy(job->path, path, len);
	return job;
}

/* What is known of a change beside its two sides. */
struct scan {
	unsigned what;
	unsigned base_flags; /* of all below a directory that goes */
	uint64_t entries;    /* below the change itself */
};

/* Everything below a new directory, for what it must be named for. */
static int scan_new(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct scan *s = ctx;
	unsigned flags;
	struct fs_stat st;
	int r;

	(void)type;
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == 0)
		r = tree_entry_flags(&(struct tree_new){ dir_fd, name, path, &st, 0 }, &flags);
	if (r == 0) {
		s->what |= flags;
		s->entries++;
	}
	return r == -ENOENT ? 0 : r;
}

/* Everything below a directory that goes: what the view never showed goes with it. */
static int scan_old(void *ctx, const char *path, const struct base_entry *e)
{
	struct scan *s = ctx;

	(void)path;
	s->base_flags |= e->flags;
	s->entries++;
	return 0;
}

static int add_change(struct differ *d, const struct change *c)
{
	int r;

	pthread_mutex_lock(&d->lock);
	r = changeset_add(d->cs, c);
	pthread_mutex_unlock(&d->lock);
	return r < 0 ? tree_fail_sys(&d->failure, r, "compare", ".") : 0;
}

/* One change. E or WORK is NULL where it is absent. */
static int report(struct diff_dir *dd, const char *path, enum change_op op,
                  const struct base_entry *e, const struct fs_stat *work, struct scan s)
{
	struct change c = { .op = op, .base_dir = BASE_NO_DIR };
	cleanup_error struct error err = ERROR_INIT;

	if (e) {
		c.base = e->src;
		c.base_flags = e->flags;
		c.base_dir = e->dir;
	}
	if (work)
		c.work = *work;
	/* Below a stand-in nobody knows what is really there. */
	c.base_flags |= dd->job->flags & BASE_UNREADABLE;
	if (c.base_dir != BASE_NO_DIR && op != CHANGE_ATTR) {
		int r = tree_base_walk(dd->d->t->base, "", c.base_dir, scan_old, &s, &err);

		if (r < 0)
			return tree_fail_move(&dd->d->failure, r, &err);
	}
	c.what = s.what;
	c.base_flags |= s.base_flags;
	/* What a directory shares with the one it replaces is not told. */
	c.counted = op != CHANGE_REPLACE || !S_ISDIR(c.base.mode) || !S_ISDIR(c.work.mode);
	c.entries = s.entries + 1;
	dd->is_touched = true;
	c.path = xstrdup(path);
	return add_change(dd->d, &c);
}

/* The same with the identity of WORK, if it still is what was compared. */
static int report_changed(struct diff_dir *dd, const char *path, enum change_op op,
                          const struct base_entry *e, const struct fs_stat *work, unsigned what)
{
	struct fs_stat now;
	int r;

	r = fs_stat_at(dd->work_fd, e->name, FS_STAT_ID, &now);
	if (r < 0)
		return r;
	if (now.id.ino != work->id.ino || now.ctime_ns != work->ctime_ns)
		return -EAGAIN;
	return report(dd, path, op, e, &now, (struct scan){ .what = what });
}

/* An entry that takes no older one's place, or one of another type, or another directory. */
static int report_new(struct diff_dir *dd, const char *path, const struct base_entry *e,
                      const struct fs_stat *work)
{
	struct scan s = { .what = !e ? 0
		                  : S_ISDIR(e->src.mode) && S_ISDIR(work->mode)
		                          ? ATOLL_CHANGE_CONTENT
		                          : ATOLL_CHANGE_TYPE };
	int r;

	r = walk_tree(dd->d->t->work_fd, path, scan_new, NULL, &s);
	if (r < 0)
		return r;
	s.entries -= s.entries > 0; /* the walk began with itself */
	return report(dd, path, e ? CHANGE_REPLACE : CHANGE_CREATE, e, work, s);
}

static int orig_dir(struct diff_dir *dd)
{
	if (!dd->orig_asked && resolve_dir_path(dd->d->t->orig_fd, dd->job->path, &dd->orig_fd) < 0)
		dd->orig_fd = FD_NONE;
	dd->orig_asked = true;
	return dd->orig_fd;
}

/* A directory that stays: its own metadata, and a job for what it holds. */
static int diff_subdir(struct diff_dir *dd, const char *path, const struct base_entry *e,
                       const struct fs_stat *work)
{
	struct diff_job *job;
	unsigned what;
	int r;

	r = tree_compare_dir(&dd->d->owner, dd->work_fd, e->name, e, work, &what);
	if (r == 0 && what != 0)
		r = report_changed(dd, path, CHANGE_ATTR, e, work, what);
	if (r < 0)
		return r;
	job = job_new(path, e, work);
	if (!job)
		return -ENOMEM;
	pool_push(dd->pool, job);
	return 0;
}

static int diff_file(struct diff_dir *dd, const char *path, const struct base_entry *e,
                     const struct fs_stat *work)
{
	struct tree_pair p = {
		.owner = &dd->d->owner,
		.work_fd = dd->work_fd,
		.orig_fd = orig_dir(dd),
		.path = path,
	};
	unsigned what;
	int r;

	r = tree_compare_entry(&p, e, work, &what);
	if (r < 0 || what == 0)
		return r;
	return report_changed(dd, path, CHANGE_REPLACE, e, work, what);
}

/* Made anew under the old name: what the old one held went with it. */
static bool is_another_dir(const struct base_entry *e, const struct fs_stat *work)
{
	return S_ISDIR(work->mode) && e->work_gen != BASE_GEN_ANY && e->work_gen != work->id.gen;
}

/* NAME as the workspace has it, once. E: as the base has it, or NULL. */
static int diff_once(struct diff_dir *dd, const char *name, const char *path,
                     const struct base_entry *e)
{
	struct fs_stat work;
	int r;

	r = fs_stat_at(dd->work_fd, name, FS_STAT_ID, &work);
	if (r == -ENOENT) {
		if (!e || e->flags & BASE_SKIPPED)
			return 0;
		return report(dd, path, CHANGE_DELETE, e, NULL, (struct scan){ 0 });
	}
	if (r < 0)
		return r;
	if (!e || (e->src.mode ^ work.mode) & S_IFMT || is_another_dir(e, &work))
		return report_new(dd, path, e, &work);
	if (S_ISDIR(work.mode))
		return diff_subdir(dd, path, e, &work);
	return diff_file(dd, path, e, &work);
}

/* The usual case, in one system call. */
static bool is_unchanged(const struct diff_dir *dd, const struct base_entry *e)
{
	struct fs_stat work;

	return e->dir == BASE_NO_DIR && fs_stat_at(dd->work_fd, e->name, 0, &work) == 0 &&
	       tree_is_proven(e, &work);
}

/* Somebody may be writing while we look (diff takes no lock): look again, a few times. */
static bool is_moving(int r)
{
	return r == -EAGAIN || r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EINVAL;
}

static int diff_name(struct diff_dir *dd, const char *name, const struct base_entry *e)
{
	cleanup_free char *path = NULL;
	int r;

	if (e && is_unchanged(dd, e))
		return 0;
	r = tree_join(dd->job->path, name, &path);
	if (r < 0)
		return tree_fail_sys(&dd->d->failure, r, "compare below", dd->job->path);
	if (tree_excluded(dd->d->t->excludes, path))
		return 0;
	r = -EAGAIN;
	for (unsigned i = 0; i < ATTEMPTS_MAX && is_moving(r); i++) {
		tree_pause(i);
		r = diff_once(dd, name, path, e);
	}
	if (is_moving(r))
		return tree_fail_changing(&dd->d->failure, path);
	return r < 0 ? tree_fail_sys(&dd->d->failure, r, "compare", path) : 0;
}

static int diff_names(struct diff_dir *dd, const struct dirlist *names, struct base_block *blk)
{
	size_t i = 0, j = 0;
	int r = 0;

	while (r == 0 && (i < names->n || j < blk->n)) {
		const struct base_entry *e = NULL;
		int order = i == names->n ? 1 : j == blk->n ? -1 : 0;

		if (progress_check_look() < 0)
			return tree_fail_sys(&dd->d->failure, -ECANCELED, "compare", dd->job->path);
		if (j < blk->n)
			r = base_block_at(blk, j, &e);
		if (r < 0)
			return tree_fail_sys(&dd->d->failure, r, "read", "base record");
		if (order == 0)
			order = strcmp(names->v[i].name, e->name);
		if (order < 0)
			r = diff_name(dd, names->v[i].name, NULL);
		else
			r = diff_name(dd, e->name, e);
		i += order <= 0;
		j += order >= 0;
	}
	return r;
}

static int note_dir(struct diff_dir *dd)
{
	const struct diff_job *job = dd->job;
	struct change_dir cd = { .base = job->base, .work_mtime_ns = job->work.mtime_ns };
	bool is_known = !(job->flags & BASE_UNREADABLE);
	int r;

	if (!dd->is_touched && !(is_known && job->work.mtime_ns != job->base.mtime_ns))
		return 0;
	cd.path = xstrdup(job->path);
	pthread_mutex_lock(&dd->d->lock);
	r = changeset_add_dir(dd->d->cs, &cd);
	pthread_mutex_unlock(&dd->d->lock);
	return r < 0 ? tree_fail_sys(&dd->d->failure, r, "compare", job->path) : 0;
}

static int open_work_dir(struct diff_dir *dd, struct dirlist *names)
{
	int r;

	r = resolve_dir(dd->d->t->work_fd, dd->job->path, &dd->work_fd);
	if (r == 0)
		r = dirlist_read(dd->work_fd, names);
	/* A stand-in is as closed as what it stands for; nobody got in either. */
	if (r == -EACCES && dd->job->flags & BASE_UNREADABLE)
		return 0;
	if (is_moving(r))
		return tree_fail_changing(&dd->d->failure, dd->job->path);
	return r < 0 ? tree_fail_sys(&dd->d->failure, r, "list", dd->job->path) : 0;
}

static int run_job(struct pool *p, void *ctx, void *item)
{
	cleanup_free struct diff_job *job = item;
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	cleanup_error struct error err = ERROR_INIT;
	struct diff_dir dd = { .pool = p,
		               .d = ctx,
		               .job = job,
		               .work_fd = FD_NONE,
		               .orig_fd = FD_NONE };
	int r;

	r = base_read(dd.d->t->base, job->dir, &blk, &err);
	if (r < 0)
		return tree_fail_move(&dd.d->failure, r, &err);
	r = open_work_dir(&dd, &names);
	if (r == 0 && dd.work_fd != FD_NONE)
		r = diff_names(&dd, &names, &blk);
	if (r == 0)
		r = note_dir(&dd);
	close_fd(&dd.work_fd);
	close_fd(&dd.orig_fd);
	return r;
}

/* The root itself: it stays, whatever happens. */
static int diff_root(struct differ *d, struct fs_stat *ret_work)
{
	const struct base_entry *e = base_root(d->t->base);
	struct change c = { .op = CHANGE_ATTR,
		            .base_flags = e->flags,
		            .base_dir = e->dir,
		            .base = e->src,
		            .entries = 1,
		            .counted = true };
	int r;

	r = fs_stat_at(d->t->work_fd, "", FS_STAT_ID, &c.work);
	if (r == 0)
		r = tree_compare_dir(&d->owner, d->t->work_fd, "", e, &c.work, &c.what);
	if (r < 0)
		return tree_fail_sys(&d->failure, r, "compare", ".");
	*ret_work = c.work;
	if (c.what == 0)
		return 0;
	c.path = xstrdup("");
	return add_change(d, &c);
}

static int diff_all(struct differ *d)
{
	unsigned threads = d->t->threads ? d->t->threads : pool_default_threads();
	struct diff_job *job;
	struct fs_stat work;
	int r;

	r = tree_owner_init(&d->owner);
	if (r < 0)
		return tree_fail_sys(&d->failure, r, "read the groups of", "this process");
	r = diff_root(d, &work);
	if (r < 0)
		return r;
	job = job_new("", base_root(d->t->base), &work);
	if (!job)
		return tree_fail_sys(&d->failure, -ENOMEM, "compare", ".");
	return pool_run(threads, run_job, d, job);
}

int tree_diff(const struct tree_compare *t, struct changeset *cs, struct error *err)
{
	struct differ d = {
		.t = t,
		.failure = TREE_FAILURE_INIT(err),
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.cs = cs,
	};
	int r;

	r = diff_all(&d);
	tree_owner_done(&d.owner);
	if (r >= 0) {
		r = changeset_sort(cs);
		if (r < 0)
			r = tree_fail_sys(&d.failure, r, "sort", "the changes");
	}
	pthread_mutex_destroy(&d.lock);
	pthread_mutex_destroy(&d.failure.lock);
	if (r < 0)
		changeset_done(cs);
	return r;
}
