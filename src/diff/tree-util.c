/* SPDX-License-Identifier: Apache-2.0 */
/* Small things the comparisons and the copy of trees share. */
#include "diff/tree-impl.h"

#include "diff/git-program.h"

#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/limits.h"
#include "util/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAUSE_NS        500000
#define PAUSE_DOUBLINGS 5u

int tree_fail_sys(struct tree_failure *f, int code, const char *op, const char *path)
{
	pthread_mutex_lock(&f->lock);
	if (!f->is_set)
		(void)error_sys(f->err, code, op, *path ? path : ".");
	f->is_set = true;
	pthread_mutex_unlock(&f->lock);
	return code;
}

int tree_fail_changing(struct tree_failure *f, const char *path)
{
	cleanup_free char *shown = escape_dup(*path ? path : ".");

	pthread_mutex_lock(&f->lock);
	if (!f->is_set)
		(void)error_set(f->err, -EAGAIN, "'%s' keeps changing", shown);
	if (f->err)
		error_hint(f->err, "try again when nobody writes there");
	f->is_set = true;
	pthread_mutex_unlock(&f->lock);
	return -EAGAIN;
}

void tree_pause(unsigned attempt)
{
	if (attempt > 0)
		clock_sleep_ns(PAUSE_NS << (attempt < PAUSE_DOUBLINGS ? attempt : PAUSE_DOUBLINGS));
}

int tree_fail_move(struct tree_failure *f, int code, struct error *from)
{
	pthread_mutex_lock(&f->lock);
	if (!f->is_set && f->err)
		error_move(f->err, from);
	f->is_set = true;
	pthread_mutex_unlock(&f->lock);
	return code;
}

int tree_join(const char *dir, const char *name, char **ret)
{
	if (strlen(dir) + 1 + strlen(name) > LIMIT_PATH)
		return -ENAMETOOLONG;
	*ret = xasprintf("%s%s%s", dir, *dir ? "/" : "", name);
	return 0;
}

bool tree_excluded(const struct strlist *excludes, const char *path)
{
	return excludes && strlist_has(excludes, path);
}

int tree_read_link(int dir_fd, const char *name, char **ret_target)
{
	char buf[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, buf, sizeof(buf));

	if (n < 0)
		return -errno;
	if ((size_t)n >= sizeof(buf))
		return -ENAMETOOLONG;
	*ret_target = xstrndup(buf, (size_t)n);
	return 0;
}

bool tree_same(const struct fs_stat *base, const struct fs_stat *now)
{
	return fs_id_equal(base->id, now->id) && base->ctime_ns == now->ctime_ns &&
	       base->size == now->size && base->mtime_ns == now->mtime_ns;
}

bool tree_link_escapes(const char *path, const char *target)
{
	size_t depth = 0; /* of the directory reached, below the root */

	if (*target == '/')
		return true;
	for (const char *p = path; *p; p++)
		depth += *p == '/';
	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && strncmp(target, "..", 2) == 0) {
			if (depth-- == 0)
				return true;
		} else if (len > 0 && !(len == 1 && *target == '.')) {
			depth++;
		}
		target += len;
		target += strspn(target, "/");
	}
	return false;
}

static int has_capability(int dir_fd, const char *name, bool *ret)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	int r;

	r = xattrs_read_at(dir_fd, name, &x);
	if (r < 0)
		return r;
	*ret = xattrs_has(&x, "security.capability");
	return 0;
}

static int file_flags(const struct tree_new *e, unsigned *flags)
{
	uint32_t set_id = e->st->mode & (S_ISUID | S_ISGID);
	bool capable = false;
	int r = 0;

	if (S_ISREG(e->base_mode))
		set_id &= ~e->base_mode;
	else
		r = has_capability(e->dir_fd, e->name, &capable);
	*flags |= capable || set_id ? ATOLL_CHANGE_SETUID : 0;
	return r;
}

static int link_flags(const struct tree_new *e, unsigned *flags)
{
	cleanup_free char *target = NULL;
	int r = tree_read_link(e->dir_fd, e->name, &target);

	if (r >= 0 && tree_link_escapes(e->path, target))
		*flags |= ATOLL_CHANGE_ESCAPING_LINK;
	return r;
}

int tree_entry_flags(const struct tree_new *e, unsigned *ret_flags)
{
	*ret_flags = git_program_named(e->name, e->path) ? CHANGE_GIT_NAMED : 0;
	switch (e->st->mode & S_IFMT) {
	case S_IFDIR:
		return 0;
	case S_IFLNK:
		return link_flags(e, ret_flags);
	case S_IFREG:
		return file_flags(e, ret_flags);
	default:
		*ret_flags |= ATOLL_CHANGE_SPECIAL;
		return 0;
	}
}
