/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order matters. First nothing propagates to the host any more, and /proc, where no source can lie, is
 * the namespace's own; then, when the request is there, nothing propagates from the host either. Then
 * every other mount is made, detached,
 * while sources can still be reached and upper layers are on writable mounts. Then the tree becomes
 * read-only, and the new mounts, which that did not touch, are attached from the outside in.
 *
 * A device node is one only in the new /dev: everywhere else, in what the command can write first of
 * all, the mounts forbid to open it.
 */
#include "helper/tree.h"

#include "fs/atomic.h"
#include "fs/stat.h"
#include "helper/grow.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *path;
	const char *mode;
	bool optional;
} own[TREE_OWN_END_] = {
	[TREE_DEV] = { "/dev", "0755", false },        [TREE_SHM] = { "/dev/shm", "1777", true },
	[TREE_RUN] = { "/run", "0755", true },         [TREE_TMP] = { "/tmp", "1777", false },
	[TREE_VAR_TMP] = { "/var/tmp", "1777", true },
};

/* What root may write in /proc by being root, whatever its capabilities. */
static const char *const proc_fixed[] = {
	"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs",
};

void tree_init(struct tree *t)
{
	*t = (struct tree){ .views = VIEWS_INIT, .submounts = SUBMOUNTS_INIT };
	dev_init(&t->dev);
	t->proc_fd = FD_NONE;
	for (int i = 0; i < TREE_OWN_END_; i++)
		t->own_fd[i] = FD_NONE;
	resolvers_init(&t->resolvers);
}

void tree_done(struct tree *t)
{
	views_close(&t->views);
	submounts_done(&t->submounts);
	dev_done(&t->dev);
	close_fd(&t->proc_fd);
	for (int i = 0; i < TREE_OWN_END_; i++)
		close_fd(&t->own_fd[i]);
	resolvers_done(&t->resolvers);
}

static int change_root(uint64_t propagation, uint64_t set)
{
	struct mount_attr attr = { .attr_set = set, .propagation = propagation };

	return mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

/* ---- making ---- */

/* Of the plan's directory PATH. */
static int make_tmp(struct tree *t, enum tree_own which, const char *path, struct failure *f)
{
	cleanup_close int fd = FD_NONE;
	int *tmp_fd = &t->own_fd[which];
	int r;

	if (path) {
		r = mount_open_dir(path, &fd);
		if (r == 0)
			r = mount_clone(fd, tmp_fd);
		if (r == 0)
			r = mount_change(*tmp_fd, MOUNT_ALL, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID,
			                 0);
	} else {
		r = own[which].optional ? 0 : mount_tmpfs(own[which].mode, tmp_fd);
	}
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "make a private '%s' of '%s'",
	                           own[which].path, path ? path : "tmpfs")
	             : 0;
}

static int make_own(struct tree *t, struct failure *f)
{
	for (int i = 0; i < TREE_TMP; i++) {
		int r = mount_tmpfs(own[i].mode, &t->own_fd[i]);

		if (r < 0)
			return failure_set(f, REPLY_NAMESPACE, r, "make a private '%s'",
			                   own[i].path);
	}
	return 0;
}

static int make_proc(struct tree *t, struct failure *f)
{
	int r = mount_proc(&t->proc_fd);

	t->old_proc = r == -EPERM;
	return r < 0 && !t->old_proc ? failure_set(f, REPLY_NAMESPACE, r, "make a '/proc'") : 0;
}

/* ---- attaching ---- */

