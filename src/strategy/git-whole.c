/* SPDX-License-Identifier: Apache-2.0 */
/* Linked worktrees, submodules, and repositories that have some. See git-whole.h. */
#include "strategy/git-whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/git-index.h"
#include "util/gitconfig.h"
#include "util/limits.h"
#include "util/mem.h"

#define GITDIR  "gitdir: "
#define MODULES "/.git/modules/"

/* Where core.splitIndex has put a part of the index. */
#define SHARED_INDEX "sharedindex."

/* The first line of a file that git wrote, without its end; NULL: it cannot be read. */
static char *read_line(int dir_fd, const char *name)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len;

	if (fd < 0 || fs_read_all(fd, LIMIT_CONFIG, &text, &len) < 0)
		return NULL;
	text[strcspn(text, "\n")] = '\0';
	return take_ptr(text);
}

/* PATH as a file in DIR has it, canonical; NULL: it leads nowhere. */
static char *resolve_from(const char *dir, const char *path)
{
	cleanup_free char *full = *path == '/' ? xstrdup(path) : xasprintf("%s/%s", dir, path);

	return realpath(full, NULL);
}

/* The main working tree of the linked worktree whose git directory is GIT_DIR; NULL: it is none, or has
 * no main one. */
static char *find_main_tree(const char *git_dir)
{
	cleanup_close int fd = open(git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *line = fd < 0 ? NULL : read_line(fd, "commondir");
	cleanup_free char *common = line ? resolve_from(git_dir, line) : NULL;
	char *slash = common ? strrchr(common, '/') : NULL;

	if (!slash || slash == common || strcmp(slash, "/.git") != 0)
		return NULL;
	return xstrndup(common, (size_t)(slash - common));
}

#define FILES_ALONE "the files alone with --dir %s, where what git commits does not arrive"

static int refuse_elsewhere(const char *root, const char *git_dir, struct error *err)
{
	cleanup_free char *tree = git_dir ? find_main_tree(git_dir) : NULL;
	const char *modules = git_dir ? strstr(git_dir, MODULES) : NULL;
	cleanup_free char *super = modules ? xstrndup(git_dir, (size_t)(modules - git_dir)) : NULL;

	if (tree) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is a linked worktree: its repository is in '%s'", root, tree);
		error_hint(err, "work in the main working tree, '%s'; or on " FILES_ALONE, tree,
		           root);
	} else if (super) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is a submodule: its repository is in '%s'", root, super);
		error_hint(err,
		           "work on all of it as a directory with --dir %s; or on " FILES_ALONE,
		           super, root);
	} else {
		cleanup_free char *where = git_dir ? xasprintf(", in '%s'", git_dir) : xstrdup("");

		(void)error_set(err, -ATOLL_E_UNSUPPORTED, "'%s' has its repository elsewhere%s",
		                root, where);
		error_hint(err, "work on a clone that holds its repository; or on " FILES_ALONE,
		           root);
	}
	return -ATOLL_E_UNSUPPORTED;
}

/* ---- submodules ---- */

