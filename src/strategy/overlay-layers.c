/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of an overlay: making a workspace of them, and where commands and root see it. */
#include "strategy/overlay-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "strategy/overlay-base.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define HOST_MOUNT "m"

enum overlay_marks overlay_our_marks(void)
{
	return geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER;
}

char *overlay_layer_path(const struct atoll_participant *p, char layer)
{
	return xasprintf("%s/%c%" PRIu64, p->work, layer, p->generation);
}

int overlay_open_dir(struct atoll_participant *p, const char *path, int *ret_fd)
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

/* An area inside the root must not show up in the view. The root of another sandbox is left alone too, but has to:
 * its own view is mounted there. One further down, as in a git directory, would need its parents in the upper,
 * where they would count as touched: commands have an empty directory mounted there (plan/fence.c). */
int overlay_cover_areas(const struct atoll_participant *p, int upper_fd)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && p->excludes && i < p->excludes->n; i++)
		if (strategy_is_area(p->excludes->v[i]) && !strchr(p->excludes->v[i], '/'))
			r = overlay_make_whiteout(upper_fd, p->excludes->v[i]);
	return r;
}

/* The view's root has the attributes of the upper's, so the upper's are the resource's. */
static int make_upper(struct atoll_participant *p, int dir_fd)
{
	cleanup_close int root_fd = FD_NONE, upper_fd = FD_NONE;
	char upper[32], work[32];
	int r = overlay_open_dir(p, p->root, &root_fd);

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
	if (r >= 0)
		r = overlay_cover_areas(p, upper_fd);
	if (r >= 0)
		r = copy_dir_meta(root_fd, upper_fd);
	return r < 0 ? error_sys(&p->err, r, "make the workspace in", p->work) : 0;
}

static int make_workspace(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	int r = overlay_open_dir(p, p->work, &dir_fd);

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

int overlay_create(struct atoll_participant *p)
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

int overlay_unmount(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	int r = is_mounted(p) ? overlay_umount(path) : 0;

	return r < 0 ? error_sys(&p->err, r, "unmount", path) : 0;
}

/* Makes the next generation when this one is used up. What is left of the old one goes first: a
 * name of an inode that a commit installed may be among it, and its removal changes that inode's
 * ctime, which after T0 would pass for somebody's edit. */
int overlay_renew(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	int r;

	if (!p->stale)
		return 0;
	r = overlay_unmount(p);
	if (r >= 0)
		r = overlay_open_dir(p, p->work, &dir_fd);
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
	cleanup_free char *upper = overlay_layer_path(p, 'u'), *work = overlay_layer_path(p, 'k');
	cleanup_close int root_fd = FD_NONE, upper_fd = FD_NONE, work_fd = FD_NONE;
	cleanup_close int area_fd = FD_NONE, at_fd = FD_NONE;
	int r = overlay_open_dir(p, p->area, &area_fd);

	if (r >= 0)
		r = overlay_open_dir(p, p->root, &root_fd);
	if (r >= 0)
		r = overlay_open_dir(p, upper, &upper_fd);
	if (r >= 0)
		r = overlay_open_dir(p, work, &work_fd);
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
	return overlay_unmount(p);
}

int overlay_path(struct atoll_participant *p, char **ret_path)
{
	cleanup_free char *path = mount_path(p);
	int r = overlay_renew(p);

	if (r >= 0)
		r = drop_frozen(p);
	if (r < 0)
		return r;
	if (geteuid() != 0) {
		(void)error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is an overlay, which only the commands of its plan can see",
		                p->root);
		error_hint(&p->err,
		           "atoll exec %s -- CMD works in it; atoll start --strategy %s "
		           "makes one with a path",
		           p->plan, p->ops == &strategy_overlay ? "copy" : "worktree");
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

int overlay_mounts(struct atoll_participant *p)
{
	cleanup_free char *upper = NULL, *work = NULL, *host = mount_path(p);
	int r = overlay_renew(p);

	if (r >= 0)
		r = drop_frozen(p);
	if (r < 0)
		return r;
	/* One upper must not be mounted twice. */
	if (is_mounted(p))
		return atoll_participant_mount(p, p->root, host, NULL, NULL);
	upper = overlay_layer_path(p, 'u');
	work = overlay_layer_path(p, 'k');
	return atoll_participant_mount(p, p->root, p->root, upper, work);
}

/* A mount somebody still writes through would change the upper under us (invariant 2). */
int overlay_stop_writers(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);
	int r = is_mounted(p) ? overlay_freeze(path) : 0;

	if (r < 0) {
		(void)error_sys(&p->err, r, "stop writers below", path);
		error_hint(&p->err, "end the programs that write there, then try again");
	}
	return r;
}

void overlay_let_write(struct atoll_participant *p)
{
	cleanup_free char *path = mount_path(p);

	if (is_mounted(p))
		(void)overlay_thaw(path);
}