static int make_place(int dir_fd, const char *name, bool is_dir, int *ret_fd)
{
	cleanup_close int made = FD_NONE;
	int r = is_dir ? fs_mkdir_at(dir_fd, name, 0755) : fs_create_at(dir_fd, name, 0600, &made);

	if (r < 0 && r != -EEXIST)
		return r;
	*ret_fd =
		openat(dir_fd, name, O_PATH | (is_dir ? O_DIRECTORY : 0) | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

static int attach_own(struct tree *t, struct failure *f)
{
	int r;

	for (int i = 0; i < TREE_OWN_END_; i++) {
		if (t->own_fd[i] == FD_NONE)
			continue;
		r = mount_attach(t->own_fd[i], own[i].path);
		if (r < 0 && !own[i].optional)
			return failure_set(f, REPLY_NAMESPACE, r, "mount '%s'", own[i].path);
		if (r < 0) /* not there, or a link: read-only like the rest */
			close_fd(&t->own_fd[i]);
		if (i == TREE_DEV)
			r = dev_attach(&t->dev, t->own_fd[i], f);
		if (i == TREE_DEV && r < 0)
			return r;
	}
	if (t->own_fd[TREE_RUN] == FD_NONE)
		return 0;
	return resolvers_attach(&t->resolvers, t->own_fd[TREE_RUN], f);
}

static int fix_in_proc(const char *path)
{
	cleanup_close int fd = FD_NONE;
	cleanup_close int mount_fd = FD_NONE;
	int r = mount_open_target(path, &fd);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = mount_clone(fd, &mount_fd);
	if (r == 0)
		r = mount_change(mount_fd, MOUNT_ALL, MOUNT_ATTR_RDONLY, 0);
	return r < 0 ? r : mount_attach_at(mount_fd, fd);
}

static int attach_proc(struct tree *t, struct failure *f)
{
	int r = t->old_proc ? 0 : mount_attach(t->proc_fd, "/proc");

	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "mount '/proc'");
	if (t->old_proc || sabotage("proc-fixed"))
		return 0;
	for (size_t i = 0; t->is_root && i < sizeof(proc_fixed) / sizeof(proc_fixed[0]); i++) {
		r = fix_in_proc(proc_fixed[i]);
		if (r < 0)
			return failure_set(f, REPLY_NAMESPACE, r, "make '%s' read-only",
			                   proc_fixed[i]);
	}
	return 0;
}

/* Nobody's resource, and not the host's. */
static bool is_private(const struct view *v)
{
	return v->kind == VIEW_EMPTY || v->kind == VIEW_PRIVATE ||
	       (v->kind == VIEW_SCRATCH && v->mount_fd != FD_NONE);
}

static bool is_own(const struct tree *t, int dir_fd)
{
	struct fs_stat st, mine;

	if (fs_stat_at(dir_fd, "", 0, &st) < 0 || st.mnt_id == 0)
		return false;
	for (int i = 0; i < TREE_OWN_END_; i++)
		if (fs_stat_at(t->own_fd[i], "", 0, &mine) == 0 && mine.mnt_id == st.mnt_id)
			return true;
	for (size_t i = 0; i < t->views.n; i++)
		if (is_private(&t->views.v[i]) &&
		    fs_stat_at(t->views.v[i].mount_fd, "", 0, &mine) == 0 &&
		    mine.mnt_id == st.mnt_id)
			return true;
	return false;
}

/* Component by component, making what is missing in places that are ours. */
static int make_target(const struct tree *t, const struct view *v, int *ret_fd)
{
	cleanup_free char *path = xstrdup(v->target + 1);
	cleanup_close int dir_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *rest = path, *name;
	struct fs_stat root;
	int r = fs_stat_at(v->mount_fd, "", 0, &root);

	if (dir_fd < 0 || r < 0)
		return dir_fd < 0 ? -errno : r;
	while ((name = strsep(&rest, "/"))) {
		int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		r = fd < 0 ? -errno : 0;
		if (r == -ENOENT && is_own(t, dir_fd))
			r = make_place(dir_fd, name, rest || S_ISDIR(root.mode), &fd);
		if (r < 0)
			return r;
		close_fd(&dir_fd);
		dir_fd = fd;
	}
	*ret_fd = take_fd(&dir_fd);
	return 0;
}

static int attach_view(struct tree *t, const struct view *v, struct failure *f)
{
	cleanup_close int fd = FD_NONE;
	int r;

	if (v->kind == VIEW_HIDDEN || v->kind == VIEW_CLOSED)
		return hide_path(&t->hide, t->own_fd[TREE_DEV], v->target, v->kind == VIEW_CLOSED,
		                 f);
	/* A scratch layer that could not be, or what is attached together with it. */
	if (v->mount_fd == FD_NONE)
		return submounts_attach(&t->submounts, v, f);
	r = mount_open_target(v->target, &fd);
	if (r == -ENOENT)
		r = make_target(t, v, &fd);
	if (r == 0)
		r = mount_attach_at(v->mount_fd, fd);
	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "mount %s at '%s'",
		                   v->is_overlay ? "overlay" : "view", v->target);
	if (v->kind == VIEW_SCRATCH)
		r = views_take_parts(&t->views, v, f);
	return r < 0 ? r : submounts_attach(&t->submounts, v, f);
}

