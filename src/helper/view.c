/* SPDX-License-Identifier: Apache-2.0 */
/* All views are made before the tree changes: their sources may lie where it will be covered. */
#include "helper/view.h"

#include "fs/overlayfs.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "helper/filter.h"
#include "helper/mount-fd.h"
#include "helper/overlay.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && path[len] == '/';
}

static int by_length(const void *a, const void *b)
{
	const struct view *x = a, *y = b;
	size_t lx = strlen(x->target), ly = strlen(y->target);

	return lx != ly ? (lx > ly) - (lx < ly) : strcmp(x->target, y->target);
}

static enum view_kind kind_of(const char *name)
{
	static const char *const names[VIEW_KIND_END_] = {
		[VIEW_BIND] = REQUEST_BIND,       [VIEW_OVERLAY] = REQUEST_OVERLAY,
		[VIEW_SCRATCH] = REQUEST_SCRATCH, [VIEW_SHOW] = REQUEST_SHOW,
		[VIEW_PRIVATE] = REQUEST_PRIVATE, [VIEW_FIXED] = REQUEST_FIXED,
		[VIEW_EMPTY] = REQUEST_EMPTY,     [VIEW_HIDDEN] = REQUEST_HIDDEN,
		[VIEW_CLOSED] = REQUEST_CLOSED,
	};
	unsigned i = 0;

	while (i < VIEW_KIND_END_ && strcmp(names[i], name) != 0)
		i++;
	return (enum view_kind)i;
}

static int read_view(struct view *v, const struct request *q, unsigned i)
{
	const char *kind = request_get(q, REQUEST_VIEW_KIND, i);

	*v = (struct view){
		.kind = kind_of(kind),
		.target = request_get(q, REQUEST_VIEW_TARGET, i),
		.source = request_get(q, REQUEST_VIEW_SOURCE, i),
		.upper = request_get(q, REQUEST_VIEW_UPPER, i),
		.work = request_get(q, REQUEST_VIEW_WORK, i),
		.mount_fd = FD_NONE,
		.context_fd = FD_NONE,
		.lower_fd = FD_NONE,
		.upper_fd = FD_NONE,
	};
	v->is_overlay = v->kind == VIEW_OVERLAY;
	if (v->kind == VIEW_KIND_END_)
		return -EPROTO;
	return request_is_target(v->target) ? 0 : -EPROTO;
}

static int read_moved(const struct views *views, const struct request *q)
{
	for (unsigned i = 0; i < request_count(q, REQUEST_MOVED); i++) {
		struct view *v = views_find(views, request_get(q, REQUEST_MOVED, i));

		if (!v)
			return -EPROTO;
		v->moved = true;
	}
	return 0;
}

int views_read(struct views *views, const struct request *q)
{
	unsigned n = request_count(q, REQUEST_VIEW_KIND);
	int r = 0;

	for (unsigned field = REQUEST_VIEW_TARGET; field <= REQUEST_VIEW_WORK; field++)
		if (request_count(q, (enum request_field)field) != n)
			return -EPROTO;
	views->v = xcalloc(n ? n : 1, sizeof(*views->v));
	for (unsigned i = 0; r == 0 && i < n; i++, views->n = i)
		r = read_view(&views->v[i], q, i);
	if (r < 0)
		return r;
	qsort(views->v, n, sizeof(*views->v), by_length);
	for (unsigned i = 1; i < n; i++)
		if (strcmp(views->v[i - 1].target, views->v[i].target) == 0)
			return -EPROTO;
	return read_moved(views, q);
}

static bool has_layers(const struct view *v)
{
	return v->kind == VIEW_OVERLAY || v->kind == VIEW_SCRATCH;
}

/* What is bound may also be a file, or a symbolic link, which then is one in the view. */
static int open_source(const struct view *v, int *ret_fd, struct failure *f)
{
	int fd = open(v->source,
	              O_PATH | O_NOFOLLOW | O_CLOEXEC | (has_layers(v) ? O_DIRECTORY : 0));

	if (fd < 0)
		return failure_set(f, REPLY_VIEW, -errno, "open '%s'", v->source);
	*ret_fd = fd;
	return 0;
}

