/* SPDX-License-Identifier: Apache-2.0 */
/* What the workspace changed in `.git` besides what git keeps there for itself. */
#include "strategy/git.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "diff/upper.h"
#include "util/cleanup.h"

/* What git keeps for itself; what else there is in `.git` is somebody's. */
static const char *const internal[] = {
	"objects",     "refs",       "logs",       "index",          "HEAD",
	"packed-refs", "ORIG_HEAD",  "FETCH_HEAD", "COMMIT_EDITMSG", "MERGE_MSG",
	"MERGE_RR",    "rr-cache",   "gc.log",     "gc.pid",         "info/refs",
	"SQUASH_MSG",  "index.lock", "AUTO_MERGE", "MERGE_MODE",     WORKTREE_OBJECTS
};

struct others {
	tree_entry_fn fn;
	void *ctx;
	const struct upper_compare *u;
};

static int pass(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                const char *link_target)
{
	const struct others *o = ctx;

	if (!*path || strncmp(path, "sharedindex.", 12) == 0 || strategy_is_area(path))
		return 0;
	return o->fn(o->ctx, path, kind, what, old_stat, new_stat, link_target);
}

static int pass_change(void *ctx, struct change *c)
{
	struct others *o = ctx;

	return upper_expand_one(o->u, c, pass, o);
}

static int layered(struct atoll_participant *p, const struct git_view *v,
                   const struct strlist *excludes, struct others *o)
{
	const struct git_state *st = p->extra;
	const struct upper_compare u = { .upper_fd = v->upper_fd,
		                         .orig_fd = st->dir_fd,
		                         .marks = geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER,
		                         .excludes = excludes };

	o->u = &u;
	return upper_each(&u, pass_change, o, &p->err);
}

static int private(struct atoll_participant *p, const struct git_view *v,
                   const struct strlist *excludes, struct others *o)
{
	cleanup_changeset struct changeset cs = CHANGESET_INIT;
	cleanup_base struct base *base = NULL;
	const struct git_state *st = p->extra;
	struct tree_compare t = { .work_fd = v->upper_fd,
		                  .orig_fd = st->dir_fd,
		                  .excludes = excludes };
	int r = worktree_base(p, &base);

	t.base = base;
	if (r >= 0)
		r = tree_diff(&t, &cs, &p->err);
	return r < 0 ? r : tree_expand(&t, &cs, pass, o, &p->err);
}

int git_others(struct atoll_participant *p, const struct git_view *v, tree_entry_fn fn, void *ctx)
{
	cleanup_strlist struct strlist excludes = STRLIST_INIT;
	struct others o = { .fn = fn, .ctx = ctx };
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0 || v->upper_fd == FD_NONE)
		return r;
	for (size_t i = 0; i < sizeof(internal) / sizeof(internal[0]); i++)
		strlist_add(&excludes, internal[i]);
	return git_ground(p)->layered ? layered(p, v, &excludes, &o) : private(p, v, &excludes, &o);
}
