/* SPDX-License-Identifier: Apache-2.0 */
/* Directories rather than files where they hold nothing else: their files are replaced by rename. */
#include "helper/resolver.h"

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#define RUN        "/run/"
#define RUN_LEN    (sizeof(RUN) - 1)
#define FIXED_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)

static const char *const dirs[RESOLVER_DIRS] = { "/run/systemd/resolve", "/run/resolvconf" };

void resolvers_init(struct resolvers *rs)
{
	*rs = (struct resolvers){ .file_fd = FD_NONE };
	for (int i = 0; i < RESOLVER_DIRS; i++)
		rs->dir_fd[i] = FD_NONE;
}

void resolvers_done(struct resolvers *rs)
{
	for (int i = 0; i < RESOLVER_DIRS; i++)
		close_fd(&rs->dir_fd[i]);
	close_fd(&rs->file_fd);
	cleanup_freep(&rs->file);
}

static int bind_fixed(const char *path, int *ret_fd, struct failure *f)
{
	int r = mount_clone_at(AT_FDCWD, path, ret_fd);

	if (r == -ENOENT || r == -EACCES)
		return 0;
	if (r == 0)
		r = mount_change(*ret_fd, MOUNT_ALL, FIXED_ATTR, 0);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "bind '%s'", path) : 0;
}

static bool in_dirs(const char *path)
{
	for (int i = 0; i < RESOLVER_DIRS; i++) {
		size_t len = strlen(dirs[i]);

		if (strncmp(path, dirs[i], len) == 0 && path[len] == '/')
			return true;
	}
	return false;
}

int resolvers_make(struct resolvers *rs, struct failure *f)
{
	int r = 0;

	for (int i = 0; r == 0 && i < RESOLVER_DIRS; i++)
		r = bind_fixed(dirs[i], &rs->dir_fd[i], f);
	if (r < 0 || resolve_canonical("/etc/resolv.conf", &rs->file) < 0 ||
	    strncmp(rs->file, RUN, RUN_LEN) != 0 || in_dirs(rs->file))
		return r;
	return bind_fixed(rs->file, &rs->file_fd, f);
}

static int enter(int *dir_fd, const char *name)
{
	int r = fs_mkdir_at(*dir_fd, name, 0755);
	int fd;

	if (r < 0 && r != -EEXIST)
		return r;
	fd = openat(*dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	close_fd(dir_fd);
	*dir_fd = fd;
	return 0;
}

/* A place for PATH below the new /run: a directory, or a file in directories. */
static int make_place(int run_fd, const char *path, bool is_dir, int *ret_fd)
{
	cleanup_close int dir_fd = fcntl(run_fd, F_DUPFD_CLOEXEC, 0);
	cleanup_free char *names = xstrdup(path + RUN_LEN);
	char *name = names, *slash;
	int r = dir_fd < 0 ? -errno : 0;

	for (; r == 0 && (slash = strchr(name, '/')); name = slash + 1) {
		*slash = '\0';
		r = enter(&dir_fd, name);
	}
	if (r == 0 && !is_dir)
		return fs_create_at(dir_fd, name, 0644, ret_fd);
	if (r == 0)
		r = enter(&dir_fd, name);
	if (r == 0)
		*ret_fd = take_fd(&dir_fd);
	return r;
}

static int attach(int run_fd, const char *path, bool is_dir, int mount_fd, struct failure *f)
{
	cleanup_close int fd = FD_NONE;
	int r = mount_fd == FD_NONE ? 0 : make_place(run_fd, path, is_dir, &fd);

	if (r == 0 && mount_fd != FD_NONE)
		r = mount_attach_at(mount_fd, fd);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "mount '%s'", path) : 0;
}

int resolvers_attach(const struct resolvers *rs, int run_fd, struct failure *f)
{
	int r = 0;

	for (int i = 0; r == 0 && i < RESOLVER_DIRS; i++)
		r = attach(run_fd, dirs[i], true, rs->dir_fd[i], f);
	return r < 0 ? r : attach(run_fd, rs->file, false, rs->file_fd, f);
}
