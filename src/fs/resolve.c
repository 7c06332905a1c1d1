/* SPDX-License-Identifier: Apache-2.0 */
/* Paths below a root, opened by openat2(2) so that nothing can lead out of it. */
#include "fs/resolve.h"

#include "fs/fs-impl.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fs_open_below(int dir_fd, const char *path, int flags, int *ret_fd)
{
	const struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
		           RESOLVE_NO_XDEV,
	};
	int fd;

	do {
		fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static bool component_ok(const char *c, size_t len)
{
	if (len == 0)
		return false;
	if (c[0] != '.' || len > 2)
		return true;
	return len == 2 && c[1] != '.';
}

static int check_path(const char *path, size_t len)
{
	size_t from = 0;

	if (len > LIMIT_PATH)
		return -ATOLL_E_TOO_BIG;
	if (len == 0)
		return 0;
	for (size_t i = 0; i <= len; i++) {
		if (i < len && path[i] != '/')
			continue;
		if (!component_ok(path + from, i - from))
			return -EINVAL;
		from = i + 1;
	}
	return 0;
}

/* Length of the longest run of whole components at PATH that one call can take; 0: none. */
static size_t piece_len(const char *path, size_t len)
{
	size_t n = PATH_MAX - 1;

	if (len <= n)
		return len;
	while (n > 0 && path[n] != '/')
		n--;
	return n;
}

/* PATH (LEN bytes, checked), in as many calls as it needs; FLAGS are for the last of them. */
static int open_pieces(int root_fd, const char *path, size_t len, int flags, int *ret_fd)
{
	cleanup_close int at = FD_NONE;
	char piece[PATH_MAX];
	int fd;
	int r;

	for (;;) {
		size_t n = piece_len(path, len);
		bool last = n == len;

		if (n == 0 && len > 0)
			return -ENAMETOOLONG;
		memcpy(piece, path, n);
		piece[n] = '\0';
		r = fs_open_below(at == FD_NONE ? root_fd : at, n == 0 ? "." : piece,
		                  last ? flags : O_PATH | O_DIRECTORY, &fd);
		if (r < 0)
			return r;
		close_fd(&at);
		if (last)
			break;
		at = fd;
		path += n + 1;
		len -= n + 1;
	}
	*ret_fd = fd;
	return 0;
}

static int open_path(int root_fd, const char *path, size_t len, int flags, int *ret_fd)
{
	int r = check_path(path, len);

	return r < 0 ? r : open_pieces(root_fd, path, len, flags, ret_fd);
}

int resolve_dir(int root_fd, const char *path, int *ret_fd)
{
	return open_path(root_fd, path, strlen(path), O_RDONLY | O_DIRECTORY, ret_fd);
}

int resolve_dir_path(int root_fd, const char *path, int *ret_fd)
{
	return open_path(root_fd, path, strlen(path), O_PATH | O_DIRECTORY, ret_fd);
}

int resolve_parent(int root_fd, const char *path, int *ret_fd, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash != NULL ? slash + 1 : path;
	size_t len = slash != NULL ? (size_t)(slash - path) : 0;
	int r;

	if (!component_ok(name, strlen(name)) || slash == path)
		return -EINVAL;
	r = open_path(root_fd, path, len, O_RDONLY | O_DIRECTORY, ret_fd);
	if (r == -EACCES)
		r = open_path(root_fd, path, len, O_PATH | O_DIRECTORY, ret_fd);
	if (r < 0)
		return r;
	*ret_name = name;
	return 0;
}

static int check_regular(const struct fs_stat *st)
{
	if (S_ISREG(st->mode))
		return 0;
	if (S_ISDIR(st->mode))
		return -EISDIR;
	return S_ISLNK(st->mode) ? -ELOOP : -ENXIO;
}

int resolve_file(int root_fd, const char *path, int *ret_fd)
{
	cleanup_close int at = FD_NONE;
	char proc[PATH_MAX];
	struct fs_stat st;
	int fd;
	int r;

	/* Looked at first and opened through the same descriptor: opening a device can act on it. */
	r = open_path(root_fd, path, strlen(path), O_PATH | O_NOFOLLOW, &at);
	if (r == 0)
		r = fs_stat_at(at, "", 0, &st);
	if (r == 0)
		r = check_regular(&st);
	if (r == 0)
		r = fs_proc_path(at, "", proc);
	if (r < 0)
		return r;
	fd = open(proc, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int resolve_file_seen(int dir_fd, const char *name, int *ret_fd)
{
	cleanup_close int fd = FD_NONE;
	struct stat st;

	if (!component_ok(name, strlen(name)) || strchr(name, '/'))
		return -EINVAL;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
	*ret_fd = take_fd(&fd);
	return 0;
}

int resolve_link(int root_fd, const char *path, int *ret_fd)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;
	int r;

	r = open_path(root_fd, path, strlen(path), O_PATH | O_NOFOLLOW, &fd);
	if (r == 0)
		r = fs_stat_at(fd, "", 0, &st);
	if (r == 0 && !S_ISLNK(st.mode))
		r = -EINVAL;
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int resolve_fd(int fd, char **ret_path)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	if (n < 0 || n == sizeof(path))
		return n < 0 ? -errno : -ENAMETOOLONG;
	*ret_path = xstrndup(path, (size_t)n);
	return 0;
}

int resolve_canonical(const char *path, char **ret_path)
{
	char *p = realpath(path, NULL);

	if (p == NULL)
		return -errno;
	*ret_path = p;
	return 0;
}
