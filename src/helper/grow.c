/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The new mount is attached first, since nothing can be attached to one that is not. What it covers is
 * still reached by the descriptor of the directory. The root is no different, but has to be left for the
 * new one, and then goes with all that was mounted below it.
 */
#include "helper/grow.h"

#include "fs/atomic.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int show_link(int from_fd, const char *name, int to_fd)
{
	char text[PATH_MAX];
	ssize_t n = readlinkat(from_fd, name, text, sizeof(text));

	if (n < 0 || n == (ssize_t)sizeof(text))
		return n < 0 ? -errno : -ENAMETOOLONG;
	text[n] = '\0';
	return fs_symlink_at(text, to_fd, name);
}

static int show_entry(int from_fd, const char *name, int to_fd)
{
	cleanup_close int entry_fd = openat(from_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int mount_fd = FD_NONE;
	cleanup_close int made_fd = FD_NONE;
	cleanup_close int place_fd = FD_NONE;
	struct stat st;
	int r;

	if (entry_fd < 0 || fstat(entry_fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return show_link(from_fd, name, to_fd);
	r = mount_clone(entry_fd, &mount_fd);
	if (r == 0)
		r = S_ISDIR(st.st_mode) ? fs_mkdir_at(to_fd, name, 0755)
		                        : fs_create_at(to_fd, name, 0600, &made_fd);
	if (r < 0)
		return r;
	place_fd = openat(to_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return place_fd < 0 ? -errno : mount_attach_at(mount_fd, place_fd);
}

/* What goes meanwhile is not to be seen. */
static int show_all(int from_fd, int to_fd)
{
	int fd = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int r = dir ? 0 : -errno;

	if (!dir && fd >= 0)
		(void)close(fd);
	while (dir && (r == 0 || r == -ENOENT) && (errno = 0, d = readdir(dir)) != NULL)
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = show_entry(from_fd, d->d_name, to_fd);
	if (dir && (r == 0 || r == -ENOENT))
		r = -errno; /* of a list that breaks off; else 0 */
	if (dir)
		(void)closedir(dir);
	return r;
}

/* The names of REST, each in the one before. */
static int make_missing(int dir_fd, char *rest)
{
	cleanup_close int held = FD_NONE;
	char *name;
	int r = 0;

	while (r == 0 && (name = strsep(&rest, "/")) != NULL) {
		int fd;

		r = fs_mkdir_at(dir_fd, name, 0755);
		if (r < 0)
			return r;
		fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
		close_fd(&held);
		held = dir_fd = fd;
	}
	return r;
}

static int leave_root(int new_fd)
{
	if (fchdir(new_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0)
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}

static int grow_dir(int dir_fd, bool is_root, char *missing)
{
	cleanup_close int mount_fd = FD_NONE;
	struct stat st;
	char mode[8];
	int r;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	(void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(st.st_mode & 07777));
	r = mount_tmpfs(mode, &mount_fd);
	if (r == 0)
		r = mount_attach_at(mount_fd, dir_fd);
	if (r == 0)
		r = show_all(dir_fd, mount_fd);
	if (r == 0)
		r = make_missing(mount_fd, missing);
	if (r == 0)
		r = mount_change(mount_fd, MOUNT_ONE, MOUNT_ATTR_RDONLY, 0);
	return r == 0 && is_root ? leave_root(mount_fd) : r;
}

int grow_path(const char *path)
{
	cleanup_free char *copy = xstrdup(path + 1);
	cleanup_close int dir_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *rest = copy;

	while (dir_fd >= 0 && rest) {
		char *slash = strchr(rest, '/');
		int fd;

		if (slash)
			*slash = '\0';
		fd = openat(dir_fd, rest, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (slash)
			*slash = '/';
		if (fd < 0)
			return errno == ENOENT ? grow_dir(dir_fd, rest == copy, rest) : -errno;
		close_fd(&dir_fd);
		dir_fd = fd;
		rest = slash ? slash + 1 : NULL;
	}
	return dir_fd < 0 ? -errno : 0;
}