static int open_part(const char *path, int *ret_fd, struct failure *f)
{
	int r = mount_open_dir(path, ret_fd);

	return r < 0 ? failure_set(f, REPLY_VIEW, r, "open directory '%s'", path) : 0;
}

/* Of two, the numbers of their inodes could not be told from each other. */
static bool on_one_filesystem(int a_fd, int b_fd)
{
	struct stat a, b;

	return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev;
}

static int make_overlay(struct view *v, int *source_fd, bool user_xattrs, struct failure *f)
{
	cleanup_close int upper_fd = FD_NONE;
	cleanup_close int work_fd = FD_NONE;
	struct overlay_layers layers = { .lower = *source_fd, .user_xattrs = user_xattrs };
	char log[OVERLAY_LOG];
	int r;

	r = open_part(v->upper, &upper_fd, f);
	if (r == 0)
		r = open_part(v->work, &work_fd, f);
	if (r < 0)
		return r;
	r = overlay_clear_work(work_fd);
	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "clear '%s/work/incompat'", v->work);
	layers.upper = upper_fd;
	layers.work = work_fd;
	r = overlay_make(&layers, &v->mount_fd, &v->context_fd, log);
	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "mount overlay at '%s'%s%s%s", v->target,
		                   *log ? " (" : "", log, *log ? ")" : "");
	v->marks = user_xattrs ? OVERLAY_USER : OVERLAY_TRUSTED;
	v->notes_origins = v->is_overlay && user_xattrs && on_one_filesystem(*source_fd, upper_fd);
	v->lower_fd = take_fd(source_fd);
	v->upper_fd = take_fd(&upper_fd);
	return 0;
}

void views_tidy(const struct request *q)
{
	for (unsigned i = 0; i < request_count(q, REQUEST_VIEW_WORK); i++) {
		const char *work = request_get(q, REQUEST_VIEW_WORK, i);
		cleanup_close int fd = FD_NONE;

		if (*work && mount_open_dir(work, &fd) == 0)
			(void)overlay_clear_work(fd);
	}
}

/* As writable as its source is, or only to be read; without devices. What is mounted below that, only
 * to be read. */
static int make_bind(struct view *v, int source_fd, struct failure *f)
{
	bool writable = v->kind != VIEW_SHOW;
	struct statvfs vfs = { 0 };
	int r = writable && fstatvfs(source_fd, &vfs) < 0 ? -errno : 0;

	if (r == 0)
		r = mount_clone(source_fd, &v->mount_fd);
	if (r == 0)
		r = mount_change(v->mount_fd, MOUNT_ALL, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, 0);
	if (r == 0 && writable && !(vfs.f_flag & ST_RDONLY))
		r = mount_change(v->mount_fd, MOUNT_ONE, 0, MOUNT_ATTR_RDONLY);
	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "bind '%s' at '%s'", v->source, v->target);
	return 0;
}

/* Nobody's work is in it: where the kernel does not make one (it holds mount points, say), what is
 * there is shown as the rest of the system is. */
static int make_scratch(struct view *v, int *source_fd, const struct views_how *how,
                        struct failure *f)
{
	struct failure why = FAILURE_NONE;
	int r = sabotage("scratch") ? make_bind(v, *source_fd, &why)
	                            : make_overlay(v, source_fd, how->user_xattrs, &why);

	close_fd(&v->context_fd);
	if (r < 0 && how->strict)
		*f = why;
	return how->strict ? r : 0;
}

