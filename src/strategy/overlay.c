/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `overlay`: the workspace is the upper directory of an overlay over the resource. The overlay is
 * mounted at the resource's own path, in the mount namespace of a command, while it runs (see
 * exec/); a crash leaves no mounts. Making one costs the same however big the tree is; a diff and
 * a commit cost what was changed.
 *
 * Terms: the *lower* is the resource itself, live. A *whiteout* in the upper deletes the name
 * below it; an *opaque* directory replaces the one below it; a directory in both is *merged*
 * (diff/upper.h reads them).
 *
 * In the area, per generation G of the workspace:
 *
 *   uG/        the upper
 *   kG/        the kernel's work directory
 *   tG         when it was made (overlay-base.h)
 *   recordsG   what the lower was under every change
 *   m/         where `path` mounts it for root, outside any namespace
 *
 * A commit moves the upper's new entries to the resource, so the upper is used up; it is stale, as
 * after a reset, and the next use makes generation G+1, which is two mkdirs. A batch that leaves
 * work behind moves only its own entries out, whiteouts too; the upper stays in use, over a
 * resource that now has what the batch put there.
 *
 * Invariants:
 *   1. The upper is on the resource's mount: its entries reach the resource by rename.
 *   2. The upper is read only while nothing has it mounted for writing.
 *   3. Every change has a record of its base before it is judged.
 */
#include "strategy/overlay-impl.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "diff/git-program.h"
#include "diff/upper.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "fs/walk.h"
#include "strategy/dir.h"
#include "strategy/overlay-base.h"
#include "strategy/overlay-keep.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

/* ---- comparing ---- */

struct view {
	struct atoll_participant *p;
	struct upper_compare u;
	struct overlay_base base;
	struct changeset cs;
	int dir_fd, root_fd, upper_fd;
	size_t told; /* of base.moved */
	bool sought; /* the programs of git are known */
};
#define VIEW_INIT ((struct view){ .dir_fd = FD_NONE, .root_fd = FD_NONE, .upper_fd = FD_NONE })

static void view_done(struct view *v)
{
	overlay_base_done(&v->base);
	changeset_done(&v->cs);
	close_fd(&v->dir_fd);
	close_fd(&v->root_fd);
	close_fd(&v->upper_fd);
}

static int view_layers(struct atoll_participant *p, struct view *v)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');
	int r = overlay_open_dir(p, p->work, &v->dir_fd);

	if (r >= 0)
		r = overlay_open_dir(p, p->root, &v->root_fd);
	if (r >= 0)
		r = overlay_open_dir(p, upper, &v->upper_fd);
	v->p = p;
	v->u = (struct upper_compare){ .upper_fd = v->upper_fd,
		                       .orig_fd = v->root_fd,
		                       .marks = overlay_our_marks(),
		                       .excludes = p->excludes,
		                       .root = p->root,
		                       .plan = p->plan };
	return r;
}

static int view_changes(struct atoll_participant *p, struct view *v)
{
	int r = view_layers(p, v);

	spool_spill_to(&v->cs.v, v->dir_fd);
	spool_spill_to(&v->cs.theirs, v->dir_fd);
	if (r >= 0)
		r = upper_diff(&v->u, &v->cs, &p->err);
	if (r >= 0)
		p->changes = v->cs.v.n;
	return r;
}

static int view_open(struct atoll_participant *p, struct view *v)
{
	int r = view_changes(p, v);

	return r < 0 ? r : overlay_base_load(p, v->dir_fd, &v->base);
}

/* Of an upper without changes: ATOLL_NO_CHANGE when it does not even have what equals the resource's.
 * Then nothing has a base to be noted. */
static int observe_nothing(struct atoll_participant *p, int upper_fd)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	int r = dirlist_read(upper_fd, &names);

	if (r < 0)
		return error_sys(&p->err, r, "read", p->work);
	for (size_t i = 0; i < names.n; i++)
		if (!p->excludes || !strlist_has(p->excludes, names.v[i].name))
			return 0;
	return ATOLL_NO_CHANGE;
}

/* No copy that the kernel made, which has the ACL that the original had, or the command has set another. */
static bool is_new(const void *ctx, const struct change *c)
{
	const struct upper_compare *u = ctx;
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_id origin;

	return resolve_parent(u->upper_fd, c->path, &fd, &name) >= 0 &&
	       overlay_origin(fd, name, u->marks, &origin) == 0;
}

