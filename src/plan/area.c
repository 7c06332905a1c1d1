/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the private directory of a sandbox lies.
 *
 * rename(2) does not cross mounts, not even two binds of one filesystem, so staged entries must
 * lie on the mount of the resource: in the store when that is there; else in ".atoll-<uid>" in
 * the highest directory on that mount where we may write (outside every registered resource if
 * there is one, so that it does not show up in a view); else inside the root, left out of it.
 *
 * Where that directory is part of a git working tree, ".atoll-<uid>" lies in the git directory
 * of that tree: git neither adds nor removes files there. Every other area outside the store holds
 * a .gitignore of "*", for a git directory on another mount. It is a file of the area, not of the
 * directory around it: it comes and goes with the area, and no other process waits for it.
 */
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/project.h"
#include "fs/remove.h"
#include "fs/stat.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/random.h"

#define AREA_NAME_LEN   16
#define MAKE_ATTEMPTS   8
#define REMOVE_ATTEMPTS 20
#define REMOVE_PAUSE_NS INT64_C(5000000)
#define PRIVATE_MODE    0700

void area_dir_name(char out[AREA_DIR_LEN])
{
	(void)snprintf(out, AREA_DIR_LEN, STRATEGY_AREA_PREFIX "%u", (unsigned)geteuid());
}

/* We may make entries there, and what has our name there is ours. */
static bool is_usable(int dir_fd)
{
	char name[AREA_DIR_LEN];
	struct fs_stat st;
	int r;

	if (faccessat(dir_fd, "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH) < 0)
		return false;
	area_dir_name(name);
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == -ENOENT)
		return true;
	return r == 0 && S_ISDIR(st.mode) && st.uid == geteuid() &&
	       (st.mode & 07777) == PRIVATE_MODE;
}

/* Directories above ROOT on the same mount, the nearest first. */
static void list_ancestors(const char *root, const struct mount_info *mount, struct strlist *ret)
{
	cleanup_free char *path = xstrdup(root);
	char *slash;

	while (strcmp(path, "/") != 0 && (slash = strrchr(path, '/')) != NULL) {
		cleanup_close int fd = FD_NONE;
		struct mount_info mi;

		slash[slash == path ? 1 : 0] = '\0';
		fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || mount_info(fd, &mi) < 0 || !mount_same(&mi, mount))
			return;
		strlist_add(ret, is_usable(fd) ? path : "");
	}
}

static int note_root(void *ctx, const char *root, const char *root_id)
{
	(void)root_id;
	strlist_add(ctx, root);
	return 0;
}

static bool in_resource(const struct strlist *roots, const char *path)
{
	for (size_t i = 0; i < roots->n; i++)
		if (path_below(path, roots->v[i]))
			return true;
	return false;
}

