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
#include "fs/resolve.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define ENTRIES_MAX 512 /* that are shown one by one beside a directory that is missing */

void place_done(struct place *p)
{
	free(p->to);
	free(p->why);
	*p = PLACE_INIT;
}

static bool deny(struct place *p, const char *at, const char *why)
{
	p->why = xasprintf("'%s' %s; the directory is at its own path", at, why);
	return false;
}

/* What a command cannot do without, or is mounted anew for it. */
static bool is_the_systems(const char *path)
{
	static const char *const dirs[] = {
		"/bin",   "/boot", "/dev",  "/etc", "/lib", "/lib32",
		"/lib64", "/proc", "/sbin", "/sys", "/usr",
	};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (path_below(path, dirs[i]))
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
		holds |= path_below(op->boxes.v[i].area, to) ||
		         path_below(op->boxes.v[i].root, to) || path_below(to, op->boxes.v[i].root);
	return holds;
}

static bool in_home(const char *to)
{
	cleanup_free char *given = store_user_dir();
	cleanup_free char *home = NULL;

	return given && resolve_canonical(given, &home) == 0 && path_below(to, home);
}

static bool is_possible(const struct plan_op *op, const char *at, bool home_is_real,
                        struct place *p)
{
	size_t there = 0;
	int r = resolve_there(at, &p->to, &there);

	if (r < 0)
		return deny(p, at, "cannot be a directory here");
	if (is_the_systems(p->to) || (p->to[there] == '\0' && strrchr(p->to, '/') == p->to))
		return deny(p, at, "is the system's own here");
	if (holds_ours(op, p->to))
		return deny(p, at, "holds what is Atoll's own here, or lies in it");
	if (p->to[there] == '\0')
		return true;
	/* Its layer takes new directories; where it is shown as it is, nothing is made. */
	if (in_home(p->to))
		return !home_is_real ||
		       deny(p, at, "is not there, and the home directory is the real one");
	p->to[there] = '\0';
	r = can_grow(p->to);
	p->to[there] = '/';
	return r ? true : deny(p, at, "is not there, and cannot be made beside what is");
}

int place_choose(const struct plan_op *op, const char *at, bool home_is_real, struct views *views,
                 struct place *ret)
{
	const char *root = op->boxes.n ? op->boxes.v[0].root : "";

	*ret = PLACE_INIT;
	if (!at || *root != '/' || strcmp(at, root) == 0)
		return 0;
	if (!is_possible(op, at, home_is_real, ret))
		return 0;
	ret->from = root;
	return views_move(views, root, ret->to);
}

void place_forget(struct place *p, const char *at)
{
	place_done(p);
	if (at)
		(void)deny(p, at, "would need mounts of the command's own");
}

char *place_map(const struct place *p, const char *path)
{
	if (!p->from || !path_below(path, p->from))
		return xstrdup(path);
	return xasprintf("%s%s", p->to, path + strlen(p->from));
}
