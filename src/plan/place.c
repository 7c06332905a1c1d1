/* SPDX-License-Identifier: Apache-2.0 */
/* Where a resource may be shown, and what speaks against it. */
#include "plan/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define ENTRIES_MAX 512 /* that are shown one by one beside a directory that is missing */

static char *deny(const char *at, const char *why)
{
	return xasprintf("'%s' %s; the directory is at its own path", at, why);
}

/* What a command cannot do without, or is mounted anew for it; and what holds everybody's. */
static bool is_the_systems(const char *path)
{
	static const char *const dirs[] = {
		"/bin",   "/boot", "/dev",  "/etc", "/lib", "/lib32",
		"/lib64", "/proc", "/sbin", "/sys", "/usr",
	};
	static const char *const tops[] = {
		"/home", "/media", "/mnt", "/opt", "/run", "/srv", "/tmp", "/var",
	};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (path_below(path, dirs[i]))
			return true;
	for (size_t i = 0; i < sizeof(tops) / sizeof(tops[0]); i++)
		if (strcmp(path, tops[i]) == 0)
			return true;
	return false;
}

/* As far as PATH is there, links resolved; behind that as it is. -ENOTDIR: something is in its way. */
static int resolve_there(const char *path, char **ret, size_t *ret_there)
{
	cleanup_free char *there = xstrdup(path);
	cleanup_free char *real = NULL;
	struct stat st;
	char *slash;
	int r;

	while ((r = resolve_canonical(*there ? there : "/", &real)) == -ENOENT && *there) {
		slash = strrchr(there, '/');
		/* A link that leads nowhere is not something that is missing. */
		if (!slash || lstat(there, &st) == 0)
			return -ENOTDIR;
		*slash = '\0';
	}
	if (r == 0 && (stat(real, &st) < 0 || !S_ISDIR(st.st_mode)))
		r = -ENOTDIR;
	if (r < 0)
		return r;
	if (strcmp(real, "/") == 0)
		*real = '\0';
	*ret_there = strlen(real);
	*ret = xasprintf("%s%s", real, path + strlen(there));
	return 0;
}

/* Can what is in DIR be shown anew, with one more beside it (helper/grow.h)? */
static bool can_grow(const char *dir)
{
	const char *path = *dir ? dir : "/";
	DIR *d = opendir(path);
	struct statfs fs;
	unsigned n = 0;

	while (d && n <= ENTRIES_MAX && readdir(d))
		n++;
	if (d)
		(void)closedir(d);
	if (!d || n > ENTRIES_MAX)
		return false;
	/* The first root of all cannot be left. */
	return *dir ||
	       (statfs(path, &fs) == 0 && fs.f_type != RAMFS_MAGIC && fs.f_type != TMPFS_MAGIC);
}

static bool holds_ours(const struct plan_op *op, const char *to)
{
	bool holds = path_below(op->a->home, to) || path_below(to, op->a->home);

	for (size_t i = 0; i < op->boxes.n; i++)
		holds |= path_below(op->boxes.v[i].area, to);
	return holds;
}

static bool meets_resource(const struct plan_op *op, const char *to)
{
	bool meets = false;

	for (size_t i = 0; i < op->boxes.n; i++)
		meets |= path_below(op->boxes.v[i].root, to) || path_below(to, op->boxes.v[i].root);
	return meets;
}

static char *home_dir(void)
{
	cleanup_free char *given = store_user_dir();
	char *home = NULL;

	return given && resolve_canonical(given, &home) == 0 ? home : NULL;
}

/* Shown as it is by one of PATHS: nothing is made there. */
static bool is_given(const char *const *paths, const char *to)
{
	for (size_t i = 0; paths && paths[i]; i++) {
		cleanup_free char *path = NULL;

		if (resolve_canonical(paths[i], &path) == 0 && path_below(to, path))
			return true;
	}
	return false;
}

/* The plan's own /tmp or /var/tmp is what the command has, and may hold something else of that name. */
static bool tmp_takes(const struct plan_op *op, char *below)
{
	cleanup_close int dir_fd = open(op->boxes.v[0].area, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *rest = below, *name;

	while (dir_fd >= 0 && (name = strsep(&rest, "/")) != NULL) {
		int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return errno == ENOENT;
		close_fd(&dir_fd);
		dir_fd = fd;
	}
	return dir_fd >= 0;
}

/* What holds it is shown as it is, and nothing is made there. */
static bool is_fixed(const char *to, const char *home, const struct atoll_fence *fence)
{
	return fence && (is_given(fence->rw, to) || is_given(fence->ro, to) ||
	                 (fence->home == ATOLL_HOME_REAL && home && path_below(to, home)));
}

/* THERE: how much of it is there. Where the command has something of the plan's own, it takes new
 * directories. */
static bool can_make(const struct plan_op *op, char *to, size_t there, const char *home)
{
	cleanup_free char *below = views_in_tmp(to);
	bool can;

	if (below)
		return tmp_takes(op, below);
	if (to[there] == '\0' || (home && path_below(to, home)))
		return true;
	to[there] = '\0';
	can = can_grow(to);
	to[there] = '/';
	return can;
}

/* NULL, or what speaks against it. THERE: how much of TO is there. */
static const char *why_not(const struct plan_op *op, const char *root, char *to, size_t there,
                           const struct atoll_fence *fence)
{
	cleanup_free char *home = home_dir();

	if (*to == '\0' || is_the_systems(to))
		return "is the system's own here";
	if (meets_resource(op, to))
		return "holds a resource of the plan, or lies in one";
	if (holds_ours(op, to))
		return "holds what is Atoll's own here, or lies in it";
	if (home && strcmp(home, to) != 0 && path_below(home, to))
		return "holds the home directory";
	if (mount_below(root) != 0)
		return "would lose what is mounted in the directory";
	if (to[there] != '\0' && is_fixed(to, home, fence))
		return "is not there, and what would hold it is shown as it is";
	return can_make(op, to, there, home) ? NULL
	                                     : "is not there, and cannot be made beside what is";
}

/* The first one that is a directory. */
static const char *first_directory(const struct plan_op *op)
{
	struct stat st;

	for (size_t i = 0; i < op->boxes.n; i++)
		if (*op->boxes.v[i].root == '/' && stat(op->boxes.v[i].root, &st) == 0 &&
		    S_ISDIR(st.st_mode))
			return op->boxes.v[i].root;
	return NULL;
}

int place_choose(const struct plan_op *op, const char *at, const struct atoll_fence *fence,
                 struct views *views, char **ret_why)
{
	const char *root = at ? first_directory(op) : NULL;
	cleanup_free char *to = NULL;
	const char *why;
	size_t there = 0;
	int r;

	if (!root)
		return 0;
	r = resolve_there(at, &to, &there);
	if (r == 0 && strcmp(to, root) == 0)
		return 0;
	why = r == -EACCES ? "cannot be looked at here"
	      : r < 0      ? "cannot be a directory here"
	                   : why_not(op, root, to, there, fence);
	if (!why)
		return views_move(views, root, to);
	*ret_why = deny(at, why);
	return 0;
}

char *place_none(const char *at)
{
	return at ? deny(at, "would need mounts of the command's own") : NULL;
}
