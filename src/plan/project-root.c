/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the root of a project. See project-root.h. */
#include "plan/project-root.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "plan/plan.h"
#include "strategy/git-whole.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/limits.h"
#include "util/mem.h"

#define PASSWD_BUF_LEN 16384

/* ---- git ---- */

static bool exists_at(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As git sees it: a file says where the repository is, a directory is one or counts for nothing. */
static const char *is_repository(int dir_fd)
{
	cleanup_close int fd = FD_NONE;
	struct stat st;

	if (fstatat(dir_fd, ".git", &st, 0) < 0)
		return NULL;
	if (S_ISREG(st.st_mode))
		return "git";
	fd = openat(dir_fd, ".git", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || !exists_at(fd, "HEAD"))
		return NULL;
	return exists_at(fd, "commondir") || (exists_at(fd, "objects") && exists_at(fd, "refs"))
	               ? "git"
	               : NULL;
}

/* ---- workspaces ---- */

static int find_workspaces(void *user, const char *key, const char *value, size_t len)
{
	bool *found = user;

	if (strcmp(key, "workspaces") == 0)
		*found = !(len == 4 && memcmp(value, "null", 4) == 0);
	return 0;
}

static bool has_workspaces(const char *text, size_t len)
{
	static const char mark[] = "\xef\xbb\xbf"; /* of the byte order, which npm passes over */
	size_t skip = strncmp(text, mark, 3) == 0 ? 3 : 0;
	bool found = false;

	return json_members(text + skip, len - skip, find_workspaces, &found) == 0 && found;
}

/* A line "[workspace]", or of one of its tables: "[workspace.dependencies]". */
static bool has_workspace_table(const char *text, size_t len)
{
	static const char name[] = "workspace";
	const char *end = text + len;

	for (const char *line = text; line < end; line += strcspn(line, "\n") + 1) {
		const char *at = line + strspn(line, " \t");

		if (*at++ != '[')
			continue;
		at += strspn(at, " \t");
		if (strncmp(at, name, sizeof(name) - 1) != 0)
			continue;
		at += sizeof(name) - 1;
		at += strspn(at, " \t");
		if (*at == ']' || *at == '.')
			return true;
	}
	return false;
}

static const struct {
	const char *file;
	const char *kind;
	bool (*holds)(const char *text, size_t len); /* NULL: that the file is there is enough */
} workspaces[] = {
	{ "pnpm-workspace.yaml", "pnpm workspace", NULL },
	{ "go.work", "go workspace", NULL },
	{ "package.json", "npm workspace", has_workspaces },
	{ "Cargo.toml", "cargo workspace", has_workspace_table },
};

static bool file_holds(int dir_fd, const char *name, bool (*holds)(const char *text, size_t len))
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	struct stat st;
	size_t len;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	return !holds || (fs_read_all(fd, LIMIT_CONFIG, &text, &len) == 0 && holds(text, len));
}

static const char *is_workspace(int dir_fd)
{
	for (size_t i = 0; i < sizeof(workspaces) / sizeof(workspaces[0]); i++)
		if (file_holds(dir_fd, workspaces[i].file, workspaces[i].holds))
			return workspaces[i].kind;
	return NULL;
}

/* ---- homes ---- */

static bool holds_home(const char *dir, const char *home)
{
	cleanup_free char *path = home ? realpath(home, NULL) : NULL;

	return path && strcmp(path, "/") != 0 && path_below(path, dir);
}

static bool holds_home_of(const char *dir, uid_t uid)
{
	struct passwd pw, *found = NULL;
	char buf[PASSWD_BUF_LEN];

	return getpwuid_r(uid, &pw, buf, sizeof(buf), &found) == 0 && found &&
	       holds_home(dir, found->pw_dir);
}

/* DIR, of user OWNER, or what is above it, is never taken. The owner's home is asked for beside this
 * user's: root works in other users' directories. */
static bool is_out_of_bounds(const char *dir, uid_t owner)
{
	cleanup_free char *home = store_user_dir();

	return strcmp(dir, "/") == 0 || holds_home(dir, home) || holds_home_of(dir, geteuid()) ||
	       holds_home_of(dir, owner);
}

/* ---- the search ---- */

/* Shortens the absolute path DIR by one component; false at "/". */
static bool go_up(char *dir)
{
	char *slash = strrchr(dir, '/');

	if (dir[1] == '\0')
		return false;
	slash[slash == dir] = '\0';
	return true;
}

/* From DIR upwards to the first that LOOK knows. NULL: there is none. */
static char *search(const char *dir, dev_t dev, const char *(*look)(int dir_fd),
                    const char **ret_kind)
{
	cleanup_free char *at = xstrdup(dir);

	do {
		cleanup_close int fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
		const char *kind;
		struct stat st;

		if (fd < 0)
			continue;
		if (fstat(fd, &st) < 0 || st.st_dev != dev)
			return NULL;
		kind = look(fd);
		if (!kind)
			continue;
		if (is_out_of_bounds(at, st.st_uid))
			return NULL;
		*ret_kind = kind;
		return take_ptr(at);
	} while (go_up(at));
	return NULL;
}

int project_root_find(const char *dir, enum project_scope scope, struct project_root *ret)
{
	cleanup_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *kind = NULL;
	char *path = NULL;
	bool is_git;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (scope != PROJECT_HERE)
		path = search(dir, st.st_dev, is_repository, &kind);
	is_git = path || is_repository(fd);
	if (!path && scope == PROJECT_AUTO)
		path = search(dir, st.st_dev, is_workspace, &kind);
	*ret = (struct project_root){ path ? path : xstrdup(dir), kind, is_git };
	return 0;
}

int project_root_check(const struct project_root *root, struct error *err)
{
	return root->is_git ? git_check_whole(root->path, err) : 0;
}
