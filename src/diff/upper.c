/* SPDX-License-Identifier: Apache-2.0 */
/* Walking an upper directory. */
#include "diff/upper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/tree-impl.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/progress.h"

/* Directories kept open on the way down; deeper ones are opened again on the way back. */
#define OPEN_MAX_DEPTH 64

/* One merged directory at hand, and how far we are in it. */
struct merged {
	char *path;
	int upper_fd; /* FD_NONE: to be opened again */
	int orig_fd;
	struct dirlist names;
	size_t next;
	struct fs_stat base, work;
	bool is_touched; /* one of its own entries changes */
};

struct walker {
	const struct upper_compare *u;
	struct tree_owner owner;
	upper_change_fn change_fn; /* NULL: only merged directories are wanted */
	struct changeset *dirs;    /* takes those that hold changes; NULL: nobody wants them */
	upper_dir_fn dir_fn;
	void *ctx;
	struct merged *stack; /* from the root to where we are */
	size_t depth, cap;
	struct error *err;
};

static int fail(struct walker *w, int r, const char *op, const char *path)
{
	if (w->err && w->err->code)
		return r;
	return error_sys(w->err, r, op, *path ? path : ".");
}

/* Of what is in the upper layer. A command may lock what is its own; opening it here would undo that
 * behind its back. */
static int fail_upper(struct walker *w, int r, const char *op, const char *path)
{
	if (r != -EACCES || (w->err && w->err->code))
		return fail(w, r, op, path);
	(void)error_set(w->err, r, "cannot %s '%s': its mode keeps its owner out", op,
	                *path ? path : ".");
	error_cause(w->err, op, path, EACCES, NULL);
	if (w->u->root && w->u->plan)
		error_hint(w->err,
		           "atoll exec %s -- chmod u+rwX '%s%s%s' opens it; atoll discard %s drops "
		           "the work",
		           w->u->plan, w->u->root, *path ? "/" : "", path, w->u->plan);
	return r;
}

/* C: op, what, and the entries where they are known to be more than one. */
static int add(struct walker *w, struct merged *m, const char *path, struct change *c,
               const struct fs_stat *base, const struct fs_stat *work)
{
	int r;

	c->base_dir = BASE_NO_DIR;
	if (base)
		c->base = *base;
	if (work)
		c->work = *work;
	if (!change_is_tree(c))
		c->entries = 1;
	c->counted = c->entries > 0;
	if (c->op != CHANGE_ATTR)
		m->is_touched = true;
	c->path = xstrdup(path);
	r = w->change_fn(w->ctx, c);
	free(c->path);
	return r < 0 ? fail(w, r, "compare", path) : 0;
}

struct scan {
	unsigned what;
	uint64_t entries;
};

static int scan_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct scan *s = ctx;
	unsigned flags = 0;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)type;
	if (r == 0 && !overlay_is_whiteout(&st)) {
		s->entries++;
		r = tree_entry_flags(&(struct tree_new){ dir_fd, name, path, &st, 0 }, &flags);
	}
	s->what |= flags;
	return r == -ENOENT ? 0 : r;
}

/* A directory that is not merged: new, or in the place of something else. */
static int whole_dir(struct walker *w, struct merged *m, const char *path,
                     const struct fs_stat *base, const struct fs_stat *work)
{
	struct scan s = { 0 };
	struct change c = { .op = base ? CHANGE_REPLACE : CHANGE_CREATE };
	bool replaces_dir = base && S_ISDIR(base->mode);
	int r = walk_tree(w->u->upper_fd, path, scan_entry, NULL, &s);

	if (r < 0)
		return fail_upper(w, r, "look below", path);
	c.what = s.what;
	if (base)
		c.what |= replaces_dir ? ATOLL_CHANGE_CONTENT : ATOLL_CHANGE_TYPE;
	/* What it shares with the one below is not told, and is not known yet. */
	c.entries = replaces_dir ? 0 : s.entries;
	return add(w, m, path, &c, base, work);
}