/* As git itself tells: HEAD, objects and refs. A link or a file (of a linked worktree) is none. */
static int open_git_dir(int dir_fd, int *ret_fd)
{
	static const char *const parts[] = { "HEAD", "objects", "refs" };
	cleanup_close int fd =
		openat(dir_fd, ".git", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (faccessat(fd, parts[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The git directory of the working tree that DIR is part of, when an area can be made there; else NULL. */
static char *find_git_dir(const char *dir, const struct mount_info *mount)
{
	cleanup_free char *path = xstrdup(dir);
	bool is_top = false;

	while (!is_top) {
		cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		cleanup_close int git_fd = FD_NONE;
		struct mount_info mi;

		if (fd < 0 || mount_info(fd, &mi) < 0 || !mount_same(&mi, mount))
			return NULL;
		is_top = strcmp(path, "/") == 0;
		if (open_git_dir(fd, &git_fd) == 0) {
			if (mount_info(git_fd, &mi) < 0 || !mount_same(&mi, mount) ||
			    !is_usable(git_fd))
				return NULL;
			return xasprintf("%s/.git", is_top ? "" : path);
		}
		if (!is_top)
			strrchr(path, '/')[strrchr(path, '/') == path] = '\0';
	}
	return NULL;
}

/* The highest usable one, preferably in no resource; NULL: none. */
static const char *pick(const struct strlist *ancestors, const struct strlist *roots)
{
	const char *second = NULL;

	for (size_t i = ancestors->n; i > 0; i--) {
		const char *path = ancestors->v[i - 1];

		if (!*path)
			continue;
		if (!in_resource(roots, path))
			return path;
		if (!second)
			second = path;
	}
	return second;
}

static char *path_in(const char *dir)
{
	char name[AREA_DIR_LEN];
	char random[AREA_NAME_LEN + 1];

	area_dir_name(name);
	random_hex(random, AREA_NAME_LEN);
	return xasprintf("%s/%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name, random);
}

static int choose_beside(struct atoll *a, const struct area_request *rq,
                         const struct mount_info *mount, struct area *ret, struct error *err)
{
	cleanup_strlist struct strlist roots = STRLIST_INIT;
	cleanup_strlist struct strlist ancestors = STRLIST_INIT;
	cleanup_free char *git_dir = NULL;
	const char *dir;
	int r = registry_root_list_above(a->reg, rq->root, note_root, &roots, err);

	if (r < 0)
		return r;
	for (size_t i = 0; rq->newcomers && i < rq->newcomers->n; i++)
		strlist_add(&roots, rq->newcomers->v[i].root);
	list_ancestors(rq->root, mount, &ancestors);
	dir = pick(&ancestors, &roots);
	if (!dir && is_usable(rq->root_fd)) {
		dir = rq->root;
		ret->in_root = true;
	}
	if (!dir) {
		(void)error_set(
			err, -ATOLL_E_UNSUPPORTED,
			"nowhere on the mount of '%s' can you make a directory; nothing was "
			"changed",
			rq->root);
		error_hint(err, "set ATOLL_HOME to a directory on that mount");
		return -ATOLL_E_UNSUPPORTED;
	}
	git_dir = find_git_dir(dir, mount);
	ret->path = path_in(git_dir ? git_dir : dir);
	return 0;
}

int area_choose(struct atoll *a, const struct area_request *rq, struct area *ret, struct error *err)
{
	cleanup_area struct area ar = AREA_INIT;
	struct mount_info of_root, of_store;
	bool in_store = rq->root_fd == FD_NONE;
	int r = 0;

	if (!in_store) {
		r = mount_info(rq->root_fd, &of_root);
		if (r == 0)
			r = mount_info(a->plans_fd, &of_store);
		if (r < 0)
			return error_sys(err, r, "look at the mount of", rq->root);
		in_store = mount_same(&of_root, &of_store);
	}
	if (in_store)
		ar.path = xasprintf("%s/plans/%s", a->home, rq->sandbox_id);
	else
		r = choose_beside(a, rq, &of_root, &ar, err);
	if (r < 0)
		return r;
	ar.work = rq->work_in_store && !in_store
	                  ? xasprintf("%s/plans/%s.w", a->home, rq->sandbox_id)
	                  : xstrdup(ar.path);
	*ret = ar;
	ar = AREA_INIT;
	return 0;
}

/* Splits PATH in place into directory and name. */
static const char *split(char *path)
{
	char *slash = strrchr(path, '/');

	*slash = '\0';
	return slash + 1;
}

/* The directory of ours around an area outside the store. Its parent keeps its mtime where that
 * is the resource itself. */
static int make_around(const char *dir, bool keep_mtime, int *ret_fd)
{
	cleanup_free char *path = xstrdup(dir);
	const char *name = split(path);
	cleanup_close int fd =
		open(*path ? path : "/", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct fs_stat before;
	int r;

	if (fd < 0 && errno == EACCES) /* a directory we may write to but not list */
		fd = open(*path ? path : "/", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fs_stat_at(fd, "", 0, &before);
	if (r == 0)
		r = fs_private_dir_at(fd, name, ret_fd);
	if (r == 0 && keep_mtime)
		(void)fs_set_mtime(fd, ".", before.mtime_ns);
	return r;
}

/* DIR is ".atoll-<uid>", where it is no git directory that holds it. */
static bool needs_ignore(const char *dir)
{
	cleanup_free char *path = xstrdup(dir);
	char own[AREA_DIR_LEN];
	const char *name = split(path);

	area_dir_name(own);
	if (strcmp(name, own) != 0)
		return false;
	return !*path || strcmp(split(path), ".git") != 0;
}

static int ignore_all(int area_fd)
{
	static const char all[] = "*\n";
	cleanup_close int fd = FD_NONE;
	int r = fs_create_at(area_fd, ".gitignore", 0600, &fd);

	return r < 0 ? r : fs_write_all(fd, all, strlen(all));
}

static int make_once(const char *path, bool keep_mtime)
{
	cleanup_free char *dir = xstrdup(path);
	const char *name = split(dir);
	cleanup_close int fd = FD_NONE, area_fd = FD_NONE;
	int r = make_around(dir, keep_mtime, &fd);

	if (r == 0)
		r = fs_mkdir_at(fd, name, PRIVATE_MODE);
	if (r < 0 || !needs_ignore(dir))
		return r;
	area_fd = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return area_fd < 0 ? -errno : ignore_all(area_fd);
}

/* What is made there for ROOT could not be moved into it otherwise (fs/project.h). Where that fails, the commit
 * says so. */
static void adopt_project(const char *path, const char *root)
{
	cleanup_close int from = FD_NONE, to = FD_NONE;

	if (*root == '/') /* a database has a URL */
		from = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (from >= 0)
		to = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to >= 0)
		(void)fs_project_copy(from, to);
}

int area_make_dir(const char *path, const char *root, struct error *err)
{
	int r = -ENOENT;

	/* Another process may remove the empty directory around it just then. */
	for (int i = 0; i < MAKE_ATTEMPTS && r == -ENOENT; i++)
		r = make_once(path, path_below(path, root));
	if (r < 0)
		return error_sys(err, r, "make the area", path);
	adopt_project(path, root);
	return 0;
}

int area_make(const struct area *ar, const char *root, struct error *err)
{
	int r = area_make_dir(ar->path, root, err);

	if (r == 0 && strcmp(ar->work, ar->path) != 0)
		r = area_make_dir(ar->work, root, err);
	return r;
}

/* Takes away ".atoll-<uid>" when nothing is left in it. */
static void remove_around(const char *path)
{
	cleanup_free char *dir = xstrdup(path);
	char expected[AREA_DIR_LEN];
	cleanup_close int fd = FD_NONE;
	struct fs_stat before;
	const char *name;

	(void)split(dir);
	name = split(dir);
	area_dir_name(expected);
	if (strcmp(name, expected) != 0)
		return;
	fd = open(*dir ? dir : "/", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fs_stat_at(fd, "", 0, &before) < 0)
		return;
	if (fs_rmdir_at(fd, name) == 0)
		(void)fs_set_mtime(fd, ".", before.mtime_ns);
}

int area_remove(const char *path, struct error *err)
{
	int r = -ENOTEMPTY;

	/* The background writer of the durable note may still be at it. */
	for (int i = 0; i < REMOVE_ATTEMPTS && r == -ENOTEMPTY; i++) {
		if (i > 0)
			clock_sleep_ns(REMOVE_PAUSE_NS);
		r = remove_tree(path);
	}
	if (r < 0 && r != -ENOENT)
		return error_sys(err, r, "remove", path);
	remove_around(path);
	return 0;
}

void area_done(struct area *ar)
{
	free(ar->path);
	free(ar->work);
	*ar = AREA_INIT;
}
