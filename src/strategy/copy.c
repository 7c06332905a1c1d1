/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `copy`: the workspace is a complete private copy of the directory (reflinked where the
 * filesystem can), with a record of what was copied. Works everywhere; costs what the tree
 * costs. The difference is found by the record, the commit is the directory participant's.
 *
 * In the work directory, per generation G of the workspace:
 *
 *   wG/      the copy
 *   baseG    the base record (diff/base.h); complete only with its trailer
 *   wG.size  what the copy took when it was made (fs/usage.h)
 *
 * A commit uses the copy up (its new entries become the resource's), and so does a reset: both
 * leave it stale, and the next use makes generation G+1 beside it and then removes the old one, so
 * leftovers can never show up in it. A batch that leaves work behind gives the resource copies and
 * leaves the workspace as it is; only the base record is written anew (copy-base.h).
 */
#include "strategy/copy-base.h"
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "strategy/moves.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/progress.h"

static char *work_path(const struct atoll_participant *p)
{
	return xasprintf("%s/w%llu", p->work, (unsigned long long)p->generation);
}

static void names(const struct atoll_participant *p, char w[32], char base[32])
{
	(void)snprintf(w, 32, "w%llu", (unsigned long long)p->generation);
	(void)snprintf(base, 32, "base%llu", (unsigned long long)p->generation);
}

static int open_at(struct atoll_participant *p, const char *path, int *ret_fd)
{
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", path) : 0;
}

/* ---- making a workspace ---- */

static void note_unreadable(void *ctx, const char *path, const char *why)
{
	atoll_participant_note(ctx, ATOLL_NOTE_UNREADABLE, path, why);
}

/* Where nothing is mounted, as below `path`, nobody must take it for the thing itself. */
static const char stand_in[] = "This stands for another resource of the plan, which has a path of "
			       "its own (atoll path).\n";

/* A file is covered by a file, a directory by a directory. */
static int make_mount_point(int root_fd, const char *path, int dir_fd, const char *name)
{
	cleanup_close int of_fd = FD_NONE, fd = FD_NONE;
	const char *of;
	struct fs_stat st;
	int r = resolve_parent(root_fd, path, &of_fd, &of);

	if (r >= 0)
		r = fs_stat_at(of_fd, of, 0, &st);
	if (r < 0 || S_ISDIR(st.mode))
		return fs_mkdir_at(dir_fd, name, 0700);
	r = fs_create_at(dir_fd, name, 0600, &fd);
	return r < 0 ? r : fs_write_all(fd, stand_in, strlen(stand_in));
}

/* The root of another sandbox is not copied, but its own view is mounted there. */
static int make_mount_points(struct atoll_participant *p, int root_fd, int work_fd)
{
	for (size_t i = 0; p->excludes && i < p->excludes->n; i++) {
		const char *path = p->excludes->v[i], *name;
		cleanup_close int fd = FD_NONE;
		struct fs_stat st;
		int r;

		if (strategy_is_area(path) || strategy_is_side(p->excludes, path))
			continue;
		r = resolve_parent(work_fd, path, &fd, &name);
		if (r >= 0)
			r = fs_stat_at(fd, "", 0, &st);
		if (r >= 0)
			r = make_mount_point(root_fd, path, fd, name);
		if (r >= 0)
			r = fs_set_mtime(fd, "", st.mtime_ns);
		/* Gone or locked together with what holds it: exec says so. */
		if (r < 0 && r != -EEXIST && r != -ENOENT && r != -EACCES)
			return error_sys(&p->err, r, "make a mount point for", path);
	}
	return 0;
}

static int fill(struct atoll_participant *p, int dir_fd, const char *w, const char *base)
{
	cleanup_close int root_fd = FD_NONE, work_fd = FD_NONE, base_fd = FD_NONE;
	struct base_writer *writer = NULL;
	bool multigrain;
	int64_t t0;
	int r = open_at(p, p->root, &root_fd);

	if (r >= 0) {
		r = fs_mkdir_at(dir_fd, w, 0700);
		if (r >= 0)
			r = fs_create_at(dir_fd, base, 0600, &base_fd);
		if (r < 0)
			return error_sys(&p->err, r, "make the workspace in", p->work);
		work_fd = openat(dir_fd, w, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (work_fd < 0)
			return error_sys(&p->err, -errno, "open the workspace in", p->work);
		r = base_writer_new(base_fd, &writer);
		if (r < 0)
			return error_sys(&p->err, r, "write the base record in", p->work);
		progress_phase("copying", 0);
		r = tree_copy(root_fd, work_fd, p->excludes, writer, 0, note_unreadable, p,
		              &p->err);
		if (r >= 0)
			r = make_mount_points(p, root_fd, work_fd);
	}
	crashpoint("copy.create.copied");
	base_writer_free(writer);
	/* From here on an edit must show a later ctime than anything recorded. */
	if (r >= 0) {
		r = stamp_make(dir_fd, "marker", &t0, &multigrain);
		if (r < 0)
			r = error_sys(&p->err, r, "stamp", p->work);
	}
	return r;
}

static int remove_workspace(int dir_fd, const char *w, const char *base)
{
	int r = remove_tree_at(dir_fd, w);

	usage_forget(dir_fd, w);
	return r < 0 ? r : remove_tree_at(dir_fd, base);
}

static int make_workspace(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	struct usage size = { 0 };
	char w[32], base[32];
	int r = open_at(p, p->work, &dir_fd);

	if (r < 0)
		return r;
	names(p, w, base);
	/* What an interrupted attempt at this generation left. */
	r = remove_workspace(dir_fd, w, base);
	if (r < 0)
		return error_sys(&p->err, r, "remove an unfinished workspace in", p->work);
	r = fill(p, dir_fd, w, base);
	if (r < 0) {
		(void)remove_workspace(dir_fd, w, base);
		return r;
	}
	usage_add_tree(dir_fd, w, &size);
	(void)usage_note(dir_fd, w, &size); /* without it, it is measured each time */
	return 0;
}

static int copy_create(struct atoll_participant *p)
{
	p->generation = 1;
	return make_workspace(p);
}

/* Makes the next generation when this one is used up. */
static int renew(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	char w[32], base[32];
	int r;

	if (!p->stale)
		return 0;
	names(p, w, base);
	p->generation++;
	r = make_workspace(p);
	if (r < 0) {
		p->generation--;
		return r;
	}
	p->stale = false;
	/* The old one is of no use; if it cannot be removed now, remove() will try again. */
	if (open_at(p, p->work, &dir_fd) >= 0)
		(void)remove_workspace(dir_fd, w, base);
	error_done(&p->err);
	return 0;
}

static int copy_path(struct atoll_participant *p, char **ret_path)
{
	int r = renew(p);

	if (r >= 0)
		*ret_path = work_path(p);
	return r;
}

static int copy_mounts(struct atoll_participant *p)
{
	cleanup_free char *work = NULL;
	int r = renew(p);

	if (r < 0)
		return r;
	work = work_path(p);
	return atoll_participant_mount(p, p->root, work, NULL, NULL);
}

/* ---- comparing ---- */

struct view {
	struct atoll_participant *p;
	struct tree_compare t;
	struct base *base;
	struct manifest restored;
	struct changeset cs;
	int dir_fd, root_fd, work_fd;
};
#define VIEW_INIT ((struct view){ .dir_fd = FD_NONE, .root_fd = FD_NONE, .work_fd = FD_NONE })

static void view_done(struct view *v)
{
	base_free(v->base);
	manifest_done(&v->restored);
	changeset_done(&v->cs);
	close_fd(&v->dir_fd);
	close_fd(&v->root_fd);
	close_fd(&v->work_fd);
}

/* A batch of this plan left it so, or one of any plan moved it away and back. */
static bool left_by_us(const void *ctx, const char *path, const struct fs_stat *base,
                       const struct fs_stat *now)
{
	const struct view *v = ctx;

	return dir_restored_known(&v->restored, path, now) || moves_same_entry(v->p, base, now);
}

static int view_open(struct atoll_participant *p, struct view *v)
{
	cleanup_close int base_fd = FD_NONE;
	cleanup_free char *work = work_path(p);
	char w[32], base[32];
	int r = open_at(p, p->work, &v->dir_fd);

	names(p, w, base);
	if (r >= 0)
		r = open_at(p, p->root, &v->root_fd);
	if (r >= 0)
		r = open_at(p, work, &v->work_fd);
	if (r < 0)
		return r;
	spool_spill_to(&v->cs.v, v->dir_fd);
	spool_spill_to(&v->cs.theirs, v->dir_fd);
	base_fd = openat(v->dir_fd, base, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (base_fd < 0)
		return error_sys(&p->err, -errno, "open the base record in", p->work);
	r = base_open(base_fd, &v->base, &p->err);
	if (r >= 0)
		r = dir_restored_read(p, &v->restored);
	v->p = p;
	v->t = (struct tree_compare){ .work_fd = v->work_fd,
		                      .orig_fd = v->root_fd,
		                      .base = v->base,
		                      .excludes = p->excludes,
		                      .left_by_us = left_by_us,
		                      .left_ctx = v };
	return r;
}

/* Another inode than that of the copy that was made; of a copy that was removed, the number can be another's. */
static bool is_new(const void *ctx, const struct change *c)
{
	const struct view *v = ctx;
	cleanup_base_block struct base_block block = BASE_BLOCK_INIT;
	struct base_entry e;
	struct fs_stat st;

	if (base_lookup(v->base, c->path, &e, &block, NULL) != 1)
		return false;
	if (e.work_ino != c->work.id.ino)
		return true;
	return e.work_ctime_ns > 0 && fs_stat_at(v->work_fd, c->path, 0, &st) == 0 &&
	       st.born_ns > e.work_ctime_ns;
}

static int view_changes(struct atoll_participant *p, struct view *v)
{
	const struct dir_roots sides = { v->work_fd, v->root_fd };
	int r = tree_diff(&v->t, &v->cs, &p->err);

	if (r < 0 || !dir_keep_acls(p, &sides, &v->cs, is_new, v))
		return r;
	changeset_done(&v->cs);
	spool_spill_to(&v->cs.v, v->dir_fd);
	spool_spill_to(&v->cs.theirs, v->dir_fd);
	return tree_diff(&v->t, &v->cs, &p->err);
}

/* Directories around PATH, something the plan changes, that somebody else replaced: each once, which
 * is when the first of its changes is told. Both come in one order, so AT only goes forward. */
static int tell_moved(struct atoll_participant *p, struct view *v, size_t *at, const char *path)
{
	const struct changeset *cs = &v->cs;
	int r = 0;

	for (; *at < cs->n_dirs && r >= 0; (*at)++) {
		const struct change_dir *d = &cs->dirs[*at];
		cleanup_free char *why = NULL;

		if (path_compare(d->path, path) >= 0)
			break;
		if (!*d->path || !path_below(path, d->path))
			continue;
		r = tree_conflict_dir(&v->t, d, &why, &p->err);
		if (r == 1)
			r = dir_report_moved(p, d->path, &d->base, why);
	}
	return r;
}

/* One change, judged for the reader's eyes (commit checks again), then told entry by entry. */
static int diff_one(struct atoll_participant *p, struct view *v, size_t *at, struct change *c)
{
	const struct changeset *cs = &v->cs;
	cleanup_free char *why = NULL;
	int r, judged = tree_conflict(&v->t, c, &why, &p->err);

	if (judged < 0)
		return judged;
	r = judged == 2 ? 0 : tell_moved(p, v, at, c->path);
	if (r < 0)
		return r;
	/* One that is changed itself is told once. */
	if (*at < cs->n_dirs && strcmp(cs->dirs[*at].path, c->path) == 0)
		(*at)++;
	if (judged == 1) {
		c->what |= ATOLL_CHANGE_CONFLICT;
		p->conflict = why;
	}
	r = tree_expand_one(&v->t, c, dir_report, p, &p->err);
	p->conflict = NULL;
	return r;
}

static int copy_diff(struct atoll_participant *p)
{
	struct view v = VIEW_INIT;
	struct dir_sides sides;
	size_t at = 0;
	int r;

	if (p->stale)
		return 0;
	r = view_open(p, &v);
	if (r >= 0)
		r = view_changes(p, &v);
	if (r >= 0)
		r = dir_programs(p, &(struct dir_roots){ v.work_fd, v.root_fd }, &v.cs,
		                 &p->programs);
	dir_sides_init(&sides, v.root_fd, v.work_fd);
	p->sides = &sides;
	for (size_t i = 0; r >= 0 && i < v.cs.v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&v.cs.v, i, &c);
		r = r < 0 ? dir_unreadable(p, r) : diff_one(p, &v, &at, &c);
	}
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

	return tree_conflict(&v->t, c, ret_why, &v->p->err);
}

static int judge_dir(void *ctx, const struct change_dir *d, char **ret_why)
{
	struct view *v = ctx;

	return tree_conflict_dir(&v->t, d, ret_why, &v->p->err);
}

/* Between the judgement and the manifest's own look at the originals somebody may have come in, and
 * what he made would pass for the original. So it is judged again, now that the manifest holds what
 * it saw; from here on check() notices. A directory's subtree is not walked twice. */
static int judge_again(struct atoll_participant *p, struct view *v)
{
	size_t conflicts = 0;
	int r = 0;

	for (size_t i = 0; i < v->cs.v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *why = NULL;

		r = changeset_get(&v->cs.v, i, &c);
		if (r < 0)
			return dir_unreadable(p, r);
		if (c.op == CHANGE_ATTR || c.base_dir != BASE_NO_DIR || c.settled)
			continue;
		r = tree_conflict(&v->t, &c, &why, &p->err);
		if (r > 0 && conflicts++ < LIMIT_CONFLICTS)
			atoll_participant_note(p, ATOLL_NOTE_CONFLICT, c.path,
			                       why ? why : "changed");
	}
	return r < 0 ? r : dir_conflicts(p, conflicts);
}

static int expand_copy(const void *ctx, const struct change *c, tree_entry_fn fn, void *fn_ctx,
                       struct error *err)
{
	return tree_expand_one(ctx, c, fn, fn_ctx, err);
}

static int prepare_commit(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);
	struct view v = VIEW_INIT;
	struct changeset *cs = &v.cs;
	struct dir_source source = { .expand = expand_copy,
		                     .ctx = &v.t,
		                     .stays = true,
		                     .room = copy_base_size(p) };
	int r;

	p->changes = 0;
	if (p->stale)
		return ATOLL_NO_CHANGE;
	r = view_open(p, &v);
	if (r >= 0)
		r = view_changes(p, &v);
	if (r >= 0)
		r = dir_select(p, &source, cs);
	if (r >= 0 && cs->v.n)
		r = dir_weed(p, cs, judge, judge_dir, &v);
	if (r >= 0)
		r = cs->v.n || cs->theirs.n || p->batch_anyway ? dir_prepare(p, work, &source, cs)
		                                               : ATOLL_NO_CHANGE;
	if (r == ATOLL_READY)
		r = judge_again(p, &v);
	if (r == ATOLL_READY)
		r = dir_same_base(p, cs, true);
	view_done(&v);
	return r;
}

/* An undo that keeps the work needs a workspace that has it: one in use, or a new one, made before
 * the originals come back. The one that the newest batch used up gets its entries back. */
static int prepare_keep(struct atoll_participant *p)
{
	int r = p->stale ? dir_used_up(p) : 1;

	p->keeps = true;
	return r == 0 ? renew(p) : r < 0 ? r : 0;
}

static int copy_prepare(struct atoll_participant *p)
{
	cleanup_free char *work = NULL;
	int r = p->batch.undoing && p->batch.flags & ATOLL_KEEP_WORK && !p->keeps ? prepare_keep(p)
	                                                                          : 0;

	if (r < 0)
		return r;
	work = work_path(p);
	if (p->batch.redoing)
		return dir_prepare_redo(p, work, false);
	if (!p->batch.undoing)
		return prepare_commit(p);
	r = dir_prepare_undo(p, work);
	return r < 0 || !p->keeps ? r : dir_set_aside(p, copy_base_size(p), r);
}

static int copy_check(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);

	return dir_check(p, work);
}