/* Places for what is shown elsewhere than at home. In what is ours they are made when it is attached. */
static int grow_targets(const struct tree *t, struct failure *f)
{
	for (size_t i = 0; i < t->views.n; i++) {
		const struct view *v = &t->views.v[i];
		const struct view *around = views_around(&t->views, v->target);
		bool later = around && is_private(around);
		int r;

		for (int k = 0; !later && k < TREE_OWN_END_; k++)
			later = t->own_fd[k] != FD_NONE &&
			        strncmp(v->target, own[k].path, strlen(own[k].path)) == 0 &&
			        v->target[strlen(own[k].path)] == '/';
		r = v->moved && !later ? grow_path(v->target) : 0;
		if (r < 0)
			return failure_set(f, REPLY_VIEW, r, "make a place at '%s'", v->target);
	}
	return 0;
}

/* The number alone does not say that it is because of what is mounted below. */
static int say_if_mounted(const struct tree *t, int r, struct failure *f)
{
	for (size_t i = 0; r == -EINVAL && t->user_xattrs && i < t->submounts.n; i++) {
		const struct submount *sub = &t->submounts.v[i];

		if (sub->view->is_overlay && sub->view->mount_fd == FD_NONE)
			return failure_set(f, REPLY_VIEW, r,
			                   "mount overlay at '%s' over the mount point '%s'",
			                   sub->view->target, sub->path);
	}
	return r;
}

/* Those of its devices that are wanted were bound before. */
static int fix_system(const struct tree *t, struct failure *f)
{
	uint64_t set = (sabotage("readonly") ? 0 : MOUNT_ATTR_RDONLY) |
	               (sabotage("nodev") ? 0 : MOUNT_ATTR_NODEV);
	int r = set ? change_root(0, set) : 0;

	/* /proc is attached already; what is read-only in it stays so. */
	if (r == 0 && !t->old_proc)
		r = mount_change(t->proc_fd, MOUNT_ONE, 0, MOUNT_ATTR_RDONLY);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "make the system read-only") : 0;
}

int tree_begin(struct tree *t, struct failure *f)
{
	int r = change_root(MS_SLAVE, 0);

	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "keep the mounts from the host");
	r = make_own(t, f);
	if (r == 0)
		r = make_proc(t, f);
	if (r == 0)
		r = attach_proc(t, f);
	if (r == 0)
		r = dev_make(&t->dev, t->own_fd[TREE_DEV], f);
	if (r == 0)
		submounts_look(&t->submounts);
	return r;
}

static int make_rest(struct tree *t, const struct request *q, struct failure *f)
{
	const struct views_how how = { .user_xattrs = t->user_xattrs,
		                       .strict = request_get(q, REQUEST_STRICT, 0) };
	int r = views_read(&t->views, q);

	if (r < 0)
		return failure_set(f, REPLY_REQUEST, r, "read the views");
	r = submounts_make(&t->submounts, &t->views, f);
	if (r == 0)
		r = say_if_mounted(t, views_make(&t->views, &how, f), f);
	if (r == 0)
		r = make_tmp(t, TREE_TMP, request_get(q, REQUEST_TMP, 0), f);
	if (r == 0)
		r = make_tmp(t, TREE_VAR_TMP, request_get(q, REQUEST_VAR_TMP, 0), f);
	return r < 0 ? r : resolvers_make(&t->resolvers, f);
}

int tree_build(struct tree *t, const struct request *q, struct failure *f)
{
	int r;

	/* What is mounted in the next instant comes too late, whether it still gets here or not. */
	submounts_look_again(&t->submounts);
	r = change_root(MS_PRIVATE, 0);
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "make the mounts private");
	r = make_rest(t, q, f);
	if (r == 0)
		r = fix_system(t, f);
	if (r == 0)
		r = grow_targets(t, f);
	if (r == 0)
		r = attach_own(t, f);
	for (size_t i = 0; r == 0 && i < t->views.n; i++)
		r = attach_view(t, &t->views.v[i], f);
	if (r < 0)
		return r;
	hide_done(&t->hide, t->own_fd[TREE_DEV]);
	r = mount_change(t->own_fd[TREE_DEV], MOUNT_ONE, MOUNT_ATTR_RDONLY, 0);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "make '/dev' read-only") : 0;
}
