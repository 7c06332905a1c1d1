/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Did somebody else change what a change set is about? The resource as it is now against the
 * base. Only what the change touches is looked at: one entry, or for a directory that goes, all
 * that is below it.
 */
#include "diff/tree.h"

#include "diff/live-database.h"
#include "diff/tree-impl.h"
#include "fs/content.h"
#include "fs/copy.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MODE_BITS 07777u
#define FREE      0
#define CONFLICT  1
#define ALREADY   2

/* Directories still to be looked at. */
struct todo_dir {
	char *path;
	uint32_t dir;
};
struct todo {
	struct todo_dir *v;
	size_t n, cap;
};

static int todo_add(struct todo *t, const char *path, uint32_t dir)
{
	void *v = t->v;
	int r;

	r = grow(&v, &t->cap, t->n + 1, sizeof(*t->v));
	if (r < 0)
		return r;
	t->v = v;
	t->v[t->n++] = (struct todo_dir){ xstrdup(path), dir };
	return 0;
}

static void todo_done(struct todo *t)
{
	while (t->n > 0)
		free(t->v[--t->n].path);
	free(t->v);
}

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV;
}

/* The entry at PATH below ROOT_FD; mode 0 when there is none to be reached. "" is the root. */
static int look(int root_fd, const char *path, struct fs_stat *ret)
{
	cleanup_close int fd = FD_NONE;
	const char *name = "";
	int r = 0;

	*ret = (struct fs_stat){ 0 };
	if (*path)
		r = resolve_parent(root_fd, path, &fd, &name);
	if (r == 0)
		r = fs_stat_at(*path ? fd : root_fd, name, FS_STAT_ID, ret);
	if (!is_absent(r))
		return r;
	*ret = (struct fs_stat){ 0 };
	return 0;
}