static int copy_commit(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);
	int r = dir_commit(p, work);

	if (r < 0 || p->batch.alone)
		return r;
	if (!p->batch.redoing && !p->rest)
		p->stale = true;
	r = p->stale ? 0 : copy_base_rebase(p, p->state);
	if (r >= 0)
		dir_let_go(p->state);
	return r;
}

static int copy_abort(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);

	return dir_abort(p, work);
}

static int copy_undo(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);
	int r = dir_undo(p, work);

	if (r >= 0 && !p->batch.undoing) {
		r = copy_base_revert(p);
		p->stale = false;
	}
	return r;
}

static int keep_batch(struct atoll_participant *p, struct dir_batch *b)
{
	int r = dir_used_up(p);

	if (r > 0)
		r = dir_unstage(p, b);
	if (r >= 0)
		r = copy_base_back(p, b);
	if (r >= 0)
		p->stale = false;
	return r;
}

static int copy_keep(struct atoll_participant *p)
{
	cleanup_free char *work = work_path(p);

	return dir_keep(p, work, keep_batch);
}

/* ---- taking over what somebody else changed ---- */

/* As the commit would: what each change of the plan meets, in the answers of tree_conflict(). Conflicts are
 * named here, each once, however much somebody else did there. */
static int judge_all(struct view *v, char *verdicts)
{
	for (size_t i = 0; i < v->cs.v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *why = NULL;
		int r = changeset_get(&v->cs.v, i, &c);

		if (r < 0)
			return dir_unreadable(v->p, r);
		r = tree_conflict(&v->t, &c, &why, &v->p->err);
		if (r < 0)
			return r;
		if (r == 1)
			atoll_participant_note(v->p, ATOLL_NOTE_CONFLICT, c.path,
			                       "changed by somebody else and in the plan");
		verdicts[i] = (char)r;
	}
	return 0;
}

