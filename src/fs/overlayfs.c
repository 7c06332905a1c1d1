/* SPDX-License-Identifier: Apache-2.0 */
/* Marks in upper directories, and the mount itself through the new mount API. */
#include "fs/overlayfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/fs-impl.h"
#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/limits.h"

static const char *const opaque_names[] = {
	[OVERLAY_TRUSTED] = "trusted.overlay.opaque",
	[OVERLAY_USER] = "user.overlay.opaque",
};

static const char *const origin_names[] = {
	[OVERLAY_TRUSTED] = "trusted.overlay.origin",
	[OVERLAY_USER] = "user.overlay.origin",
};

bool overlay_is_whiteout(const struct fs_stat *st)
{
	return S_ISCHR(st->mode) && st->rdev == 0;
}

int overlay_is_opaque(int dir_fd, const char *name, enum overlay_marks marks)
{
	char path[PATH_MAX], value[4];
	ssize_t n;
	int r = fs_proc_path(dir_fd, name, path);

	if (r < 0)
		return r;
	n = *name ? lgetxattr(path, opaque_names[marks], value, sizeof(value))
	          : getxattr(path, opaque_names[marks], value, sizeof(value));
	/* ERANGE: longer than any mark the kernel makes. */
	if (n < 0)
		return errno == ENODATA || errno == ENOTSUP || errno == ERANGE ? 0 : -errno;
	return n == 1 && value[0] == 'y';
}

/* The kernel's struct ovl_fb: version, magic, length, flags, type, the filesystem's UUID; then the
 * handle as name_to_handle_at() gives it. */
#define ORIGIN_MAGIC  0xfb
#define ORIGIN_TYPE   4
#define ORIGIN_HANDLE 21

static const char *const noted_names[] = {
	[OVERLAY_TRUSTED] = "trusted.overlay.atoll.origin",
	[OVERLAY_USER] = "user.overlay.atoll.origin",
};

int overlay_note_origin(int dir_fd, const char *name, enum overlay_marks marks, uint64_t ino)
{
	char path[PATH_MAX], text[24];
	int r = fs_proc_path(dir_fd, name, path);
	int n = snprintf(text, sizeof(text), "%" PRIu64, ino);

	if (r < 0)
		return r;
	return lsetxattr(path, noted_names[marks], text, (size_t)n, 0) < 0 ? -errno : 0;
}

static uint64_t noted_ino(const char *path, enum overlay_marks marks)
{
	char text[24];
	ssize_t n = lgetxattr(path, noted_names[marks], text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}

bool overlay_origin_known(struct fs_id origin)
{
	return origin.ino || origin.gen;
}

bool overlay_origin_is(struct fs_id origin, struct fs_id id)
{
	return origin.gen ? origin.gen == id.gen : origin.ino && origin.ino == id.ino;
}

int overlay_origin(int dir_fd, const char *name, enum overlay_marks marks, struct fs_id *ret)
{
	char path[PATH_MAX];
	unsigned char value[ORIGIN_HANDLE + MAX_HANDLE_SZ];
	ssize_t n;
	int r = fs_proc_path(dir_fd, name, path);

	if (r < 0)
		return r;
	n = lgetxattr(path, origin_names[marks], value, sizeof(value));
	if (n < 0 && errno != ENODATA && errno != ENOTSUP)
		return -errno;
	*ret = (struct fs_id){ 0 };
	if (n > ORIGIN_HANDLE && value[0] == 0 && value[1] == ORIGIN_MAGIC && value[2] == n)
		ret->gen = fs_handle_gen(value[ORIGIN_TYPE], value + ORIGIN_HANDLE,
		                         (size_t)n - ORIGIN_HANDLE);
	else
		ret->ino = noted_ino(path, marks);
	return n >= 0 || ret->ino;
}

int overlay_set_opaque(int dir_fd, const char *name, enum overlay_marks marks)
{
	char path[PATH_MAX];
	int r = fs_proc_path(dir_fd, name, path);

	if (r < 0)
		return r;
	return lsetxattr(path, opaque_names[marks], "y", 1, 0) < 0 ? -errno : 0;
}

static bool is_mark(const char *name)
{
	return strncmp(name, "trusted.overlay.", 16) == 0 ||
	       strncmp(name, "user.overlay.", 13) == 0;
}

static int strip_names(const char *path, const char *list, ssize_t len)
{
	for (ssize_t i = 0; i < len; i += (ssize_t)strlen(list + i) + 1)
		if (is_mark(list + i) && lremovexattr(path, list + i) < 0 && errno != ENODATA)
			return -errno;
	return 0;
}

/* An ordinary owner may not touch a user.* attribute of what he may not write to. */
static int strip_locked(int dir_fd, const char *name, const char *path, const char *list,
                        ssize_t len)
{
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st), back;

	if (r < 0)
		return r;
	if (st.mode & S_IWUSR)
		return -EACCES;
	r = fs_set_mode(dir_fd, name, (st.mode & 07777) | S_IWUSR);
	if (r < 0)
		return r;
	r = strip_names(path, list, len);
	back = fs_set_mode(dir_fd, name, st.mode & 07777);
	return r < 0 ? r : back;
}

