/* SPDX-License-Identifier: Apache-2.0 */
/* A change set entry by entry, for people. */
#include "diff/tree.h"

#include "diff/git-program.h"
#include "diff/tree-impl.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FLAG_BITS \
	(ATOLL_CHANGE_ESCAPING_LINK | ATOLL_CHANGE_SETUID | ATOLL_CHANGE_SPECIAL | CHANGE_GIT_NAMED)

/* A directory in the place of another: the base's block and the workspace's names, side by side. */
struct replaced {
	char *path;
	struct base_block blk;
	struct dirlist names;
	size_t i, j;
};

struct expansion {
	const struct tree_compare *t;
	const struct change *c;
	tree_entry_fn fn;
	void *ctx;
	const char *told;        /* at this path; a walk that begins with it goes on */
	unsigned extra;          /* what the caller said of the whole change; for the first entry */
	struct tree_owner owner; /* and what follows: only for a replaced directory */
	struct replaced *stack;
	size_t depth, cap;
	int answer; /* of FN, when it ended the listing */
};

static int say(struct expansion *x, const char *path, enum atoll_change_kind kind, unsigned what,
               const struct fs_stat *old_stat, const struct fs_stat *new_stat, const char *target)
{
	int r = x->fn(x->ctx, path, kind, (what | x->extra) & ~CHANGE_GIT_NAMED, old_stat, new_stat,
	              target);

	x->extra = 0;
	if (r < 0)
		x->answer = r;
	return r < 0 ? r : 0;
}

/* Where the link at PATH of the workspace points, NULL when it is none (any more). */
static char *target_of(const struct expansion *x, const char *path)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	char *target = NULL;

	if (resolve_parent(x->t->work_fd, path, &fd, &name) < 0 ||
	    tree_read_link(fd, name, &target) < 0)
		return NULL;
	return target;
}

static int say_change(struct expansion *x)
{
	static const enum atoll_change_kind kinds[] = {
		[CHANGE_CREATE] = ATOLL_CHANGE_ADDED,
		[CHANGE_REPLACE] = ATOLL_CHANGE_CHANGED,
		[CHANGE_DELETE] = ATOLL_CHANGE_DELETED,
		[CHANGE_ATTR] = ATOLL_CHANGE_CHANGED,
	};
	const struct change *c = x->c;
	cleanup_free char *target = S_ISLNK(c->work.mode) ? target_of(x, c->path) : NULL;
	unsigned what = c->what;

	/* Those of a directory are those of what is inside. */
	if (S_ISDIR(c->work.mode))
		what &= ~FLAG_BITS;
	return say(x, c->path, kinds[c->op], what, c->base.mode ? &c->base : NULL,
	           c->work.mode ? &c->work : NULL, target);
}

/* What an entry that is no directory must be named for, in the place of one of another type. */
static int new_flags(const struct expansion *x, const char *path, const struct fs_stat *work,
                     unsigned *what)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	unsigned flags = 0;
	int r = resolve_parent(x->t->work_fd, path, &fd, &name);

	if (r >= 0)
		r = tree_entry_flags(&(struct tree_new){ fd, name, path, work, 0 }, &flags);
	*what |= flags;
	return r;
}

static int say_deleted(void *ctx, const char *path, const struct base_entry *e)
{
	return say(ctx, path, ATOLL_CHANGE_DELETED, 0, &e->src, NULL, NULL);
}

static int say_added(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct expansion *x = ctx;
	cleanup_free char *target = NULL;
	struct fs_stat st;
	unsigned what;
	int r;

	(void)type;
	if (x->told && strcmp(path, x->told) == 0)
		return 0;
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == 0)
		r = tree_entry_flags(&(struct tree_new){ dir_fd, name, path, &st, 0 }, &what);
	if (r == 0 && S_ISLNK(st.mode))
		r = tree_read_link(dir_fd, name, &target);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : say(x, path, ATOLL_CHANGE_ADDED, what, NULL, &st, target);
}

/* All that went with PATH, then all that came with it. TOLD: PATH itself was said. */
static int say_below(struct expansion *x, const char *path, uint32_t base_dir, bool comes,
                     bool told, struct error *err)
{
	int r = 0;

	if (base_dir != BASE_NO_DIR)
		r = tree_base_walk(x->t->base, path, base_dir, say_deleted, x, err);
	if (r < 0 || !comes)
		return r;
	x->told = told ? path : NULL;
	r = walk_tree(x->t->work_fd, path, say_added, NULL, x);
	return r < 0 && x->answer == 0 ? error_sys(err, r, "list", path) : r;
}

/* ---- a directory in the place of another ---- */

static int push(struct expansion *x, const char *path, uint32_t dir, struct error *err)
{
	struct replaced f = { .path = xstrdup(path) };
	cleanup_close int fd = FD_NONE;
	int r = base_read(x->t->base, dir, &f.blk, err);

	if (r >= 0) {
		r = resolve_dir(x->t->work_fd, path, &fd);
		if (r >= 0)
			r = dirlist_read(fd, &f.names);
		if (r >= 0)
			r = grow((void **)&x->stack, &x->cap, x->depth + 1, sizeof(*x->stack));
		if (r < 0)
			r = error_sys(err, r, "list", path);
	}
	if (r < 0) {
		base_block_done(&f.blk);
		dirlist_done(&f.names);
		free(f.path);
		return r;
	}
	x->stack[x->depth++] = f;
	return 0;
}

static void pop(struct expansion *x)
{
	struct replaced *f = &x->stack[--x->depth];

	base_block_done(&f->blk);
	dirlist_done(&f->names);
	free(f->path);
}