static int make_one(struct view *v, const struct views_how *how, struct failure *f)
{
	cleanup_close int source_fd = FD_NONE;
	int r;

	if (v->kind == VIEW_HIDDEN || v->kind == VIEW_CLOSED)
		return 0; /* by hide.c, where there is something to be hidden */
	if (v->kind == VIEW_PRIVATE || v->kind == VIEW_FIXED)
		return 0; /* by views_take_parts() */
	if (v->kind == VIEW_EMPTY) {
		r = mount_tmpfs("0700", &v->mount_fd);
		return r < 0 ? failure_set(f, REPLY_VIEW, r, "make '%s' empty", v->target) : 0;
	}
	r = open_source(v, &source_fd, f);
	if (r < 0)
		return r;
	if (v->kind == VIEW_SCRATCH)
		return make_scratch(v, &source_fd, how, f);
	return v->is_overlay ? make_overlay(v, &source_fd, how->user_xattrs, f)
	                     : make_bind(v, source_fd, f);
}

int views_make(struct views *views, const struct views_how *how, struct failure *f)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < views->n; i++)
		r = make_one(&views->v[i], how, f);
	return r;
}

/* The overlay that FD is in, and its path there. */
static const struct view *find_overlay(const struct views *views, int fd, char path[PATH_MAX],
                                       const char **ret_rel)
{
	struct fs_stat st, root;
	const struct view *v;
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	if (n <= 0 || fs_stat_at(fd, "", 0, &st) < 0)
		return NULL;
	path[n] = '\0';
	v = views_around(views, path);
	if (!v || v->upper_fd == FD_NONE || fs_stat_at(v->mount_fd, "", 0, &root) < 0 ||
	    root.mnt_id != st.mnt_id)
		return NULL;
	*ret_rel = path + strlen(v->target) + 1;
	return v;
}

bool views_has_lower(const struct views *views, int fd)
{
	cleanup_close int upper_fd = FD_NONE, lower_fd = FD_NONE;
	char path[PATH_MAX];
	const char *rel;
	const struct view *v = find_overlay(views, fd, path, &rel);

	if (!v)
		return false;
	if (resolve_dir_path(v->upper_fd, rel, &upper_fd) < 0)
		return true;
	return overlay_is_opaque(upper_fd, "", v->marks) <= 0 &&
	       resolve_dir_path(v->lower_fd, rel, &lower_fd) == 0;
}

bool views_is_lower(const struct views *views, int fd)
{
	cleanup_close int dir_fd = FD_NONE;
	char path[PATH_MAX];
	const char *rel, *name;
	const struct view *v = find_overlay(views, fd, path, &rel);
	struct fs_stat st;

	return v && (resolve_parent(v->upper_fd, rel, &dir_fd, &name) < 0 ||
	             fs_stat_at(dir_fd, name, 0, &st) == -ENOENT);
}

bool views_link_differs(const struct views *views, int fd)
{
	cleanup_close int dir_fd = FD_NONE;
	char path[PATH_MAX];
	const char *rel, *name;
	const struct view *v = find_overlay(views, fd, path, &rel);
	struct fs_stat shown, own;

	if (!v || v->marks != OVERLAY_USER || fs_stat_at(fd, "", 0, &shown) < 0)
		return false;
	return resolve_parent(v->upper_fd, rel, &dir_fd, &name) < 0 ||
	       fs_stat_at(dir_fd, name, 0, &own) < 0 || own.id.ino != shown.id.ino;
}

bool view_covers(const struct view *v)
{
	return v->moved || v->kind == VIEW_EMPTY || v->kind == VIEW_HIDDEN ||
	       v->kind == VIEW_CLOSED;
}

bool view_is_writable(const struct view *v)
{
	return v->kind == VIEW_BIND || v->kind == VIEW_OVERLAY || v->kind == VIEW_EMPTY ||
	       ((v->kind == VIEW_SCRATCH || v->kind == VIEW_PRIVATE) && v->mount_fd != FD_NONE);
}