int overlay_strip(int dir_fd, const char *name)
{
	cleanup_free char *list = NULL;
	char path[PATH_MAX];
	ssize_t len;
	int r = fs_proc_path(dir_fd, name, path);

	if (r < 0)
		return r;
	len = llistxattr(path, NULL, 0);
	if (len <= 0)
		return len == 0 || errno == ENOTSUP ? 0 : -errno;
	if (len > (ssize_t)LIMIT_XATTRS)
		return -E2BIG;
	list = malloc((size_t)len + 1);
	if (!list)
		return -ENOMEM;
	len = llistxattr(path, list, (size_t)len);
	if (len < 0)
		return -errno;
	r = strip_names(path, list, len);
	return r == -EACCES ? strip_locked(dir_fd, name, path, list, len) : r;
}

int overlay_make_whiteout(int dir_fd, const char *name)
{
	return mknodat(dir_fd, name, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
}

/* ---- mounting ---- */

static const struct {
	const char *key, *value;
} options[] = {
	{ "index", "off" },   { "metacopy", "off" },   { "redirect_dir", "nofollow" },
	{ "xino", "off" },    { "nfs_export", "off" }, { "uuid", "null" },
	{ "volatile", NULL },
};

static int set_options(int fs_fd)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		unsigned cmd = options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		/* Options an older kernel does not know only tidy up. */
		if (fsconfig(fs_fd, cmd, options[i].key, options[i].value, 0) < 0 &&
		    strcmp(options[i].key, "uuid") != 0)
			return -errno;
	}
	return 0;
}

static int set_layer(int fs_fd, const char *key, const char *old_key, int fd)
{
	char path[64];

	if (fsconfig(fs_fd, FSCONFIG_SET_FD, key, NULL, fd) == 0)
		return 0;
	/* Below 6.13 layers are paths; one through /proc needs no escaping. */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fsconfig(fs_fd, FSCONFIG_SET_STRING, old_key, path, 0) < 0 ? -errno : 0;
}

int overlay_mount(int lower_fd, int upper_fd, int work_fd, int target_fd)
{
	cleanup_close int fs_fd = fsopen("overlay", FSOPEN_CLOEXEC);
	cleanup_close int mnt_fd = FD_NONE;
	int r;

	if (fs_fd < 0)
		return -errno;
	r = set_options(fs_fd);
	if (r >= 0)
		r = set_layer(fs_fd, "lowerdir+", "lowerdir", lower_fd);
	if (r >= 0)
		r = set_layer(fs_fd, "upperdir", "upperdir", upper_fd);
	if (r >= 0)
		r = set_layer(fs_fd, "workdir", "workdir", work_fd);
	if (r >= 0)
		r = fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	mnt_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
	if (mnt_fd < 0)
		return -errno;
	return move_mount(mnt_fd, "", target_fd, "",
	                  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
	               ? -errno
	               : 0;
}

int overlay_freeze(const char *target)
{
	return mount(NULL, target, NULL, MS_REMOUNT | MS_RDONLY | MS_NODEV, NULL) < 0 ? -errno : 0;
}

int overlay_thaw(const char *target)
{
	return mount(NULL, target, NULL, MS_REMOUNT | MS_NODEV, NULL) < 0 ? -errno : 0;
}

int overlay_umount(const char *target)
{
	if (umount2(target, UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT)
		return 0;
	return -errno;
}

int overlay_forget_volatile(int work_fd)
{
	cleanup_close int fd =
		openat(work_fd, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return remove_tree_at(fd, "incompat");
}
