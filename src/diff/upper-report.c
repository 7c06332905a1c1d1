/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An overlay's change set entry by entry, for people. A pair of entries, one on either side (or
 * none), is compared; for directories so are their names. One frame per level keeps the names
 * of that directory, and only those: an entry is looked at when its turn comes.
 */
#include "diff/upper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/git-program.h"
#include "diff/tree-impl.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/mem.h"

/* Levels whose directories are kept open; others are opened again on the way back. */
#define OPEN_LEVELS 64

struct item {
	const char *name;
	struct fs_stat base; /* mode 0: absent */
	struct fs_stat work;
};
struct side {
	int fd; /* FD_NONE: to be opened again, or there is nothing to be read */
	struct dirlist names;
	size_t i;
};
struct frame {
	char *path;
	struct side base, work;
};
struct report {
	const struct upper_compare *u;
	struct tree_owner owner;
	tree_entry_fn fn;
	upper_base_fn base_fn; /* NULL: nobody asks */
	void *ctx;
	unsigned extra; /* what the caller said of the whole change; for the first entry told */
	struct frame *stack;
	size_t depth, cap;
};

static void frame_close(struct frame *f)
{
	close_fd(&f->base.fd);
	close_fd(&f->work.fd);
}

static void frame_done(struct frame *f)
{
	frame_close(f);
	dirlist_done(&f->base.names);
	dirlist_done(&f->work.names);
	free(f->path);
}

/* ---- one directory's names ---- */

static int side_open(struct side *s, int root_fd, const char *path, bool wanted, bool strict)
{
	int r = wanted ? resolve_dir(root_fd, path, &s->fd) : 0;

	/* A directory nobody may read has names nobody can list. */
	if ((r == -EACCES && !strict) || (r == 0 && !wanted))
		return 0;
	return r < 0 ? r : dirlist_read(s->fd, &s->names);
}

static int side_stat(struct side *s, int root_fd, const char *path, const struct item *it,
                     unsigned want, struct fs_stat *ret)
{
	int r = s->fd == FD_NONE ? resolve_dir(root_fd, path, &s->fd) : 0;

	if (r >= 0)
		r = fs_stat_at(s->fd, it->name, want, ret);
	if (r == -ENOENT)
		*ret = (struct fs_stat){ 0 };
	return r == -ENOENT ? 0 : r;
}

/* The next name of either side, and what is there. 1, 0 at the end. */
static int next_name(struct report *rep, struct frame *f, struct item *it)
{
	struct side *b = &f->base, *w = &f->work;
	const char *bn = b->i < b->names.n ? b->names.v[b->i].name : NULL;
	const char *wn = w->i < w->names.n ? w->names.v[w->i].name : NULL;
	int c = !bn ? 1 : !wn ? -1 : strcmp(bn, wn), r = 0;
	/* Identities matter to a comparison only. */
	unsigned want = c == 0 ? FS_STAT_ID : 0;

	if (!bn && !wn)
		return 0;
	*it = (struct item){ .name = c <= 0 ? bn : wn };
	if (c <= 0)
		r = side_stat(b, rep->u->orig_fd, f->path, it, want, &it->base);
	if (r >= 0 && c >= 0)
		r = side_stat(w, rep->u->upper_fd, f->path, it, want, &it->work);
	if (r >= 0 && overlay_is_whiteout(&it->work))
		it->work = (struct fs_stat){ 0 };
	b->i += c <= 0;
	w->i += c >= 0;
	return r < 0 ? r : 1;
}

/* The next entry to be told of, with its path. 1, 0 at the end. */
static int next_entry(struct report *rep, struct frame *f, struct item *it, char **ret_path)
{
	int r;

	while ((r = next_name(rep, f, it)) > 0) {
		cleanup_free char *path = NULL;

		r = tree_join(f->path, it->name, &path);
		if (r >= 0 && it->base.mode && rep->base_fn)
			r = rep->base_fn(rep->ctx, f->base.fd, it->name, path, &it->base);
		if (r < 0)
			return r;
		if ((!it->base.mode && !it->work.mode) || tree_excluded(rep->u->excludes, path))
			continue;
		*ret_path = take_ptr(path);
		return 1;
	}
	return r;
}

