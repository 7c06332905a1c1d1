/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry of a workspace against its base. Cheapest proof first: inode and ctime of the copy
 * are as recorded, then metadata, then the original's attributes and content, which speak for
 * the base only while the original itself is unchanged.
 */
#include "diff/tree-impl.h"

#include "fs/content.h"
#include "fs/copy.h"
#include "fs/xattr.h"
#include "util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_BITS 07777u

int tree_owner_init(struct tree_owner *o)
{
	int n = getgroups(0, NULL);
	gid_t *groups;

	*o = (struct tree_owner){ .is_root = geteuid() == 0, .uid = geteuid() };
	if (n < 0)
		return -errno;
	groups = malloc(((size_t)n + 1) * sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	n = getgroups(n, groups);
	if (n < 0) {
		free(groups);
		return -errno;
	}
	groups[n] = getegid();
	o->groups = groups;
	o->n_groups = (size_t)n + 1;
	return 0;
}

void tree_owner_done(struct tree_owner *o)
{
	free(o->groups);
	*o = (struct tree_owner){ 0 };
}

static bool is_own_group(const struct tree_owner *o, uint32_t gid)
{
	for (size_t i = 0; i < o->n_groups; i++)
		if (o->groups[i] == gid)
			return true;
	return false;
}

/* An ordinary user's copy of somebody else's entry belongs to the user: that is no change. */
bool tree_owner_differs(const struct tree_owner *o, const struct fs_stat *base,
                        const struct fs_stat *work)
{
	if (work->uid != base->uid && (o->is_root || work->uid != o->uid))
		return true;
	return work->gid != base->gid && (o->is_root || !is_own_group(o, work->gid));
}

bool tree_is_proven(const struct base_entry *e, const struct fs_stat *work)
{
	return e->work_ctime_ns != 0 && work->id.ino == e->work_ino &&
	       work->ctime_ns == e->work_ctime_ns;
}

static unsigned compare_meta(const struct tree_owner *o, const struct base_entry *e,
                             const struct fs_stat *work)
{
	unsigned what = 0;

	if ((work->mode ^ e->src.mode) & MODE_BITS)
		what |= ATOLL_CHANGE_MODE;
	if (tree_owner_differs(o, &e->src, work))
		what |= ATOLL_CHANGE_OWNER;
	return what;
}

static int compare_xattrs(const struct tree_pair *p, const char *name, unsigned *what)
{
	cleanup_xattrs struct xattrs work = XATTRS_INIT;
	cleanup_xattrs struct xattrs orig = XATTRS_INIT;
	int r;

	r = xattrs_read_at(p->work_fd, name, &work);
	if (r < 0)
		return r;
	r = xattrs_read_at(p->orig_fd, name, &orig);
	if (r < 0)
		return r;
	if (!xattrs_equal(&work, &orig))
		*what |= ATOLL_CHANGE_XATTR;
	/* Others than it had are new, too. */
	if (xattrs_has(&work, "security.capability") &&
	    !xattrs_same(&work, &orig, "security.capability"))
		*what |= ATOLL_CHANGE_SETUID;
	return 0;
}

static bool original_is_base(const struct tree_pair *p, const struct base_entry *e)
{
	struct fs_stat now;

	if (p->orig_fd == FD_NONE || fs_stat_at(p->orig_fd, e->name, FS_STAT_ID, &now) < 0)
		return false;
	return (fs_id_equal(now.id, e->src.id) && now.ctime_ns == e->src.ctime_ns) ||
	       fs_content_same(p->orig_fd, e->name, &e->src, &now);
}

/* The original cannot tell any more: all it could tell counts as changed. */
static int assume_changed(const struct tree_pair *p, const struct base_entry *e, unsigned *what)
{
	cleanup_xattrs struct xattrs work = XATTRS_INIT;
	int r;

	r = xattrs_read_at(p->work_fd, e->name, &work);
	if (r < 0)
		return r;
	if (xattrs_has(&work, "security.capability"))
		*what |= ATOLL_CHANGE_SETUID;
	*what |= ATOLL_CHANGE_CONTENT;
	return 0;
}

static int compare_original(const struct tree_pair *p, const struct base_entry *e, unsigned *what)
{
	bool has_content = S_ISREG(e->src.mode) || S_ISLNK(e->src.mode);
	int r;

	if (!original_is_base(p, e))
		return assume_changed(p, e, what);
	r = compare_xattrs(p, e->name, what);
	if (r == -EACCES || r == -EPERM)
		*what |= ATOLL_CHANGE_XATTR;
	else if (r < 0)
		return r;
	if (!has_content || (*what & ATOLL_CHANGE_CONTENT))
		return 0;
	r = copy_same_content(p->work_fd, e->name, p->orig_fd, e->name);
	if (r < 0 && r != -EACCES && r != -EPERM)
		return r;
	if (r != 1)
		*what |= ATOLL_CHANGE_CONTENT;
	return 0;
}

/* Set-id bits and capabilities are those that were there only of the same file: with this content, owner and
 * group, and open to no one else. Of any other they are new, even if they look the same. */
static bool keeps_privileges(const struct base_entry *e, const struct fs_stat *work, unsigned what)
{
	return !(what & (ATOLL_CHANGE_CONTENT | ATOLL_CHANGE_OWNER | ATOLL_CHANGE_XATTR)) &&
	       work->uid == e->src.uid && work->gid == e->src.gid &&
	       !(work->mode & 0777 & ~e->src.mode);
}

int tree_compare_entry(const struct tree_pair *p, const struct base_entry *e,
                       const struct fs_stat *work, unsigned *ret_what)
{
	uint64_t size = e->flags & BASE_UNREADABLE ? 0 : e->src.size;
	unsigned what, flags;
	int r;

	*ret_what = 0;
	if (tree_is_proven(e, work))
		return 0;
	what = compare_meta(p->owner, e, work);
	if (work->mtime_ns != e->src.mtime_ns)
		what |= ATOLL_CHANGE_MTIME;
	if (work->size != size || work->rdev != e->src.rdev)
		what |= ATOLL_CHANGE_CONTENT;
	if (!(e->flags & BASE_UNREADABLE)) {
		r = compare_original(p, e, &what);
		if (r < 0)
			return r;
	}
	if (what == 0)
		return 0;

	/* A link that stays what it was is not reported as leaving the tree, whatever else
	 * changed about it. */
	r = tree_entry_flags(
		&(struct tree_new){ p->work_fd, e->name, p->path, work,
	                            keeps_privileges(e, work, what) ? e->src.mode : 0 },
		&flags);
	if (r < 0)
		return r;
	if (!(what & ATOLL_CHANGE_CONTENT))
		flags &= ~(ATOLL_CHANGE_ESCAPING_LINK | ATOLL_CHANGE_SPECIAL);
	*ret_what = what | flags;
	return 0;
}

int tree_compare_dir(const struct tree_owner *o, int dir_fd, const char *name,
                     const struct base_entry *e, const struct fs_stat *work, unsigned *ret_what)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	int r;

	*ret_what = 0;
	if (tree_is_proven(e, work))
		return 0;
	*ret_what = compare_meta(o, e, work);
	if (e->flags & BASE_UNREADABLE)
		return 0;
	r = xattrs_read_at(dir_fd, name, &x);
	if (r < 0)
		return r;
	if (xattrs_hash(&x) != e->xattrs)
		*ret_what |= ATOLL_CHANGE_XATTR;
	return 0;
}
