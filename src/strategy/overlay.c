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
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "diff/upper.h"
#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/overlayfs.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "fs/walk.h"
#include "strategy/dir.h"
#include "strategy/overlay-base.h"
#include "strategy/overlay-keep.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"

#define HOST_MOUNT "m"

static enum overlay_marks our_marks(void)
{
	return geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER;
}

static char *layer_path(const struct atoll_participant *p, char layer)
{
	return xasprintf("%s/%c%" PRIu64, p->work, layer, p->generation);
}

static int open_dir(struct atoll_participant *p, const char *path, int *ret_fd)
{
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", path) : 0;
}

/* ---- making a workspace ---- */

static void remove_generation(struct atoll_participant *p, int dir_fd, uint64_t generation)
{
	static const char *const parts[] = { "u", "k", "t", "records" };

	(void)p;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char name[48];

		(void)snprintf(name, sizeof(name), "%s%" PRIu64, parts[i], generation);
		(void)remove_tree_at(dir_fd, name);
	}
}

static bool is_area(const char *excluded)
{
	return strncmp(excluded, STRATEGY_AREA_PREFIX, strlen(STRATEGY_AREA_PREFIX)) == 0;
}

/* The view's root has the attributes of the upper's, so the upper's are the resource's. */
static int make_upper(struct atoll_participant *p, int dir_fd)
{
	cleanup_close int root_fd = FD_NONE, upper_fd = FD_NONE;
	char upper[32], work[32];
	int r = open_dir(p, p->root, &root_fd);

	(void)snprintf(upper, sizeof(upper), "u%" PRIu64, p->generation);
	(void)snprintf(work, sizeof(work), "k%" PRIu64, p->generation);
	if (r < 0)
		return r;
	r = fs_mkdir_at(dir_fd, upper, 0700);
	if (r >= 0)
		r = fs_mkdir_at(dir_fd, work, 0700);
	if (r >= 0) {
		upper_fd = openat(dir_fd, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = upper_fd < 0 ? -errno : 0;
	}
	/* An area inside the root must not show up in the view. The root of another sandbox is
	 * left alone too, but has to: its own view is mounted there. */
	for (size_t i = 0; r >= 0 && p->excludes && i < p->excludes->n; i++)
		if (is_area(p->excludes->v[i]))
			r = overlay_make_whiteout(upper_fd, p->excludes->v[i]);
	if (r >= 0)
		r = copy_dir_meta(root_fd, upper_fd);
	return r < 0 ? error_sys(&p->err, r, "make the workspace in", p->work) : 0;
}

static int make_workspace(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	int r = open_dir(p, p->work, &dir_fd);

	if (r < 0)
		return r;
	remove_generation(p, dir_fd, p->generation); /* what an interrupted attempt left */
	r = make_upper(p, dir_fd);
	crashpoint("overlay.create.made");
	/* T0 after the upper: from here on the lower counts as the base. */
	if (r >= 0)
		r = overlay_base_stamp(p, dir_fd);
	if (r < 0)
		remove_generation(p, dir_fd, p->generation);
	return r;
}

static int overlay_create(struct atoll_participant *p)
{
	p->generation = 1;
	return make_workspace(p);
}

/* ---- root's host mount ---- */

static char *mount_path(const struct atoll_participant *p)
{
	return xasprintf("%s/%s", p->area, HOST_MOUNT);
}

static bool is_mounted(const struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	struct fs_stat st;

	return fs_stat_at(AT_FDCWD, path, 0, &st) == 0 && st.mount_root;
}

static int unmount(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	int r = is_mounted(p) ? overlay_umount(path) : 0;

	return r < 0 ? error_sys(&p->err, r, "unmount", path) : 0;
}

/* Makes the next generation when this one is used up. What is left of the old one goes first: a
 * name of an inode that a commit installed may be among it, and its removal changes that inode's
 * ctime, which after T0 would pass for somebody's edit. */
static int renew(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	int r;

	if (!p->stale)
		return 0;
	r = unmount(p);
	if (r >= 0)
		r = open_dir(p, p->work, &dir_fd);
	if (r < 0)
		return r;
	remove_generation(p, dir_fd, p->generation);
	p->generation++;
	r = make_workspace(p);
	if (r < 0) {
		p->generation--;
		return r;
	}
	p->stale = false;
	return 0;
}

static int mount_for_host(struct atoll_participant *p, const char *path)
{
	cleanup_free char *upper = layer_path(p, 'u'), *work = layer_path(p, 'k');
	cleanup_close int root_fd = FD_NONE, upper_fd = FD_NONE, work_fd = FD_NONE;
	cleanup_close int area_fd = FD_NONE, at_fd = FD_NONE;
	int r = open_dir(p, p->area, &area_fd);

	if (r >= 0)
		r = open_dir(p, p->root, &root_fd);
	if (r >= 0)
		r = open_dir(p, upper, &upper_fd);
	if (r >= 0)
		r = open_dir(p, work, &work_fd);
	if (r >= 0)
		r = fs_private_dir_at(area_fd, HOST_MOUNT, &at_fd);
	if (r >= 0)
		r = overlay_forget_volatile(work_fd);
	if (r >= 0)
		r = overlay_mount(root_fd, upper_fd, work_fd, at_fd);
	if (r < 0 && !p->err.code)
		r = error_sys(&p->err, r, "mount an overlay at", path);
	return r;
}

/* A mount that was stopped for a batch shows what was there before it. */
static int drop_frozen(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	struct statvfs st;

	if (!is_mounted(p) || statvfs(path, &st) != 0 || !(st.f_flag & ST_RDONLY))
		return 0;
	return unmount(p);
}

static int overlay_path(struct atoll_participant *p, char **ret_path)
{
	cleanup_free char *path = mount_path(p);
	int r = renew(p);

	if (r >= 0)
		r = drop_frozen(p);
	if (r < 0)
		return r;
	if (geteuid() != 0) {
		(void)error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is an overlay, which only the commands of its plan can see",
		                p->root);
		error_hint(&p->err,
		           "atoll exec %s -- CMD works in it; atoll start --strategy copy "
		           "makes one with a path",
		           p->plan);
		return -ATOLL_E_UNSUPPORTED;
	}
	if (!is_mounted(p)) {
		r = mount_for_host(p, path);
		if (r < 0)
			return r;
	}
	*ret_path = take_ptr(path);
	return 0;
}