static int overlay_observe(struct atoll_participant *p)
{
	struct view v = VIEW_INIT;
	int r;

	if (p->stale)
		return 0;
	r = view_changes(p, &v);
	if (r >= 0)
		(void)dir_keep_acls(p, &(struct dir_roots){ v.upper_fd, v.root_fd }, &v.cs, is_new,
		                    &v.u);
	if (r >= 0 && p->changes == 0)
		r = observe_nothing(p, v.upper_fd);
	if (r == 0)
		r = overlay_base_load_unjudged(p, v.dir_fd, &v.base);
	if (r == 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base, false);
	if (r >= 0)
		p->counted = true;
	view_done(&v);
	return r;
}

/* Directories around PATH, something the plan changes, that somebody else replaced: each once, which
 * is when the first of its changes is told. */
static int tell_moved(struct view *v, const char *path)
{
	struct strlist *moved = &v->base.moved;
	int r = 0;

	for (; v->told < moved->n && r >= 0; v->told++) {
		const char *dir = moved->v[v->told], *name;
		cleanup_close int fd = FD_NONE;
		struct fs_stat now;

		if (!path_below(path, dir))
			continue;
		r = resolve_parent(v->root_fd, dir, &fd, &name);
		if (r >= 0)
			r = fs_stat_at(fd, name, 0, &now);
		/* Gone in the meantime: the next look will say so. */
		r = r < 0 ? 0 : dir_report_moved(v->p, dir, &now, v->base.moved_why.v[v->told]);
	}
	return r;
}

/* The first change that may make git run a program asks for all of them: what they do together counts. Not
 * known while a command changes them under us; the commit asks again. */
static void find_programs(struct view *v, const struct change *c)
{
	if (v->sought || !git_programs_may_be(c, v->p->root))
		return;
	v->sought = true;
	spool_spill_to(&v->cs.v, v->dir_fd);
	if (upper_diff(&v->u, &v->cs, &v->p->err) >= 0)
		(void)dir_programs(v->p, &(struct dir_roots){ v->upper_fd, v->root_fd }, &v->cs,
		                   &v->p->programs);
	error_done(&v->p->err);
}

/* One change as it is found: judged, then told entry by entry. While a command runs the upper
 * changes under us: what cannot be judged then is not. */
static int diff_one(void *ctx, struct change *c)
{
	struct view *v = ctx;
	cleanup_free char *why = NULL;
	int r, judged = overlay_base_conflict(v->p, &v->u, &v->base, c, &why);

	error_done(&v->p->err);
	r = judged == 2 ? 0 : tell_moved(v, c->path);
	if (r < 0)
		return r;
	if (judged == 1) {
		c->what |= ATOLL_CHANGE_CONFLICT;
		v->p->conflict = why;
	}
	find_programs(v, c);
	r = upper_expand_one(&v->u, c, dir_report, v->p);
	v->p->conflict = NULL;
	return r;
}

static int overlay_diff(struct atoll_participant *p)
{
	struct view v = VIEW_INIT;
	struct dir_sides sides;
	int r;

	if (p->stale)
		return 0;
	r = view_layers(p, &v);
	if (r >= 0)
		r = overlay_base_open(p, v.dir_fd, &v.base);
	dir_sides_init(&sides, v.root_fd, v.upper_fd);
	p->sides = &sides;
	if (r >= 0)
		r = upper_each(&v.u, diff_one, &v, &p->err);
	p->sides = NULL;
	strlist_done(&p->programs);
	dir_sides_done(&sides);
	view_done(&v);
	return r;
}

/* ---- committing ---- */

static int judge(void *ctx, struct change *c, char **ret_why)
{
	struct view *v = ctx;

	return overlay_conflict(v->p, &v->u, &v->base, c, ret_why);
}

static int judge_dir(void *ctx, const struct change_dir *d, char **ret_why)
{
	struct view *v = ctx;

	return overlay_conflict_dir(v->p, &v->u, &v->base, d, ret_why);
}

static int expand_upper(const void *ctx, const struct change *c, tree_entry_fn fn, void *fn_ctx,
                        struct error *err)
{
	int r = upper_expand_one(ctx, c, fn, fn_ctx);

