/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's terminal belongs to the host's devpts, of which nothing else is shown; /dev/tty
 * opens it as always, and who asks for its name finds it as /dev/console.
 */
#include "helper/dev.h"

#include "fs/atomic.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[DEV_MOUNT_END_] = {
	[DEV_NULL] = "null",       [DEV_ZERO] = "zero",       [DEV_FULL] = "full",
	[DEV_RANDOM] = "random",   [DEV_URANDOM] = "urandom", [DEV_TTY] = "tty",
	[DEV_CONSOLE] = "console", [DEV_PTS] = "pts",         [DEV_MQUEUE] = "mqueue",
};

static const struct {
	const char *name, *to;
} links[] = {
	{ "ptmx", "pts/ptmx" },          { "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },  { "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
};

void dev_init(struct dev *d)
{
	for (int i = 0; i < DEV_MOUNT_END_; i++)
		d->fd[i] = FD_NONE;
}

void dev_done(struct dev *d)
{
	for (int i = 0; i < DEV_MOUNT_END_; i++)
		close_fd(&d->fd[i]);
}

/* What else there may be by that name is not wanted. The node itself is not to be changed, and what the
 * host mounts over its own later is not to be seen: the tree is not private yet. */
static int bind_device(const char *path, struct stat *st, int *ret_fd)
{
	cleanup_close int fd = FD_NONE;
	int r = mount_clone_at(AT_FDCWD, path, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISCHR(st->st_mode))
		return -ENOENT;
	r = mount_cut(fd, sabotage("readonly") ? 0 : MOUNT_ATTR_RDONLY);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The terminal behind descriptor FD, if its name here leads to it. */
static int bind_terminal(int fd, int *ret_fd)
{
	char link[32], path[PATH_MAX];
	struct stat want, st;
	ssize_t n;
	int r;

	if (!isatty(fd) || fstat(fd, &want) < 0)
		return -ENOTTY;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	r = bind_device(path, &st, ret_fd);
	if (r == 0 && (st.st_dev != want.st_dev || st.st_ino != want.st_ino)) {
		close_fd(ret_fd);
		return -ENOENT;
	}
	return r;
}

static int make_mounts(struct dev *d, struct failure *f)
{
	int r;

	for (int i = DEV_NULL; i <= DEV_TTY; i++) {
		struct stat st;
		char path[32];

		(void)snprintf(path, sizeof(path), "/dev/%s", names[i]);
		r = bind_device(path, &st, &d->fd[i]);
		if (r < 0 && r != -ENOENT)
			return failure_set(f, REPLY_NAMESPACE, r, "bind '%s'", path);
	}
	/* Without a name a terminal is still a terminal. */
	for (int fd = 0; fd <= 2 && d->fd[DEV_CONSOLE] == FD_NONE; fd++)
		(void)bind_terminal(fd, &d->fd[DEV_CONSOLE]);
	r = mount_devpts(&d->fd[DEV_PTS]);
	if (r < 0 && r != -ENODEV)
		return failure_set(f, REPLY_NAMESPACE, r, "make a private '/dev/pts'");
	r = access("/dev/mqueue", F_OK) < 0 || sabotage("ipc-ns")
	            ? 0
	            : mount_mqueue(&d->fd[DEV_MQUEUE]);
	if (r < 0 && r != -ENODEV)
		return failure_set(f, REPLY_NAMESPACE, r, "make a private '/dev/mqueue'");
	return 0;
}

static bool is_directory(int i)
{
	return i == DEV_PTS || i == DEV_MQUEUE;
}

static int make_place(int dir_fd, int i)
{
	cleanup_close int fd = FD_NONE;

	return is_directory(i) ? fs_mkdir_at(dir_fd, names[i], 0755)
	                       : fs_create_at(dir_fd, names[i], 0600, &fd);
}

static int make_places(const struct dev *d, int dir_fd, struct failure *f)
{
	int r = fs_mkdir_at(dir_fd, "shm", 0755);

	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "make '/dev/shm'");
	for (int i = 0; i < DEV_MOUNT_END_; i++) {
		r = d->fd[i] == FD_NONE ? 0 : make_place(dir_fd, i);
		if (r < 0)
			return failure_set(f, REPLY_NAMESPACE, r, "make '/dev/%s'", names[i]);
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		r = fs_symlink_at(links[i].to, dir_fd, links[i].name);
		if (r < 0)
			return failure_set(f, REPLY_NAMESPACE, r, "make '/dev/%s'", links[i].name);
	}
	return 0;
}

int dev_make(struct dev *d, int dir_fd, struct failure *f)
{
	int r = make_mounts(d, f);

	return r < 0 ? r : make_places(d, dir_fd, f);
}

int dev_attach(struct dev *d, int dir_fd, struct failure *f)
{
	for (int i = 0; i < DEV_MOUNT_END_; i++) {
		cleanup_close int mount_fd = take_fd(&d->fd[i]);
		cleanup_close int fd = FD_NONE;
		int r;

		if (mount_fd == FD_NONE)
			continue;
		fd = openat(dir_fd, names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : mount_attach_at(mount_fd, fd);
		if (r < 0)
			return failure_set(f, REPLY_NAMESPACE, r, "mount '/dev/%s'", names[i]);
	}
	return 0;
}