/* Compares what both sides have below PATH, whichever are directories. */
static int push(struct report *rep, const char *path, bool base_dir, bool work_dir)
{
	struct frame f = { .path = xstrdup(path), .base.fd = FD_NONE, .work.fd = FD_NONE };
	int r = side_open(&f.base, rep->u->orig_fd, path, base_dir, rep->base_fn != NULL);

	if (r >= 0)
		r = side_open(&f.work, rep->u->upper_fd, path, work_dir, rep->base_fn != NULL);
	if (r >= 0)
		r = grow((void **)&rep->stack, &rep->cap, rep->depth + 1, sizeof(*rep->stack));
	if (r < 0) {
		frame_done(&f);
		return r;
	}
	if (rep->depth >= OPEN_LEVELS)
		frame_close(&rep->stack[rep->depth - OPEN_LEVELS]);
	rep->stack[rep->depth++] = f;
	return 0;
}

/* ---- one pair ---- */

static int compare_dirs(struct report *rep, int base_fd, int work_fd, const char *name,
                        const struct item *it, unsigned *ret_what)
{
	struct base_entry e = { .name = name, .src = it->base, .dir = 0 };
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	int r = xattrs_read_at(base_fd, name, &x);

	e.xattrs = xattrs_hash(&x);
	return r < 0 ? r : tree_compare_dir(&rep->owner, work_fd, name, &e, &it->work, ret_what);
}

/* What changed between two entries of one kind. */
static int compare_pair(struct report *rep, const char *path, const struct item *it,
                        unsigned *ret_what)
{
	cleanup_close int base_fd = FD_NONE, work_fd = FD_NONE;
	const char *name;
	int r = resolve_parent(rep->u->orig_fd, path, &base_fd, &name);

	if (r >= 0)
		r = resolve_parent(rep->u->upper_fd, path, &work_fd, &name);
	if (r < 0)
		return r;
	if (S_ISDIR(it->work.mode))
		return compare_dirs(rep, base_fd, work_fd, name, it, ret_what);
	struct tree_pair pair = { &rep->owner, work_fd, base_fd, path };
	struct base_entry e = { .name = name, .src = it->base, .dir = BASE_NO_DIR };
	return tree_compare_entry(&pair, &e, &it->work, ret_what);
}

static int read_new(struct report *rep, const char *path, const struct item *it, unsigned *what,
                    char **ret_target)
{
	cleanup_close int fd = FD_NONE;
	unsigned flags = 0;
	const char *name;
	int r;

	if (!it->work.mode || S_ISDIR(it->work.mode))
		return 0;
	r = resolve_parent(rep->u->upper_fd, path, &fd, &name);
	if (r >= 0)
		r = tree_entry_flags(&(struct tree_new){ fd, name, path, &it->work, it->base.mode },
		                     &flags);
	if (r >= 0 && S_ISLNK(it->work.mode))
		r = tree_read_link(fd, name, ret_target);
	*what |= flags;
	return r;
}

static int say_pair(struct report *rep, const char *path, const struct item *it, bool *ret_enter)
{
	bool same_type = (it->base.mode & S_IFMT) == (it->work.mode & S_IFMT);
	enum atoll_change_kind kind = !it->base.mode   ? ATOLL_CHANGE_ADDED
	                              : !it->work.mode ? ATOLL_CHANGE_DELETED
	                                               : ATOLL_CHANGE_CHANGED;
	cleanup_free char *target = NULL;
	unsigned what = 0;
	int r = 0;

	*ret_enter = S_ISDIR(it->base.mode) || S_ISDIR(it->work.mode);
	if (kind == ATOLL_CHANGE_CHANGED && same_type) {
		r = compare_pair(rep, path, it, &what);
		if (r < 0 || !what)
			return r;
		if (S_ISLNK(it->work.mode))
			r = read_new(rep, path, it, &(unsigned){ 0 }, &target);
	} else if (kind != ATOLL_CHANGE_DELETED) {
		what = kind == ATOLL_CHANGE_CHANGED ? ATOLL_CHANGE_TYPE : 0;
		r = read_new(rep, path, it, &what, &target);
	}
	if (r < 0)
		return r;
	what = (what | rep->extra) & ~CHANGE_GIT_NAMED;
	rep->extra = 0;
	return rep->fn(rep->ctx, path, kind, what, it->base.mode ? &it->base : NULL,
	               it->work.mode ? &it->work : NULL, target);
}

