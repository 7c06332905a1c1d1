/* SPDX-License-Identifier: Apache-2.0 */
/* Thin wrappers of the mount system calls that work on descriptors. */
#include "helper/mount-fd.h"

#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int mount_open_dir(const char *path, int *ret_fd)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int mount_open_target(const char *path, int *ret_fd)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	if (fd < 0)
		return -errno;
	*ret_fd = (int)fd;
	return 0;
}

/* Recursive: an ordinary user may not uncover what is below a mount. */
#define CLONE_FLAGS ((unsigned)(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE))

static int clone_tree(int fd, const char *path, unsigned flags, int *ret_fd)
{
	int tree = open_tree(fd, path, CLONE_FLAGS | flags);

	if (tree < 0)
		return -errno;
	*ret_fd = tree;
	return 0;
}

int mount_clone(int fd, int *ret_fd)
{
	return clone_tree(fd, "", AT_EMPTY_PATH, ret_fd);
}

int mount_clone_at(int dir_fd, const char *name, int *ret_fd)
{
	return clone_tree(dir_fd, name, AT_SYMLINK_NOFOLLOW, ret_fd);
}

struct option {
	const char *key, *value;
};

static int make(const char *type, const struct option *options, unsigned attrs, int *ret_fd)
{
	cleanup_close int fs = fsopen(type, FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return -errno;
	for (; options && options->key; options++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options->key, options->value, 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, attrs);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

#define NOTHING_SPECIAL ((unsigned)(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC))

int mount_tmpfs(const char *mode, int *ret_fd)
{
	const struct option options[] = { { "mode", mode }, { NULL, NULL } };

	return make("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, ret_fd);
}

int mount_proc(int *ret_fd)
{
	return make("proc", NULL, NOTHING_SPECIAL, ret_fd);
}

int mount_devpts(int *ret_fd)
{
	/* The group "tty", where it has a name here. */
	static const struct option options[] = { { "gid", "5" },
		                                 { "ptmxmode", "0666" },
		                                 { "mode", "0620" },
		                                 { NULL, NULL } };
	const unsigned attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	int r = make("devpts", options, attrs, ret_fd);

	return r == -EINVAL ? make("devpts", options + 1, attrs, ret_fd) : r;
}

int mount_mqueue(int *ret_fd)
{
	return make("mqueue", NULL, NOTHING_SPECIAL, ret_fd);
}

int mount_change(int fd, enum mount_scope scope, uint64_t set, uint64_t clear)
{
	unsigned flags = AT_EMPTY_PATH | (scope == MOUNT_ALL ? AT_RECURSIVE : 0);
	struct mount_attr attr = { .attr_set = set, .attr_clr = clear };

	return mount_setattr(fd, "", flags, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mount_cut(int fd, uint64_t set)
{
	struct mount_attr attr = { .attr_set = set, .propagation = MS_PRIVATE };

	return mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mount_attach_at(int mount_fd, int target_fd)
{
	if (move_mount(mount_fd, "", target_fd, "",
	               MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int mount_bind_here(const char *path)
{
	return mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

int mount_attach(int mount_fd, const char *path)
{
	cleanup_close int fd = FD_NONE;
	int r = mount_open_target(path, &fd);

	return r < 0 ? r : mount_attach_at(mount_fd, fd);
}