/* Attributes of a merged directory itself. NAME "" : the roots. */
static int merged_attrs(struct walker *w, struct merged *m, int upper_fd, int orig_fd,
                        const char *name, const char *path, const struct fs_stat *base,
                        const struct fs_stat *work)
{
	struct base_entry e = { .name = name, .src = *base, .dir = 0 };
	struct change c = { .op = CHANGE_ATTR };
	int r;

	if (!w->change_fn)
		return 0;
	r = xattrs_hash_at(orig_fd, name, &e.xattrs);
	if (r == 0)
		r = tree_compare_dir(&w->owner, upper_fd, name, &e, work, &c.what);
	if (r < 0)
		return fail(w, r, "read the attributes of", path);
	return c.what ? add(w, m, path, &c, base, work) : 0;
}

/* ---- the way down and back ---- */

static void merged_done(struct merged *m)
{
	close_fd(&m->upper_fd);
	close_fd(&m->orig_fd);
	dirlist_done(&m->names);
	free(m->path);
}

static int merged_open(struct walker *w, struct merged *m)
{
	int r = resolve_dir(w->u->upper_fd, m->path, &m->upper_fd);

	if (r < 0)
		return fail_upper(w, r, "read", m->path);
	r = resolve_dir_path(w->u->orig_fd, m->path, &m->orig_fd);
	return r < 0 ? fail(w, r, "read", m->path) : 0;
}

/* PATH is entered next. */
static int push(struct walker *w, const char *path)
{
	struct merged m = { .path = xstrdup(path), .upper_fd = FD_NONE, .orig_fd = FD_NONE };
	int r = merged_open(w, &m);

	if (r == 0)
		r = fs_stat_at(m.upper_fd, "", FS_STAT_ID, &m.work);
	if (r == 0)
		r = fs_stat_at(m.orig_fd, "", FS_STAT_ID, &m.base);
	if (r == 0)
		r = dirlist_read_fresh(m.upper_fd, &m.names);
	if (r == 0)
		r = grow((void **)&w->stack, &w->cap, w->depth + 1, sizeof(*w->stack));
	if (r < 0) {
		r = fail(w, r, "read", path);
		merged_done(&m);
		return r;
	}
	if (w->depth > OPEN_MAX_DEPTH) {
		close_fd(&w->stack[w->depth - 1].upper_fd);
		close_fd(&w->stack[w->depth - 1].orig_fd);
	}
	w->stack[w->depth++] = m;
	return w->dir_fn ? w->dir_fn(w->ctx, path, &m.base) : 0;
}

/* ---- one entry ---- */

static int visit_dir(struct walker *w, struct merged *m, const char *name, const char *path,
                     const struct fs_stat *base, const struct fs_stat *work)
{
	int opaque = overlay_is_opaque(m->upper_fd, name, w->u->marks);
	int r;

	if (opaque < 0)
		return fail_upper(w, opaque, "read the marks of", path);
	if (!base || !S_ISDIR(base->mode) || opaque)
		return w->change_fn ? whole_dir(w, m, path, base, work) : 0;
	r = merged_attrs(w, m, m->upper_fd, m->orig_fd, name, path, base, work);
	return r < 0 ? r : push(w, path);
}

static int visit_other(struct walker *w, struct merged *m, const char *name, const char *path,
                       const struct fs_stat *base, const struct fs_stat *work)
{
	struct tree_pair pair = { &w->owner, m->upper_fd, m->orig_fd, path };
	struct base_entry e = { .name = name, .dir = BASE_NO_DIR };
	struct change c = { .op = base ? CHANGE_REPLACE : CHANGE_CREATE };
	int r;

	if (!base || (base->mode & S_IFMT) != (work->mode & S_IFMT)) {
		r = tree_entry_flags(&(struct tree_new){ m->upper_fd, name, path, work, 0 },
		                     &c.what);
		if (r < 0)
			return fail(w, r, "look at", path);
		if (base)
			c.what |= ATOLL_CHANGE_TYPE;
		return add(w, m, path, &c, base, work);
	}
	e.src = *base;
	r = tree_compare_entry(&pair, &e, work, &c.what);
	if (r < 0)
		return fail(w, r, "compare", path);
	return c.what ? add(w, m, path, &c, base, work) : 0;
}

