/* SPDX-License-Identifier: Apache-2.0 */
/* A change set entry by entry, for people. */
#include "diff/tree.h"

#include "diff/tree-impl.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define FLAG_BITS (ATOLL_CHANGE_ESCAPING_LINK | ATOLL_CHANGE_SETUID | ATOLL_CHANGE_SPECIAL)

struct expansion {
	const struct tree_compare *t;
	const struct change *c;
	tree_entry_fn fn;
	void *ctx;
	int answer; /* of FN, when it ended the listing */
};

static int say(struct expansion *x, const char *path, enum atoll_change_kind kind, unsigned what,
               const struct fs_stat *old_stat, const struct fs_stat *new_stat, const char *target)
{
	int r = x->fn(x->ctx, path, kind, what, old_stat, new_stat, target);

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
	if (strcmp(path, x->c->path) == 0)
		return 0;
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == 0)
		r = tree_entry_flags(dir_fd, name, path, &st, 0, &what);
	if (r == 0 && S_ISLNK(st.mode))
		r = tree_read_link(dir_fd, name, &target);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : say(x, path, ATOLL_CHANGE_ADDED, what, NULL, &st, target);
}

static int expand(struct expansion *x, struct error *err)
{
	const struct change *c = x->c;
	int r;

	r = say_change(x);
	if (r < 0 || c->op == CHANGE_ATTR)
		return r;
	if (S_ISDIR(c->base.mode) && c->base_dir != BASE_NO_DIR) {
		r = tree_base_walk(x->t->base, c->path, c->base_dir, say_deleted, x, err);
		if (r < 0)
			return r;
	}
	if (!S_ISDIR(c->work.mode))
		return 0;
	r = walk_tree(x->t->work_fd, c->path, say_added, NULL, x);
	return r < 0 && x->answer == 0 ? error_sys(err, r, "list", c->path) : r;
}

int tree_expand(const struct tree_compare *t, const struct changeset *cs, tree_entry_fn fn,
                void *ctx, struct error *err)
{
	for (size_t i = 0; i < cs->n; i++) {
		struct expansion x = { .t = t, .c = &cs->v[i], .fn = fn, .ctx = ctx };
		int r = expand(&x, err);

		if (r < 0)
			return r;
	}
	return 0;
}