static bool same_owner_and_mode(const struct fs_stat *a, const struct fs_stat *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* Extended attributes of the original's directory PATH, as a hash. */
static int hash_xattrs(const struct tree_compare *t, const char *path, uint64_t *ret)
{
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir_path(t->orig_fd, path, &fd);

	return r < 0 ? r : xattrs_hash_at(fd, "", ret);
}

/* No directory: still what the base record says, or what we made of it ourselves. */
static bool is_as_left(const struct tree_compare *t, const char *path, const struct fs_stat *base,
                       struct fs_stat *now)
{
	return tree_same(base, now) ||
	       (t->left_by_us && t->left_by_us(t->left_ctx, path, base, now)) ||
	       fs_content_same(t->orig_fd, path, base, now);
}

/* One entry below a directory that goes. 1: somebody changed it. */
static int inner_changed(const struct tree_compare *t, const char *path, const struct base_entry *e,
                         struct fs_stat *now)
{
	uint64_t xattrs;
	int r;

	if (e->dir == BASE_NO_DIR)
		return !is_as_left(t, path, &e->src, now) || !same_owner_and_mode(&e->src, now);
	if (!fs_id_equal(e->src.id, now->id) || !same_owner_and_mode(&e->src, now))
		return 1;
	if (e->src.ctime_ns == now->ctime_ns)
		return 0;
	if (e->flags & BASE_UNREADABLE)
		return 1; /* what happened inside cannot be seen */
	r = hash_xattrs(t, path, &xattrs);
	return r < 0 ? r : xattrs != e->xattrs;
}

struct subtree {
	const struct tree_compare *t;
	struct todo todo;
	struct usage goes;
	bool databases;
	char *found; /* path of the first change */
};

/* One name the original has now. E: in the base, or NULL. */
static int check_name(struct subtree *s, const char *dir, int fd, const char *name,
                      const struct base_entry *e)
{
	cleanup_free char *path = NULL;
	struct fs_stat now;
	int r;

	r = tree_join(dir, name, &path);
	/* Another sandbox's: whether it may go at all is not for us to judge. */
	if (r < 0 || tree_excluded(s->t->excludes, path))
		return r;
	r = e ? fs_stat_at(fd, name, FS_STAT_ID, &now) : 0;
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = e ? inner_changed(s->t, path, e, &now) : 1;
	if (r == 1) {
		s->found = take_ptr(path);
		return 0;
	}
	if (r == 0) {
		usage_add_entry(&s->goes, &now);
		s->databases |=
			live_database_may_be(name, &now) && live_database_at(fd, name, &now);
	}
	if (r < 0 || e->dir == BASE_NO_DIR || e->flags & BASE_UNREADABLE)
		return r;
	return todo_add(&s->todo, path, e->dir);
}

static int check_dir(struct subtree *s, const char *path, uint32_t dir, struct error *err)
{
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;
	int r;

	r = base_read(s->t->base, dir, &blk, err);
	if (r < 0)
		return r;
	r = resolve_dir(s->t->orig_fd, path, &fd);
	if (r == 0)
		r = dirlist_read(fd, &names);
	if (is_absent(r) || r == -EACCES) {
		s->found = xstrdup(path);
		return 0;
	}
	for (size_t i = 0; i < names.n && r == 0 && !s->found; i++) {
		const struct base_entry *e;

		r = base_block_find(&blk, names.v[i].name, &e);
		if (r == 0)
			r = check_name(s, path, fd, names.v[i].name, e);
	}
	return r < 0 ? error_sys(err, r, "look for changes below", path) : 0;
}

/* All below the base directory of C, which is measured by the way. 1: *ret_path is what somebody
 * changed first. */
static int subtree_changed(const struct tree_compare *t, struct change *c, char **ret_path,
                           struct error *err)
{
	struct subtree s = { .t = t };
	int r;

	r = todo_add(&s.todo, c->path, c->base_dir);
	if (r < 0)
		(void)error_sys(err, r, "look for changes below", c->path);
	while (r == 0 && s.todo.n > 0 && !s.found) {
		struct todo_dir d = s.todo.v[--s.todo.n];

		r = check_dir(&s, d.path, d.dir, err);
		free(d.path);
	}
	todo_done(&s.todo);
	if (r == 0 && s.found) {
		*ret_path = s.found;
		return 1;
	}
	free(s.found);
	c->goes = s.goes;
	c->databases = s.databases;
	return r;
}

/* Both trees have an entry NAME: are they the same but for their times? 1 or 0. */
static int same_entry(int work_fd, int orig_fd, const char *name, const struct fs_stat *work,
                      const struct fs_stat *orig)
{
	cleanup_xattrs struct xattrs a = XATTRS_INIT;
	cleanup_xattrs struct xattrs b = XATTRS_INIT;
	int r;

	if (!same_owner_and_mode(work, orig) || work->size != orig->size ||
	    work->rdev != orig->rdev)
		return 0;
	r = xattrs_read_at(work_fd, name, &a);
	if (r == 0)
		r = xattrs_read_at(orig_fd, name, &b);
	if (r < 0)
		return r;
	if (!xattrs_equal(&a, &b))
		return 0;
	if (!S_ISREG(work->mode) && !S_ISLNK(work->mode))
		return 1;
	return copy_same_content(work_fd, name, orig_fd, name);
}

static int same_names(int work_fd, int orig_fd, const char *dir, const struct dirlist *names,
                      struct todo *todo)
{
	for (size_t i = 0; i < names->n; i++) {
		const char *name = names->v[i].name;
		cleanup_free char *path = NULL;
		struct fs_stat work, orig;
		int r;

		r = tree_join(dir, name, &path);
		if (r == 0)
			r = fs_stat_at(work_fd, name, 0, &work);
		if (r == 0)
			r = fs_stat_at(orig_fd, name, 0, &orig);
		if (r == 0)
			r = same_entry(work_fd, orig_fd, name, &work, &orig);
		if (r == 1 && S_ISDIR(work.mode))
			r = todo_add(todo, path, BASE_NO_DIR) < 0 ? -ENOMEM : 1;
		if (r != 1)
			return r;
	}
	return 1;
}

static int same_dir(const struct tree_compare *t, const char *path, struct todo *todo)
{
	cleanup_close int work_fd = FD_NONE;
	cleanup_close int orig_fd = FD_NONE;
	cleanup_dirlist struct dirlist work = DIRLIST_INIT;
	cleanup_dirlist struct dirlist orig = DIRLIST_INIT;
	int r;

	r = resolve_dir(t->work_fd, path, &work_fd);
	if (r == 0)
		r = resolve_dir(t->orig_fd, path, &orig_fd);
	if (r == 0)
		r = dirlist_read(work_fd, &work);
	if (r == 0)
		r = dirlist_read(orig_fd, &orig);
	if (r < 0)
		return r;
	if (work.n != orig.n)
		return 0;
	for (size_t i = 0; i < work.n; i++)
		if (strcmp(work.v[i].name, orig.v[i].name) != 0)
			return 0;
	return same_names(work_fd, orig_fd, path, &work, todo);
}

/* Both sides made the same. Whatever cannot be compared is not the same. */
static bool is_already(const struct tree_compare *t, const struct change *c,
                       const struct fs_stat *now)
{
	cleanup_close int work_fd = FD_NONE;
	cleanup_close int orig_fd = FD_NONE;
	struct todo todo = { 0 };
	const char *name;
	int r;

	if (resolve_parent(t->work_fd, c->path, &work_fd, &name) < 0 ||
	    resolve_parent(t->orig_fd, c->path, &orig_fd, &name) < 0)
		return false;
	r = same_entry(work_fd, orig_fd, name, &c->work, now);
	if (r == 1 && S_ISDIR(c->work.mode))
		r = todo_add(&todo, c->path, BASE_NO_DIR) < 0 ? 0 : 1;
	while (r == 1 && todo.n > 0) {
		char *path = todo.v[--todo.n].path;

		r = same_dir(t, path, &todo);
		free(path);
	}
	todo_done(&todo);
	return r == 1;
}

static bool is_already_attr(const struct tree_compare *t, const struct change *c,
                            const struct fs_stat *now)
{
	cleanup_close int work_fd = FD_NONE;
	cleanup_close int orig_fd = FD_NONE;

	return resolve_dir_path(t->work_fd, c->path, &work_fd) == 0 &&
	       resolve_dir_path(t->orig_fd, c->path, &orig_fd) == 0 &&
	       same_entry(work_fd, orig_fd, "", &c->work, now) == 1;
}

bool tree_already(int work_fd, int orig_fd, const struct change *c)
{
	struct tree_compare t = { .work_fd = work_fd, .orig_fd = orig_fd };
	struct fs_stat now;

	return look(orig_fd, c->path, &now) == 0 && now.mode && is_already(&t, c, &now);
}

static int conflict(char **ret_why, const char *why)
{
	*ret_why = xstrdup(why);
	return CONFLICT;
}

static bool has_place(int root_fd, const char *path)
{
	cleanup_close int fd = FD_NONE;
	const char *name;

	return !is_absent(resolve_parent(root_fd, path, &fd, &name));
}

static int judge_create(const struct tree_compare *t, const struct change *c,
                        const struct fs_stat *now, char **ret_why)
{
	if (now->mode == 0)
		return has_place(t->orig_fd, c->path) ? FREE
		                                      : conflict(ret_why, "its directory deleted");
	return is_already(t, c, now) ? ALREADY : conflict(ret_why, "created");
}

/* A directory deleted or replaced: with all that is below. */
static int judge_dir_goes(const struct tree_compare *t, struct change *c, const struct fs_stat *now,
                          char **ret_why, struct error *err)
{
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	cleanup_free char *path = NULL;
	struct base_entry e = { 0 };
	int r;

	if (!same_owner_and_mode(&c->base, now))
		return conflict(ret_why, "changed");
	/* The flags in C are those of all below, too. */
	r = c->base_flags & BASE_UNREADABLE ? base_lookup(t->base, c->path, &e, &blk, err) : 0;
	if (r < 0)
		return r;
	if (e.flags & BASE_UNREADABLE) /* it cannot be listed, now as then */
		return c->base.ctime_ns == now->ctime_ns ? FREE : conflict(ret_why, "changed");
	r = subtree_changed(t, c, &path, err);
	if (r == 0)
		usage_add_entry(&c->goes, now);
	if (r == 1)
		*ret_why = xasprintf("contains changes: %s", path);
	return r;
}

static int judge_goes(const struct tree_compare *t, struct change *c, struct fs_stat *now,
                      char **ret_why, struct error *err)
{
	bool is_same = fs_id_equal(c->base.id, now->id);

	if (now->mode == 0)
		return c->op == CHANGE_DELETE ? ALREADY : conflict(ret_why, "deleted");
	if (is_same && c->base_dir != BASE_NO_DIR)
		return judge_dir_goes(t, c, now, ret_why, err);
	if (is_as_left(t, c->path, &c->base, now))
		return FREE;
	if (c->op == CHANGE_REPLACE && is_already(t, c, now))
		return ALREADY;
	return conflict(ret_why, is_same ? "changed" : "replaced");
}

static int judge_attr(const struct tree_compare *t, const struct change *c,
                      const struct fs_stat *now, char **ret_why, struct error *err)
{
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	struct base_entry e;
	uint64_t xattrs = 0;
	int r;

	if (now->mode == 0)
		return conflict(ret_why, "deleted");
	if (!fs_id_equal(c->base.id, now->id))
		return conflict(ret_why, "replaced");
	if (same_owner_and_mode(&c->base, now)) {
		/* A change of the mode alone also writes all extended attributes. */
		if (c->base.ctime_ns == now->ctime_ns)
			return FREE;
		r = base_lookup(t->base, c->path, &e, &blk, err);
		if (r < 0)
			return r;
		r = r == 1 ? hash_xattrs(t, c->path, &xattrs) : -ENOENT;
		if (r < 0)
			return error_sys(err, r, "read the attributes of", c->path);
		if (xattrs == e.xattrs)
			return FREE;
	}
	return is_already_attr(t, c, now) ? ALREADY : conflict(ret_why, "changed");
}

int tree_conflict(const struct tree_compare *t, struct change *c, char **ret_why, struct error *err)
{
	struct fs_stat now;
	int r;

	r = look(t->orig_fd, c->path, &now);
	if (r < 0)
		return error_sys(err, r, "look at", c->path);
	switch (c->op) {
	case CHANGE_CREATE:
		return judge_create(t, c, &now, ret_why);
	case CHANGE_REPLACE:
	case CHANGE_DELETE:
		return judge_goes(t, c, &now, ret_why, err);
	case CHANGE_ATTR:
		return judge_attr(t, c, &now, ret_why, err);
	case CHANGE_OP_END_:
		break;
	}
	BUG("change of kind %d", (int)c->op);
}

int tree_conflict_dir(const struct tree_compare *t, const struct change_dir *d, char **ret_why,
                      struct error *err)
{
	struct fs_stat now;
	int r;

	r = look(t->orig_fd, d->path, &now);
	if (r < 0)
		return error_sys(err, r, "look at", d->path);
	if (now.mode == 0)
		return conflict(ret_why, "deleted");
	if (!S_ISDIR(now.mode) || !fs_id_equal(d->base.id, now.id))
		return conflict(ret_why, "replaced");
	return 0;
}