/* Is a repository, or the way to one, in the directory PATH? */
static bool has_repository(void *user, const char *path)
{
	cleanup_free char *git = xasprintf("%s/.git", path);
	const int *root_fd = user;
	struct stat st;

	return fstatat(*root_fd, git, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* PATH below ROOT_FD; -ENOENT: there is none. */
static int read_file(int root_fd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	cleanup_close int fd =
		openat(root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fs_read_all(fd, max, ret, ret_len);
}

/* 1: the index, or a part that it shares with others, has a submodule with a repository. One that is no file is
 * refused later, by name. */
static int index_has_submodule(int root_fd, const char *name)
{
	cleanup_free char *path = xasprintf(".git/%s", name);
	cleanup_free char *data = NULL;
	size_t len = 0;
	int r = read_file(root_fd, path, LIMIT_GIT_INDEX, &data, &len);

	if (r == -ENOENT || r == -ELOOP || r == -EISDIR || r == -ENXIO)
		return 0;
	if (r < 0)
		return r;
	return git_index_find_gitlink(data, len, has_repository, &root_fd);
}

static int note_worktree(void *user, const struct gitconfig_entry *e)
{
	char **worktree = user;

	if (strcmp(e->key, "core.worktree") != 0 || !e->value)
		return 0;
	free(*worktree);
	*worktree = xstrdup(e->value);
	return 0;
}

/* Does a directory lead to the repository DIR of a submodule? It need not be in the index any more. */
static bool is_in_use(int root_fd, const char *dir)
{
	static const char *const files[] = { "config", "config.worktree" };
	cleanup_free char *worktree = NULL, *path = NULL;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		cleanup_free char *file = xasprintf("%s/%s", dir, files[i]);
		cleanup_free char *text = NULL;
		size_t len = 0;

		if (read_file(root_fd, file, LIMIT_CONFIG, &text, &len) >= 0)
			(void)gitconfig_read(text, len, note_worktree, &worktree, NULL);
	}
	if (!worktree)
		return false;
	path = *worktree == '/' ? xstrdup(worktree) : xasprintf("%s/%s", dir, worktree);
	return has_repository(&root_fd, path);
}

/* 1: one of the repositories of submodules below DIR is in use. Their names may have slashes. */
static int uses_module(int root_fd, const char *dir)
{
	cleanup_close int fd =
		openat(root_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = fd < 0 ? -errno : dirlist_read_fresh(fd, &list);

	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	for (size_t i = 0; r == 0 && i < list.n; i++) {
		cleanup_free char *path = xasprintf("%s/%s", dir, list.v[i].name);
		cleanup_free char *head = xasprintf("%s/HEAD", path);

		r = faccessat(root_fd, head, F_OK, AT_SYMLINK_NOFOLLOW) == 0
		            ? is_in_use(root_fd, path)
		            : uses_module(root_fd, path);
	}
	return r;
}

/*
 * 1: in the index, or no longer there, but its directory still leads to a repository that git keeps in .git/modules.
 * That repository alone is none: git keeps it when a submodule was removed.
 */
static int has_submodules(int root_fd)
{
	cleanup_close int fd =
		openat(root_fd, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = fd < 0 ? -errno : dirlist_read_fresh(fd, &list);

	for (size_t i = 0; r == 0 && i < list.n; i++)
		if (strcmp(list.v[i].name, "index") == 0 ||
		    strncmp(list.v[i].name, SHARED_INDEX, strlen(SHARED_INDEX)) == 0)
			r = index_has_submodule(root_fd, list.v[i].name);
	return r != 0 ? r : uses_module(root_fd, ".git/modules");
}

static int refuse_submodules(const char *root, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "'%s' has submodules with repositories of their own", root);
	error_hint(err,
	           "work on it as a directory with --dir %s: then .git arrives as files, and is "
	           "a conflict when git is used there meanwhile",
	           root);
	return -ATOLL_E_UNSUPPORTED;
}

int git_check_whole(const char *root, struct error *err)
{
	cleanup_close int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *line = NULL, *git_dir = NULL;
	struct stat st;
	int r;

	if (fd < 0)
		return error_sys(err, -errno, "open", root);
	if (fstatat(fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_sys(err, -errno, "look at the .git of", root);
	if (S_ISDIR(st.st_mode)) {
		cleanup_free char *git = xasprintf("%s/.git", root);

		r = has_submodules(fd);
		if (r < 0)
			return error_sys(err, r, "read", git);
		return r > 0 ? refuse_submodules(root, err) : 0;
	}
	if (S_ISREG(st.st_mode))
		line = read_line(fd, ".git");
	if (line && strncmp(line, GITDIR, strlen(GITDIR)) == 0)
		git_dir = resolve_from(root, line + strlen(GITDIR));
	else if (S_ISLNK(st.st_mode))
		git_dir = resolve_from(root, ".git");
	return refuse_elsewhere(root, git_dir, err);
}