static int visit(struct walker *w, struct merged *m, const char *name)
{
	struct fs_stat base_st, work;
	const struct fs_stat *base = NULL;
	cleanup_free char *path = NULL;
	int r = tree_join(m->path, name, &path);

	if (r < 0)
		return fail_upper(w, r, "look below", m->path);
	if (tree_excluded(w->u->excludes, path))
		return 0;
	r = fs_stat_at(m->upper_fd, name, FS_STAT_ID, &work);
	if (r == -ENOENT)
		return 0;
	if (r == 0) {
		r = fs_stat_at(m->orig_fd, name, FS_STAT_ID, &base_st);
		base = r == 0 ? &base_st : NULL;
		r = r == -ENOENT ? 0 : r;
	}
	if (r < 0)
		return fail(w, r, "look at", path);
	if (S_ISDIR(work.mode))
		return visit_dir(w, m, name, path, base, &work);
	if (!w->change_fn)
		return 0;
	if (overlay_is_whiteout(&work))
		return base ? add(w, m, path, &(struct change){ .op = CHANGE_DELETE }, base, NULL)
		            : 0;
	return visit_other(w, m, name, path, base, &work);
}

/* Times: after its entries changed, or when a command changed them and back again. */
static int note_dir(struct walker *w, const struct merged *m)
{
	struct change_dir d = { .base = m->base, .work_mtime_ns = m->work.mtime_ns };
	int r;

	if (!w->dirs || (!m->is_touched && m->work.mtime_ns == m->base.mtime_ns))
		return 0;
	d.path = xstrdup(m->path);
	r = changeset_add_dir(w->dirs, &d);
	return r < 0 ? fail(w, r, "compare", m->path) : 0;
}

/* The next name of the deepest directory, or the way out of it. */
static int step(struct walker *w)
{
	struct merged *m = &w->stack[w->depth - 1];
	int r = 0;

	if (m->next == m->names.n) {
		r = note_dir(w, m);
		merged_done(m);
		w->depth--;
		return r;
	}
	if (m->upper_fd == FD_NONE)
		r = merged_open(w, m);
	return r < 0 ? r : visit(w, m, m->names.v[m->next++].name);
}

/* In the order of path_compare(): a directory, all below it, the next name. */
static int walk(struct walker *w)
{
	int r = tree_owner_init(&w->owner);

	if (r < 0)
		return fail(w, r, "look up", "our groups");
	r = push(w, "");
	if (r >= 0)
		r = merged_attrs(w, w->stack, w->stack->upper_fd, w->stack->orig_fd, "", "",
		                 &w->stack->base, &w->stack->work);
	while (w->depth && r >= 0) {
		r = progress_check_look();
		r = r < 0 ? fail(w, r, "compare", "") : step(w);
	}
	while (w->depth)
		merged_done(&w->stack[--w->depth]);
	free(w->stack);
	tree_owner_done(&w->owner);
	return r < 0 ? r : 0;
}

static int collect(void *ctx, struct change *c)
{
	int r = changeset_add(ctx, c);

	c->path = NULL;
	return r;
}

int upper_diff(const struct upper_compare *u, struct changeset *cs, struct error *err)
{
	struct walker w = { .u = u, .change_fn = collect, .ctx = cs, .dirs = cs, .err = err };
	int r = walk(&w);

	if (r >= 0) {
		r = changeset_sort(cs);
		if (r < 0)
			r = error_sys(err, r, "sort", "the changes");
	}
	return r;
}

int upper_each(const struct upper_compare *u, upper_change_fn fn, void *ctx, struct error *err)
{
	struct walker w = { .u = u, .change_fn = fn, .ctx = ctx, .err = err };

	return walk(&w);
}

int upper_merged(const struct upper_compare *u, upper_dir_fn fn, void *ctx, struct error *err)
{
	struct walker w = { .u = u, .dir_fn = fn, .ctx = ctx, .err = err };

	return walk(&w);
}
