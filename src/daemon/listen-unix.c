/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket. */
#include "daemon/listen-unix.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG     128
#define DIR_MODE    0700
#define NOT_FOR_ALL 0177

static char *dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return xstrdup(".");
	return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

static int open_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	r = fs_mkdir_at(AT_FDCWD, dir, DIR_MODE);
	if (r < 0 && r != -EEXIST)
		return r;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Whoever can replace the socket can answer in our place. */
static int check_dir(int fd, const char *dir, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_sys(err, -errno, "look at", dir);
	if ((st.st_uid == geteuid() || st.st_uid == 0) &&
	    (!(st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_mode & S_ISVTX)))
		return 0;
	(void)error_set(err, -ATOLL_E_DENIED, "others can put their own socket into '%s'", dir);
	error_hint(err, "chmod go-w %s, or choose a directory of yours", dir);
	return -ATOLL_E_DENIED;
}

/* Is whoever made the socket that FD is connected to gone? A process he was just starting may have it
 * open still, for a moment. */
static bool is_orphan(int fd)
{
	struct ucred maker = { 0 };
	socklen_t len = sizeof(maker);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &len) == 0 && maker.pid > 0 &&
	       kill(maker.pid, 0) < 0 && errno == ESRCH;
}

/* A socket that nobody listens to is what a dead daemon left. */
static int clear_path(const struct sockaddr_un *sun)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd < 0)
		return -errno;
	/* To anything else nobody listens, either, and it is not ours. */
	if (lstat(sun->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	if (connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0) {
		if (!is_orphan(fd))
			return -EADDRINUSE;
	} else if (errno != ECONNREFUSED) {
		return errno == ENOENT ? 0 : -errno;
	}
	return fs_unlink_at(AT_FDCWD, sun->sun_path);
}

static int bind_here(int fd, const struct sockaddr_un *sun)
{
	mode_t mask;
	int r = clear_path(sun);

	if (r < 0)
		return r;
	mask = umask(NOT_FOR_ALL); /* there are no other threads yet that make files */
	if (bind(fd, (const struct sockaddr *)sun, sizeof(*sun)) < 0)
		r = -errno;
	(void)umask(mask);
	if (r == 0 && listen(fd, BACKLOG) < 0)
		r = -errno;
	return r;
}

static int bind_locked(int dir_fd, int fd, const struct sockaddr_un *sun)
{
	int r;

	if (flock(dir_fd, LOCK_EX) < 0)
		return -errno;
	r = bind_here(fd, sun);
	(void)flock(dir_fd, LOCK_UN);
	return r;
}

int listen_unix(const char *path, int *ret_fd, struct error *err)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	cleanup_free char *dir = dir_of(path);
	cleanup_close int fd = FD_NONE;
	cleanup_close int dir_fd = FD_NONE;
	int r;

	if (strlen(path) >= sizeof(sun.sun_path))
		return error_sys(err, -ENAMETOOLONG, "listen on", path);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	dir_fd = open_dir(dir);
	if (dir_fd < 0)
		return error_sys(err, dir_fd, "open", dir);
	r = check_dir(dir_fd, dir, err);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = fd < 0 ? -errno : bind_locked(dir_fd, fd, &sun);
	if (r == -EADDRINUSE) {
		(void)error_sys(err, r, "listen on", path);
		error_hint(err, "a daemon serves there already; --socket PATH names another place");
		return r;
	}
	if (r == -ENOTSOCK) {
		(void)error_set(
			err, r,
			"cannot listen on '%s': it is there, is no socket, and was left alone",
			path);
		error_hint(err, "--socket PATH takes a path where nothing is");
		return r;
	}
	if (r < 0)
		return error_sys(err, r, "listen on", path);
	*ret_fd = take_fd(&fd);
	return 0;
}

void listen_unix_remember(struct listener *l, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return;
	l->path = xstrdup(path);
	l->dev = st.st_dev;
	l->ino = st.st_ino;
}

void listen_unix_remove(struct listener *l)
{
	cleanup_free char *dir = l->path ? dir_of(l->path) : NULL;
	cleanup_close int dir_fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : FD_NONE;
	struct stat st;

	if (dir_fd >= 0 && flock(dir_fd, LOCK_EX) == 0 && lstat(l->path, &st) == 0 &&
	    st.st_dev == l->dev && st.st_ino == l->ino)
		(void)fs_unlink_at(AT_FDCWD, l->path);
	free(l->path);
	l->path = NULL;
}