static int run(struct report *rep, const char *path, const struct item *top)
{
	bool enter = false;
	int r = say_pair(rep, path, top, &enter);

	if (r >= 0 && enter)
		r = push(rep, path, S_ISDIR(top->base.mode), S_ISDIR(top->work.mode));
	while (r >= 0 && rep->depth) {
		struct frame *f = &rep->stack[rep->depth - 1];
		cleanup_free char *below = NULL;
		struct item it;

		r = next_entry(rep, f, &it, &below);
		if (r == 0) {
			frame_done(f);
			rep->depth--;
		}
		if (r <= 0)
			continue;
		r = say_pair(rep, below, &it, &enter);
		if (r >= 0 && enter)
			r = push(rep, below, S_ISDIR(it.base.mode), S_ISDIR(it.work.mode));
	}
	while (rep->depth)
		frame_done(&rep->stack[--rep->depth]);
	return r;
}

/* Files, links and the like were compared when the change was found. */
static int say_alone(struct report *rep, const struct change *c)
{
	static const enum atoll_change_kind kinds[] = {
		[CHANGE_CREATE] = ATOLL_CHANGE_ADDED,
		[CHANGE_REPLACE] = ATOLL_CHANGE_CHANGED,
		[CHANGE_DELETE] = ATOLL_CHANGE_DELETED,
		[CHANGE_ATTR] = ATOLL_CHANGE_CHANGED,
	};
	struct item it = { .base = c->base, .work = c->work };
	cleanup_free char *target = NULL;
	int r = S_ISLNK(c->work.mode) ? read_new(rep, c->path, &it, &(unsigned){ 0 }, &target) : 0;

	if (r < 0)
		return r;
	return rep->fn(rep->ctx, c->path, kinds[c->op], c->what & ~CHANGE_GIT_NAMED,
	               c->base.mode ? &c->base : NULL, c->work.mode ? &c->work : NULL, target);
}

static int expand(struct report *rep, const struct change *c)
{
	bool has_dir = S_ISDIR(c->base.mode) || S_ISDIR(c->work.mode);
	struct item top = { .base = c->base, .work = c->work };
	int r = 0;

	if (c->op == CHANGE_ATTR || !has_dir)
		return say_alone(rep, c);
	if (!rep->owner.groups)
		r = tree_owner_init(&rep->owner);
	rep->extra = c->what & ATOLL_CHANGE_CONFLICT;
	return r < 0 ? r : run(rep, c->path, &top);
}

static void report_done(struct report *rep)
{
	free(rep->stack);
	tree_owner_done(&rep->owner);
}

int upper_expand_one(const struct upper_compare *u, const struct change *c, tree_entry_fn fn,
                     void *ctx)
{
	struct report rep = { .u = u, .fn = fn, .ctx = ctx };
	int r = expand(&rep, c);

	report_done(&rep);
	return r;
}

static int show_top(const struct upper_compare *u, const struct change *c, upper_base_fn base_fn,
                    void *ctx)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r = c->base.mode ? resolve_parent(u->orig_fd, c->path, &fd, &name) : 0;

	return r < 0 || !c->base.mode ? r : base_fn(ctx, fd, name, c->path, &c->base);
}

int upper_expand_base(const struct upper_compare *u, const struct change *c, tree_entry_fn fn,
                      upper_base_fn base_fn, void *ctx)
{
	struct report rep = { .u = u, .fn = fn, .base_fn = base_fn, .ctx = ctx };
	int r = show_top(u, c, base_fn, ctx);

	if (r >= 0)
		r = expand(&rep, c);
	report_done(&rep);
	return r < 0 ? r : 0;
}

int upper_expand(const struct upper_compare *u, const struct changeset *cs, tree_entry_fn fn,
                 void *ctx, struct error *err)
{
	struct report rep = { .u = u, .fn = fn, .ctx = ctx };
	int r = 0;

	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r >= 0)
			r = expand(&rep, &c);
		if (r < 0 && err && !err->code)
			(void)error_sys(err, r, "list", c.path && *c.path ? c.path : ".");
	}
	report_done(&rep);
	return r < 0 ? r : 0;
}