static int overlay_mounts(struct atoll_participant *p)
{
	cleanup_free char *upper = NULL, *work = NULL, *host = mount_path(p);
	int r = renew(p);

	if (r >= 0)
		r = drop_frozen(p);
	if (r < 0)
		return r;
	/* One upper must not be mounted twice. */
	if (is_mounted(p))
		return atoll_participant_mount(p, p->root, host, NULL, NULL);
	upper = layer_path(p, 'u');
	work = layer_path(p, 'k');
	return atoll_participant_mount(p, p->root, p->root, upper, work);
}

/* ---- comparing ---- */

struct view {
	struct atoll_participant *p;
	struct upper_compare u;
	struct overlay_base base;
	struct changeset cs;
	int dir_fd, root_fd, upper_fd;
	size_t told; /* of base.moved */
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
	cleanup_free char *upper = layer_path(p, 'u');
	int r = open_dir(p, p->work, &v->dir_fd);

	if (r >= 0)
		r = open_dir(p, p->root, &v->root_fd);
	if (r >= 0)
		r = open_dir(p, upper, &v->upper_fd);
	v->p = p;
	v->u = (struct upper_compare){ .upper_fd = v->upper_fd,
		                       .orig_fd = v->root_fd,
		                       .marks = our_marks(),
		                       .excludes = p->excludes,
		                       .root = p->root,
		                       .plan = p->plan };
	return r;
}

static int view_open(struct atoll_participant *p, struct view *v)
{
	int r = view_layers(p, v);

	if (r >= 0)
		r = upper_diff(&v->u, &v->cs, &p->err);
	if (r >= 0)
		r = overlay_base_load(p, v->dir_fd, &v->base);
	if (r >= 0)
		p->changes = v->cs.n;
	return r;
}

static int overlay_observe(struct atoll_participant *p)
{
	struct view v = VIEW_INIT;
	int r;

	if (p->stale)
		return 0;
	r = view_open(p, &v);
	if (r >= 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base);
	if (r >= 0) {
		p->changes = v.cs.n;
		p->counted = true;
	}
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

static int expand_upper(const void *ctx, const struct changeset *cs, tree_entry_fn fn, void *fn_ctx,
                        struct error *err)
{
	return upper_expand(ctx, cs, fn, fn_ctx, err);
}

/* A mount somebody still writes through would change the upper under us (invariant 2). */
static int freeze(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	int r = is_mounted(p) ? overlay_freeze(path) : 0;

	if (r < 0) {
		(void)error_sys(&p->err, r, "stop writers below", path);
		error_hint(&p->err, "end the programs that write there, then try again");
	}
	return r;
}

static void thaw(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);

	if (is_mounted(p))
		(void)overlay_thaw(path);
}

static int prepare_commit(struct atoll_participant *p)
{
	cleanup_free char *upper = layer_path(p, 'u');
	struct view v = VIEW_INIT;
	struct dir_source source = { .expand = expand_upper,
		                     .ctx = &v.u,
		                     .op_flags = MANIFEST_MARKS,
		                     .marks = our_marks() };
	int r;

	p->changes = 0;
	if (p->stale)
		return ATOLL_NO_CHANGE;
	r = freeze(p);
	if (r >= 0)
		r = view_open(p, &v);
	if (r >= 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base);
	p->changes = 0;
	if (r >= 0)
		r = dir_select(p, &source, &v.cs);
	if (r >= 0)
		r = v.cs.n ? dir_weed(p, &v.cs, judge, judge_dir, &v) : 0;
	if (r >= 0)
		r = v.cs.n || v.cs.n_theirs || p->batch_anyway
		            ? dir_prepare(p, upper, &source, &v.cs)
		            : ATOLL_NO_CHANGE;
	if (r == ATOLL_READY)
		r = dir_same_base(p, &v.cs, false);
	view_done(&v);
	if (r != ATOLL_READY)
		thaw(p);
	return r;
}