static int compare(struct expansion *x, const char *path, const struct base_entry *e,
                   const struct fs_stat *work, unsigned *ret_what)
{
	cleanup_close int work_fd = FD_NONE, orig_fd = FD_NONE;
	const char *name;
	int r = resolve_parent(x->t->work_fd, path, &work_fd, &name);

	if (r < 0)
		return r;
	if (S_ISDIR(work->mode))
		return tree_compare_dir(&x->owner, work_fd, name, e, work, ret_what);
	if (resolve_parent(x->t->orig_fd, path, &orig_fd, &name) < 0)
		orig_fd = FD_NONE;
	return tree_compare_entry(&(struct tree_pair){ .owner = &x->owner,
	                                               .work_fd = work_fd,
	                                               .orig_fd = orig_fd,
	                                               .path = path },
	                          e, work, ret_what);
}

/* An entry that both have. 1: both are directories, to be entered. */
static int say_pair(struct expansion *x, const char *path, const struct base_entry *e,
                    const struct fs_stat *work, struct error *err)
{
	cleanup_free char *target = S_ISLNK(work->mode) ? target_of(x, path) : NULL;
	bool same_type = ((e->src.mode ^ work->mode) & S_IFMT) == 0;
	unsigned what = ATOLL_CHANGE_TYPE;
	int r = 0;

	if (same_type)
		r = compare(x, path, e, work, &what);
	else if (!S_ISDIR(work->mode))
		r = new_flags(x, path, work, &what);
	if (r < 0)
		return error_sys(err, r, "compare", path);
	if (what)
		r = say(x, path, ATOLL_CHANGE_CHANGED, what, &e->src, work, target);
	if (r < 0 || same_type)
		return r < 0 ? r : S_ISDIR(work->mode);
	return say_below(x, path, e->dir, S_ISDIR(work->mode), true, err);
}

static int say_name(struct expansion *x, const char *path, const struct base_entry *e, bool there,
                    struct error *err)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_stat work;
	int r = there ? resolve_parent(x->t->work_fd, path, &fd, &name) : -ENOENT;

	if (tree_excluded(x->t->excludes, path))
		return 0;
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &work);
	if (r < 0 && r != -ENOENT)
		return error_sys(err, r, "look at", path);
	if (r >= 0 && !e)
		return say_below(x, path, BASE_NO_DIR, true, false, err);
	if (r >= 0) {
		r = say_pair(x, path, e, &work, err);
		return r == 1 ? push(x, path, e->dir, err) : r;
	}
	if (!e)
		return 0;
	r = say_deleted(x, path, e);
	return r < 0 ? r : say_below(x, path, e->dir, false, true, err);
}

static int step(struct expansion *x, struct error *err)
{
	struct replaced *f = &x->stack[x->depth - 1];
	const struct base_entry *e = NULL;
	const char *name = f->j < f->names.n ? f->names.v[f->j].name : NULL;
	cleanup_free char *path = NULL;
	int order, r = f->i < f->blk.n ? base_block_at(&f->blk, f->i, &e) : 0;

	if (r < 0)
		return error_sys(err, r, "read", "base record");
	if (!e && !name) {
		pop(x);
		return 0;
	}
	order = !name ? -1 : !e ? 1 : strcmp(e->name, name);
	f->i += order <= 0;
	f->j += order >= 0;
	r = tree_join(f->path, order <= 0 ? e->name : name, &path);
	return r < 0 ? error_sys(err, r, "list", f->path)
	             : say_name(x, path, order <= 0 ? e : NULL, order >= 0, err);
}

/* Entry by entry, as what is new, changed and gone. */
static int expand_replaced(struct expansion *x, struct error *err)
{
	const struct change *c = x->c;
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	struct base_entry e;
	int r = tree_owner_init(&x->owner);

	if (r < 0)
		return error_sys(err, r, "read the groups of", "this process");
	x->extra = c->what & ATOLL_CHANGE_CONFLICT;
	r = base_lookup(x->t->base, c->path, &e, &blk, err);
	if (r == 0)
		r = error_set(err, -ATOLL_E_DAMAGED, "no record of the base of '%s'", c->path);
	if (r == 1)
		r = say_pair(x, c->path, &e, &c->work, err);
	if (r == 1)
		r = push(x, c->path, c->base_dir, err);
	while (r >= 0 && x->depth)
		r = step(x, err);
	while (x->depth)
		pop(x);
	free(x->stack);
	tree_owner_done(&x->owner);
	return r;
}

static int expand(struct expansion *x, struct error *err)
{
	const struct change *c = x->c;
	bool was_dir = S_ISDIR(c->base.mode) && c->base_dir != BASE_NO_DIR;
	int r;

	if (c->op == CHANGE_REPLACE && was_dir && S_ISDIR(c->work.mode))
		return expand_replaced(x, err);
	r = say_change(x);
	if (r < 0 || c->op == CHANGE_ATTR)
		return r;
	return say_below(x, c->path, was_dir ? c->base_dir : BASE_NO_DIR, S_ISDIR(c->work.mode),
	                 true, err);
}

int tree_expand_one(const struct tree_compare *t, const struct change *c, tree_entry_fn fn,
                    void *ctx, struct error *err)
{
	struct expansion x = { .t = t, .c = c, .fn = fn, .ctx = ctx };

	return expand(&x, err);
}

int tree_expand(const struct tree_compare *t, const struct changeset *cs, tree_entry_fn fn,
                void *ctx, struct error *err)
{
	for (size_t i = 0; i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		int r = changeset_get(&cs->v, i, &c);

		r = r < 0 ? error_sys(err, r, "read again", "a change")
		          : tree_expand_one(t, &c, fn, ctx, err);
		if (r < 0)
			return r;
	}
	return 0;
}
