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
#include "util/limits.h"
#include "util/mem.h"

#define GITDIR  "gitdir: "
#define MODULES "/.git/modules/"

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

static bool has_entries(int dir_fd, const char *name)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	return fd >= 0 && dirlist_read_fresh(fd, &list) >= 0 && list.n > 0;
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

	if (fd < 0)
		return error_sys(err, -errno, "open", root);
	if (fstatat(fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_sys(err, -errno, "look at the .git of", root);
	if (S_ISDIR(st.st_mode))
		return has_entries(fd, ".git/modules") ? refuse_submodules(root, err) : 0;
	if (S_ISREG(st.st_mode))
		line = read_line(fd, ".git");
	if (line && strncmp(line, GITDIR, strlen(GITDIR)) == 0)
		git_dir = resolve_from(root, line + strlen(GITDIR));
	else if (S_ISLNK(st.st_mode))
		git_dir = resolve_from(root, ".git");
	return refuse_elsewhere(root, git_dir, err);
}