/* An undo that keeps the work needs a workspace to put it: the one that the batch used up, or one in
 * use, or else a new one. Asked of the newest batch only. */
static int prepare_keep(struct atoll_participant *p)
{
	int r = p->stale && !dir_used_up(p) ? renew(p) : 0;

	p->keeps = true;
	return r < 0 ? r : freeze(p);
}

static int overlay_prepare(struct atoll_participant *p)
{
	cleanup_free char *upper = NULL;
	int r = p->batch.undoing && p->batch.flags & ATOLL_KEEP_WORK && !p->keeps ? prepare_keep(p)
	                                                                          : 0;

	if (r < 0)
		return r;
	upper = layer_path(p, 'u');
	return p->batch.undoing ? dir_prepare_undo(p, upper) : prepare_commit(p);
}

static int overlay_check(struct atoll_participant *p)
{
	cleanup_free char *upper = layer_path(p, 'u');

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
	int r = open_dir(p, p->work, &dir_fd);

	for (size_t k = 0; k < b->m.n_ops && r >= 0; k++) {
		if (!(b->m.ops[k].flags & MANIFEST_PART))
			continue;
		r = walk_tree(b->root_fd, b->m.ops[k].path, merge_dir, NULL, &m);
		if (r < 0)
			r = error_sys(&p->err, r, "merge the workspace's", b->m.ops[k].path);
	}
	for (size_t k = 0; k < b->m.n_ops && r >= 0; k++) {
		if (!(b->m.ops[k].flags & MANIFEST_THEIRS) || !dir_is_attr(&b->m.ops[k]))
			continue;
		r = dir_take_attrs(b, &b->m.ops[k]);
		if (r < 0)
			r = error_sys(&p->err, r, "take over the attributes of", b->m.ops[k].path);
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
	cleanup_free char *upper = layer_path(p, 'u');
	int r = dir_commit(p, upper);

	if (r < 0)
		return r;
	if (!p->batch.redoing && !p->rest)
		p->stale = true;
	return p->stale ? 0 : rebase(p, p->state);
}

static int overlay_abort(struct atoll_participant *p)
{
	cleanup_free char *upper = layer_path(p, 'u');
	int r = dir_abort(p, upper);

	thaw(p);
	return r;
}

static int overlay_undo(struct atoll_participant *p)
{
	cleanup_free char *upper = layer_path(p, 'u');
	int r = dir_undo(p, upper);

	if (!p->batch.undoing) {
		cleanup_close int dir_fd = FD_NONE;

		if (r >= 0)
			r = open_dir(p, p->work, &dir_fd);
		if (r >= 0)
			r = overlay_base_revert(p, dir_fd);
		if (r >= 0)
			p->stale = false;
		thaw(p);
	}
	return r;
}

static int overlay_keep(struct atoll_participant *p)
{
	cleanup_free char *upper = layer_path(p, 'u');
	cleanup_close int dir_fd = FD_NONE;
	struct manifest now = MANIFEST_INIT;
	struct dir_batch *b;
	int r = dir_keep_load(p, upper, &b);

	if (r >= 0)
		r = overlay_keep_batch(p, b, our_marks());
	/* Of an upper that was used up nobody cared for the times. */
	if (r >= 0 && dir_used_up(p))
		dir_restore_work(b);
	crashpoint("overlay.keep.returned");
	if (r >= 0)
		r = open_dir(p, p->work, &dir_fd);
	if (r >= 0)
		r = dir_list_now(p, b, &now);
	if (r >= 0)
		r = overlay_base_back(p, dir_fd, b, &now);
	manifest_done(&now);
	if (r >= 0)
		p->stale = false;
	/* A mount of it shows what was there before. */
	return r < 0 ? r : unmount(p);
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
	r = open_dir(p, p->work, &dir_fd);
	if (r >= 0) {
		r = stamp_make(dir_fd, "marker", &t0, &multigrain);
		if (r < 0)
			r = error_sys(&p->err, r, "stamp", p->work);
	}
	if (r >= 0)
		r = view_open(p, &v);
	if (r >= 0)
		r = overlay_base_observe(p, v.dir_fd, &v.u, &v.cs, &v.base);
	if (r >= 0)
		r = overlay_base_refresh(p, v.dir_fd, &v.u, &v.cs, &v.base, t0, multigrain);
	p->changes = 0;
	view_done(&v);
	return r;
}

static int overlay_finish(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;

	if (open_dir(p, p->work, &dir_fd) >= 0)
		overlay_base_settle(p, dir_fd);
	error_done(&p->err);
	return unmount(p);
}

/* Used up in any case: the next use unmounts it first. */
static int overlay_reset(struct atoll_participant *p)
{
	p->stale = true;
	return unmount(p);
}

static int overlay_remove(struct atoll_participant *p)
{
	return unmount(p);
}

const struct atoll_strategy strategy_overlay = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "overlay",
	.kind = "directory",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_SELECT | ATOLL_CAP_KEEP,
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