/* Does the plan replace or delete a directory around PATH? 1 or 0. */
static int goes_with_parent(const struct changeset *cs, const char *path)
{
	for (size_t at = strcspn(path, "/"); path[at]; at += 1 + strcspn(path + at + 1, "/")) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *name = xstrndup(path, at);
		int r = changeset_find(cs, name, &c);

		if (r < 0 || (r > 0 && c.op != CHANGE_ATTR))
			return r;
	}
	return 0;
}

/* Of PATH, which somebody else changed: what is there is brought in; or was made by both; or a change of
 * the plan stays as it is, to be committed or a conflict. */
enum { BRING_IN, MADE_BY_BOTH, STAYS };

/* WHOLE: with all below it, which goes when PATH is filled anew, changed attributes of directories, too. */
static int weigh(const struct changeset *cs, const char *verdicts, const char *path, bool whole)
{
	size_t i;
	int hit = BRING_IN, r = goes_with_parent(cs, path);

	if (r != 0)
		return r < 0 ? r : STAYS;
	r = changeset_from(cs, path, &i);
	for (; r >= 0 && i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		bool is_at;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0 || !path_below(c.path, path))
			break;
		is_at = strcmp(c.path, path) == 0;
		if (!is_at && !whole)
			break;
		if (verdicts[i] != 2)
			return STAYS;
		if (is_at) /* else deleted by the plan, in what is gone */
			hit = MADE_BY_BOTH;
	}
	return r < 0 ? r : hit;
}