	if (r < 0 && !err->code)
		(void)error_sys(err, r, "list", *c->path ? c->path : ".");
	return r < 0 ? r : 0;
}

static int prepare_commit(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');
	struct view v = VIEW_INIT;
	struct dir_source source = { .expand = expand_upper,
		                     .ctx = &v.u,
		                     .op_flags = MANIFEST_MARKS,
		                     .marks = overlay_our_marks() };
	int r;

	p->changes = 0;
	if (p->stale)
		return ATOLL_NO_CHANGE;
	r = overlay_stop_writers(p);
	if (r >= 0)
		r = view_open(p, &v);
	if (r >= 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base, true);
	source.room = overlay_base_room(p);
	p->changes = 0;
	if (r >= 0)
		r = dir_select(p, &source, &v.cs);
	if (r >= 0)
		r = v.cs.v.n ? dir_weed(p, &v.cs, judge, judge_dir, &v) : 0;
	if (r >= 0)
		r = v.cs.v.n || v.cs.theirs.n || p->batch_anyway
		            ? dir_prepare(p, upper, &source, &v.cs)
		            : ATOLL_NO_CHANGE;
	if (r == ATOLL_READY)
		r = dir_same_base(p, &v.cs, false);
	if (r == ATOLL_READY && (p->batch.select || v.cs.theirs.n || p->batch_anyway)) {
		int synced = overlay_base_sync(p, v.dir_fd);

		r = synced < 0 ? synced : r;
	}
	view_done(&v);
	if (r != ATOLL_READY)
		overlay_let_write(p);
	return r;
}

/* An undo that keeps the work needs a workspace to put it: the one that the batch used up, or one in
 * use, or else a new one. Asked of the newest batch only. */
static int prepare_keep(struct atoll_participant *p)
{
	int r = p->stale ? dir_used_up(p) : 1;

	if (r == 0)
		r = overlay_renew(p);
	p->keeps = true;
	return r < 0 ? r : overlay_stop_writers(p);
}

static int overlay_prepare(struct atoll_participant *p)
{
	cleanup_free char *upper = NULL;
	int r = p->batch.undoing && p->batch.flags & ATOLL_KEEP_WORK && !p->keeps ? prepare_keep(p)
	                                                                          : 0;

	if (r < 0)
		return r;
	upper = overlay_layer_path(p, 'u');
	if (p->batch.redoing)
		return dir_prepare_redo(p, upper, false);
	if (!p->batch.undoing)
		return prepare_commit(p);
	r = dir_prepare_undo(p, upper);
	return r < 0 || !p->keeps ? r : dir_set_aside(p, overlay_base_room(p), r);
}

static int overlay_check(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');

	return dir_check(p, upper);
}

struct merge {
	struct dir_batch *b;
};

/* A new directory of which a part was committed is merged with it from now on. */
static int merge_dir(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct merge *m = ctx;
	cleanup_close int fd = FD_NONE;
	const char *in_work;
	struct fs_stat work;
	int r;

	(void)dir_fd;
	(void)name;
	if (type != DT_DIR)
		return 0;
	r = resolve_parent(m->b->work_fd, path, &fd, &in_work);
	if (r >= 0)
		r = fs_stat_at(fd, in_work, 0, &work);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || (r >= 0 && !S_ISDIR(work.mode)))
		return 0;
	return r < 0 ? r : overlay_strip(fd, in_work);
}

static int rebase(struct atoll_participant *p, struct dir_batch *b)
{
	cleanup_close int dir_fd = FD_NONE;
	struct manifest installed = MANIFEST_INIT;
	struct merge m = { b };
	int r = overlay_open_dir(p, p->work, &dir_fd);

	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0)
			break;
		if (o.flags & MANIFEST_PART)
			r = walk_tree(b->root_fd, o.path, merge_dir, NULL, &m);
		if (r < 0)
			r = error_sys(&p->err, r, "merge the workspace's", o.path);
	}
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0 || !(o.flags & MANIFEST_THEIRS) || !dir_is_attr(&o))
			continue;
		r = dir_take_attrs(b, &o);
		if (r < 0)
			r = error_sys(&p->err, r, "take over the attributes of", o.path);
	}
	if (r >= 0)
		r = dir_installed_read(p, b, &installed);
	if (r >= 0)
		r = overlay_base_rebase(p, dir_fd, b, &installed);
	manifest_done(&installed);
	crashpoint("overlay.commit.rebased");
	return r;
}