/* The plan may have something else in the place of a directory, or nothing. */
static bool is_no_dir(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int take_private(struct view *v, struct failure *f)
{
	cleanup_free char *dir = xstrdup(v->target);
	char *name = strrchr(dir, '/') + 1;
	cleanup_close int dir_fd = FD_NONE;
	cleanup_close int mount_fd = FD_NONE;
	struct stat st;
	int r;

	name[-1] = '\0';
	r = mount_open_target(dir, &dir_fd);
	if (r == 0)
		r = mount_clone_at(dir_fd, name, &mount_fd);
	if (r == 0 && fstat(mount_fd, &st) < 0)
		r = -errno;
	if (is_no_dir(r) || (r == 0 && !S_ISDIR(st.st_mode)))
		return 0;
	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "bind '%s'", v->target);
	v->mount_fd = take_fd(&mount_fd);
	return 0;
}

/*
 * There can be many: one call for each. All are bound by their paths in the view, which follows no link meanwhile
 * (Linux 5.14), and then made read-only at once. By its dot a path is that of a directory, or an error.
 */
static int bind_all_fixed(const struct views *views, const struct view *scratch, struct failure *f)
{
	int r = mount_change(scratch->mount_fd, MOUNT_ONE, MOUNT_ATTR_NOSYMFOLLOW, 0);

	if (r == 0 && fchdir(scratch->mount_fd) < 0)
		r = -errno;
	for (size_t i = 0; r == 0 && i < views->n; i++) {
		const struct view *v = &views->v[i];
		char path[PATH_MAX];

		if (v->kind != VIEW_FIXED || !is_below(v->target, scratch->target))
			continue;
		(void)snprintf(path, sizeof(path), "%s/.", v->target + strlen(scratch->target) + 1);
		r = mount_bind_here(path);
		if (is_no_dir(r))
			r = 0;
		if (r < 0)
			return failure_set(f, REPLY_VIEW, r, "bind '%s'", v->target);
	}
	if (r == 0)
		r = mount_change(scratch->mount_fd, MOUNT_ALL, MOUNT_ATTR_RDONLY,
		                 MOUNT_ATTR_NOSYMFOLLOW);
	if (r == 0)
		r = mount_change(scratch->mount_fd, MOUNT_ONE, 0, MOUNT_ATTR_RDONLY);
	return r < 0 ? failure_set(f, REPLY_VIEW, r, "make directories of '%s' read-only",
	                           scratch->target)
	             : 0;
}

int views_take_parts(struct views *views, const struct view *scratch, struct failure *f)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < views->n; i++) {
		struct view *v = &views->v[i];

		any |= v->kind == VIEW_FIXED;
		if (v->kind == VIEW_PRIVATE && is_below(v->target, scratch->target))
			r = take_private(v, f);
	}
	return r < 0 || !any ? r : bind_all_fixed(views, scratch, f);
}

/* What a command opened it opened by the one mount that there is of it, since the filter lets nobody make
 * more. Without a filter there may be others, and the superblock has to be asked, for which the kernel
 * waits until nobody on any processor looks at mounts. */
static int freeze(const struct view *v)
{
	if (filter_is_there() && !sabotage("seccomp"))
		return mount_change(v->mount_fd, MOUNT_ONE, MOUNT_ATTR_RDONLY, 0);
	return overlay_stop(v->context_fd);
}

int views_freeze(struct views *views)
{
	int result = 0;

	for (size_t i = 0; i < views->n; i++) {
		int r = views->v[i].context_fd == FD_NONE ? 0 : freeze(&views->v[i]);

		if (r < 0 && result != -EBUSY)
			result = r;
	}
	return result;
}

const struct view *views_around(const struct views *views, const char *path)
{
	for (size_t i = views->n; i > 0; i--)
		if (is_below(path, views->v[i - 1].target))
			return &views->v[i - 1];
	return NULL;
}

struct view *views_find(const struct views *views, const char *path)
{
	for (size_t i = 0; i < views->n; i++)
		if (strcmp(path, views->v[i].target) == 0)
			return &views->v[i];
	return NULL;
}

void views_close(struct views *views)
{
	for (size_t i = 0; i < views->n; i++) {
		close_fd(&views->v[i].mount_fd);
		close_fd(&views->v[i].context_fd);
		close_fd(&views->v[i].lower_fd);
		close_fd(&views->v[i].upper_fd);
	}
	free(views->v);
	*views = VIEWS_INIT;
}