/* Leaves in F what is in nobody's way. */
static int sift(struct view *v, struct copy_foreign *f, struct strlist *equal)
{
	struct strlist *const lists[] = { &f->paths, &f->dirs };
	cleanup_free char *verdicts = calloc(v->cs.v.n + 1, 1);
	int r = verdicts ? judge_all(v, verdicts) : dir_unreadable(v->p, -ENOMEM);

	for (size_t k = 0; k < 2; k++) {
		size_t kept = 0;

		for (size_t i = 0; i < lists[k]->n; i++) {
			char *path = lists[k]->v[i];
			int hit = r < 0 ? r : weigh(&v->cs, verdicts, path, k == 0);

			if (hit < 0 && r >= 0)
				r = dir_unreadable(v->p, hit);
			if (hit == MADE_BY_BOTH && k == 0)
				strlist_add(equal, path);
			if (hit == BRING_IN)
				lists[k]->v[kept++] = path;
			else
				free(path);
		}
		lists[k]->n = kept;
	}
	return r;
}

static int copy_refresh(struct atoll_participant *p)
{
	cleanup_copy_foreign struct copy_foreign f = COPY_FOREIGN_INIT;
	cleanup_strlist struct strlist equal = STRLIST_INIT;
	struct view v = VIEW_INIT;
	int r;

	p->changes = 0;
	if (p->stale)
		return 0;
	r = view_open(p, &v);
	if (r >= 0)
		r = view_changes(p, &v);
	if (r >= 0)
		r = copy_foreign_find(&v.t, &f, &p->err);
	if (r >= 0)
		r = sift(&v, &f, &equal);
	if (r >= 0)
		r = copy_base_refresh(p, &v.t, &f, &equal);
	p->changes = f.paths.n;
	view_done(&v);
	return r;
}

static int copy_finish(struct atoll_participant *p)
{
	if (p->batch.alone) {
		dir_finish_alone(p);
		return 0;
	}
	copy_base_settle(p);
	dir_say_theirs(p);
	return 0;
}

static int copy_reset(struct atoll_participant *p)
{
	p->stale = true;
	return 0;
}

static int copy_remove(struct atoll_participant *p)
{
	/* All of it lies below the area and the work directory, which the manager removes. */
	(void)p;
	return 0;
}

const struct atoll_strategy strategy_copy = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "copy",
	.kind = "directory",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_SELECT | ATOLL_CAP_KEEP,
	.create = copy_create,
	.path = copy_path,
	.mounts = copy_mounts,
	.diff = copy_diff,
	.content = dir_content,
	.prepare = copy_prepare,
	.check = copy_check,
	.commit = copy_commit,
	.abort = copy_abort,
	.undo = copy_undo,
	.finish = copy_finish,
	.release = dir_release,
	.reset = copy_reset,
	.remove = copy_remove,
	.keep = copy_keep,
	.refresh = copy_refresh,
};