static int overlay_commit(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');
	int r = dir_commit(p, upper);

	if (r < 0 || p->batch.alone)
		return r;
	if (!p->batch.redoing && !p->rest)
		p->stale = true;
	r = p->stale ? 0 : rebase(p, p->state);
	if (r >= 0)
		dir_let_go(p->state);
	return r;
}

static int overlay_abort(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');
	int r = dir_abort(p, upper);

	overlay_let_write(p);
	return r;
}

static int overlay_undo(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');
	int r = dir_undo(p, upper);

	if (!p->batch.undoing) {
		cleanup_close int dir_fd = FD_NONE;

		if (r >= 0)
			r = overlay_open_dir(p, p->work, &dir_fd);
		if (r >= 0)
			r = overlay_base_revert(p, dir_fd);
		if (r >= 0)
			p->stale = false;
		overlay_let_write(p);
	}
	return r;
}

static int keep_batch(struct atoll_participant *p, struct dir_batch *b)
{
	cleanup_close int dir_fd = FD_NONE;
	struct manifest now = MANIFEST_INIT;
	int r;

	r = overlay_keep_batch(p, b, overlay_our_marks());
	/* Of an upper that was used up nobody cared for the times. */
	if (r >= 0)
		r = dir_used_up(p);
	if (r > 0)
		dir_restore_work(b);
	crashpoint("overlay.keep.returned");
	if (r >= 0)
		r = overlay_open_dir(p, p->work, &dir_fd);
	if (r >= 0)
		r = dir_list_now(p, b, &now);
	if (r >= 0)
		r = overlay_base_back(p, dir_fd, b, &now);
	manifest_done(&now);
	if (r >= 0)
		p->stale = false;
	/* A mount of it shows what was there before. */
	return r < 0 ? r : overlay_unmount(p);
}

static int overlay_keep(struct atoll_participant *p)
{
	cleanup_free char *upper = overlay_layer_path(p, 'u');

	return dir_keep(p, upper, keep_batch);
}

static int overlay_refresh(struct atoll_participant *p)
{
	struct view v = VIEW_INIT;
	cleanup_close int dir_fd = FD_NONE;
	bool multigrain = false;
	int64_t t0 = 0;
	int r;

	p->changes = 0;
	if (p->stale)
		return 0;
	/* Stamped before anything is looked at: a later edit shows a later time. */
	r = overlay_open_dir(p, p->work, &dir_fd);
	if (r >= 0) {
		r = stamp_make(dir_fd, "marker", &t0, &multigrain);
		if (r < 0)
			r = error_sys(&p->err, r, "stamp", p->work);
	}
	if (r >= 0)
		r = view_open(p, &v);
	if (r >= 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base, true);
	if (r >= 0)
		r = overlay_base_refresh(p, v.dir_fd, &v.u, &v.cs, &v.base, t0, multigrain);
	p->changes = 0;
	view_done(&v);
	return r;
}

static int overlay_finish(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;

	if (p->batch.alone) {
		dir_finish_alone(p);
		return 0;
	}
	if (overlay_open_dir(p, p->work, &dir_fd) >= 0)
		overlay_base_settle(p, dir_fd);
	error_done(&p->err);
	dir_say_theirs(p);
	return overlay_unmount(p);
}

/* Used up in any case: the next use unmounts it first. */
static int overlay_reset(struct atoll_participant *p)
{
	p->stale = true;
	return overlay_unmount(p);
}

static int overlay_remove(struct atoll_participant *p)
{
	return overlay_unmount(p);
}

const struct atoll_strategy strategy_overlay = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "overlay",
	.kind = "directory",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_SELECT | ATOLL_CAP_KEEP | ATOLL_CAP_EMPTY,
	.create = overlay_create,
	.path = overlay_path,
	.mounts = overlay_mounts,
	.observe = overlay_observe,
	.diff = overlay_diff,
	.content = dir_content,
	.prepare = overlay_prepare,
	.check = overlay_check,
	.commit = overlay_commit,
	.abort = overlay_abort,
	.undo = overlay_undo,
	.finish = overlay_finish,
	.release = dir_release,
	.reset = overlay_reset,
	.remove = overlay_remove,
	.keep = overlay_keep,
	.refresh = overlay_refresh,
};
