/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a directory has a lower part is asked of the kernel itself: it refuses to move one (EXDEV) before it
 * looks at where to, and a directory that is not empty (the box) takes the place of no other (ENOTEMPTY). So
 * the question never moves anything.
 */
#include "helper/raise.h"

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 16
#define PROBE  "probe" /* keeps the box from being empty */
#define NEW    "new"
#define TRIES  16 /* for a directory in which other processes make entries meanwhile */

/* A directory on the way down, as it was before anything was done to it. */
struct frame {
	char *path;
	struct fs_stat st;
	bool opened; /* its mode is another */
};

/* The first name of a file with several. */
struct first {
	uint64_t dev, ino;
	char *path;
};

struct raise {
	int top_fd; /* holds the directory that is to be renamed */
	int box_fd;
	char box[sizeof(RAISE_BOX) + DIGITS];
	struct frame *stack;
	size_t depth, cap;
	void *firsts; /* of tsearch() */
	uint64_t mnt_id;
};

/* ---- the box ---- */

static int box_open(struct raise *ra, int top_fd)
{
	char digits[DIGITS + 1];
	int r;

	random_hex(digits, DIGITS);
	(void)snprintf(ra->box, sizeof(ra->box), RAISE_BOX "%s", digits);
	ra->top_fd = top_fd;
	r = fs_mkdir_at(top_fd, ra->box, 0700);
	if (r == 0)
		r = resolve_dir(top_fd, ra->box, &ra->box_fd);
	return r < 0 ? r : fs_mkdir_at(ra->box_fd, PROBE, 0700);
}

static void free_first(void *p)
{
	struct first *f = p;

	free(f->path);
	free(f);
}

static void box_close(struct raise *ra)
{
	if (ra->box_fd != FD_NONE)
		(void)fs_rmdir_at(ra->box_fd, PROBE);
	(void)fs_rmdir_at(ra->top_fd, ra->box);
	close_fd(&ra->box_fd);
	tdestroy(ra->firsts, free_first);
	free(ra->stack);
}

static bool is_merged(const struct raise *ra, int dir_fd, const char *name)
{
	return fs_rename_over_at(dir_fd, name, ra->top_fd, ra->box) == -EXDEV;
}

/* ---- entries ---- */

static bool is_to_stop(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1;
}

static int by_number(const void *a, const void *b)
{
	const struct first *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* The directory that the first name is in now. Of the directory at work, DIR, some entries are not where they
 * were: directories that hold a first name among them. */
static int open_first(const struct raise *ra, const struct first *f, const char *dir, int new_fd,
                      int *ret_fd, const char **ret_name)
{
	size_t len = strlen(dir);
	int r = -ENOENT;

	if (strncmp(f->path, dir, len) == 0 && f->path[len] == '/')
		r = resolve_parent(new_fd, f->path + len + 1, ret_fd, ret_name);
	return r == -ENOENT ? resolve_parent(ra->top_fd, f->path, ret_fd, ret_name) : r;
}

/* NAME of DIR, at PATH, is one more name of a file that was moved: it becomes that again. False: it is not, or the
 * kernel does not let us. */
static bool link_again(struct raise *ra, int old_fd, int new_fd, const char *dir, const char *name)
{
	cleanup_close int fd = FD_NONE;
	struct first *f, **found;
	const char *first_name;
	struct fs_stat st;

	if (fs_stat_at(old_fd, name, 0, &st) < 0 || st.nlink < 2)
		return false;
	f = xcalloc(1, sizeof(*f));
	*f = (struct first){ st.dev, st.id.ino, xasprintf("%s/%s", dir, name) };
	found = tsearch(f, &ra->firsts, by_number);
	if (found && *found == f)
		return false;
	free_first(f);
	return found && open_first(ra, *found, dir, new_fd, &fd, &first_name) == 0 &&
	       fs_link_at(fd, first_name, new_fd, name) == 0 && fs_unlink_at(old_fd, name) == 0;
}

/* Its owner may not write to it, and so not change its "..". */
static int move_locked(int from_fd, int to_fd, const char *name)
{
	struct fs_stat st;
	int r = fs_stat_at(from_fd, name, 0, &st);

	if (r == 0)
		r = fs_set_mode(from_fd, name, (st.mode & 07777) | S_IWUSR);
	if (r < 0)
		return r;
	r = fs_move(from_fd, name, to_fd, name);
	(void)fs_set_mode(r == 0 ? to_fd : from_fd, name, st.mode & 07777);
	return r;
}

static int move_entry(struct raise *ra, int old_fd, int new_fd, const char *dir,
                      const struct dirlist_entry *e)
{
	int r;

	if (is_to_stop())
		return -EINTR;
	if (e->type != DT_DIR && link_again(ra, old_fd, new_fd, dir, e->name))
		return 0;
	r = fs_move(old_fd, e->name, new_fd, e->name);
	if (r == -EACCES && e->type == DT_DIR)
		r = move_locked(old_fd, new_fd, e->name);
	return r == -ENOENT ? 0 : r;
}

static int move_entries(struct raise *ra, int old_fd, int new_fd, const char *dir)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = dirlist_read(old_fd, &list);

	for (size_t i = 0; r == 0 && i < list.n; i++)
		r = move_entry(ra, old_fd, new_fd, dir, &list.v[i]);
	return r;
}

static void put_back(int new_fd, int old_fd)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	if (dirlist_read(new_fd, &list) < 0)
		return;
	for (size_t i = 0; i < list.n; i++)
		if (fs_move(new_fd, list.v[i].name, old_fd, list.v[i].name) == -EACCES)
			(void)move_locked(new_fd, old_fd, list.v[i].name);
}

/* ---- one directory ---- */

/* All but the mode, which may keep us out. */
static int dress(int dir_fd, const char *name, int box_fd, const struct fs_stat *st)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	struct fs_stat made;
	int r = fs_stat_at(box_fd, NEW, 0, &made);

	if (r == 0 && (made.uid != st->uid || made.gid != st->gid))
		r = fs_set_owner(box_fd, NEW, st->uid, st->gid);
	if (r == 0)
		r = xattrs_read_at(dir_fd, name, &x);
	if (r == 0)
		r = xattrs_write_at(box_fd, NEW, &x);
	return r < 0 ? r : fs_set_mtime(box_fd, NEW, st->mtime_ns);
}

/* As it was before. */
static void undress(int dir_fd, const char *name, const struct frame *f)
{
	(void)fs_set_mtime(dir_fd, name, f->st.mtime_ns);
	if (f->opened)
		(void)fs_set_mode(dir_fd, name, f->st.mode & 07777);
}

/* The new one is filled, and takes the place of the old one, which is empty then. */
static int replace(struct raise *ra, int dir_fd, const char *name, const struct frame *f,
                   int old_fd, int new_fd)
{
	int r = -ENOTEMPTY;

	for (int i = 0; r == -ENOTEMPTY && i < TRIES; i++) {
		r = move_entries(ra, old_fd, new_fd, f->path);
		if (r == 0)
			r = dress(dir_fd, name, ra->box_fd, &f->st);
		if (r == 0)
			r = fs_rename_over_at(ra->box_fd, NEW, dir_fd, name);
	}
	if (r < 0)
		put_back(new_fd, old_fd);
	return r;
}

/* All directories in it are raised. */
static int raise_one(struct raise *ra, int dir_fd, const char *name, const struct frame *f)
{
	cleanup_close int old_fd = FD_NONE;
	cleanup_close int new_fd = FD_NONE;
	int r = resolve_dir(dir_fd, name, &old_fd);

	if (r == 0)
		r = fs_mkdir_at(ra->box_fd, NEW, 0700);
	if (r < 0)
		return r;
	r = resolve_dir(ra->box_fd, NEW, &new_fd);
	if (r == 0)
		r = replace(ra, dir_fd, name, f, old_fd, new_fd);
	if (r == 0)
		return fs_set_mode(dir_fd, name, f->st.mode & 07777);
	(void)fs_rmdir_at(ra->box_fd, NEW);
	return r;
}

/* ---- the tree ---- */

static int look_for_mounts(void *ctx, int dir_fd, const char *name, const char *path,
                           unsigned char type)
{
	const struct raise *ra = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)path;
	(void)type;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (st.mount_root || st.mnt_id != ra->mnt_id)
		return -EBUSY;
	return st.immutable ? -EPERM : 0;
}

/* Its owner can be kept out of it by its mode alone. */
static int open_up(int dir_fd, const char *name, struct frame *f)
{
	f->opened = faccessat(dir_fd, name, R_OK | W_OK | X_OK, AT_EACCESS) < 0;
	return f->opened ? fs_set_mode(dir_fd, name, (f->st.mode & 07777) | S_IRWXU) : 0;
}

static int enter(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct raise *ra = ctx;
	struct frame f = { 0 };
	int r;

	if (type != DT_DIR)
		return 0;
	r = fs_stat_at(dir_fd, name, 0, &f.st);
	if (r == 0)
		r = open_up(dir_fd, name, &f);
	if (r == 0)
		r = grow((void **)&ra->stack, &ra->cap, ra->depth + 1, sizeof(*ra->stack));
	if (r < 0)
		return r;
	f.path = xstrdup(path);
	if (is_merged(ra, dir_fd, name)) {
		ra->stack[ra->depth++] = f;
		return 0;
	}
	if (f.opened)
		undress(dir_fd, name, &f);
	free(f.path);
	return WALK_SKIP;
}

static int leave(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct raise *ra = ctx;
	struct frame f;
	int r;

	(void)type;
	/* Of those that went away meanwhile there is nothing to be done. */
	while (ra->depth > 0 && strcmp(ra->stack[ra->depth - 1].path, path) != 0)
		free(ra->stack[--ra->depth].path);
	if (ra->depth == 0)
		return -ENOENT;
	f = ra->stack[--ra->depth];
	r = raise_one(ra, dir_fd, name, &f);
	if (r < 0)
		undress(dir_fd, name, &f);
	free(f.path);
	return r;
}

/* Those that we are in when it fails. */
static void undo_way(struct raise *ra)
{
	while (ra->depth > 0) {
		struct frame *f = &ra->stack[--ra->depth];
		cleanup_close int fd = FD_NONE;
		const char *name;

		if (resolve_parent(ra->top_fd, f->path, &fd, &name) == 0)
			undress(fd, name, f);
		free(f->path);
	}
}

static void raise_tree(int top_fd, const char *name)
{
	struct raise ra = { .box_fd = FD_NONE };
	struct fs_stat st;

	if (fs_stat_at(top_fd, "", 0, &st) < 0)
		return;
	ra.mnt_id = st.mnt_id;
	if (walk_tree(top_fd, name, look_for_mounts, NULL, &ra) < 0)
		return;
	if (box_open(&ra, top_fd) == 0)
		(void)walk_tree(top_fd, name, enter, leave, &ra);
	undo_way(&ra);
	box_close(&ra);
}

/* ---- what the kernel would refuse in any case ---- */

static int path_of(int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	return 0;
}

/* Is the directory at FD the entry NAME of DIR_FD, or below it? */
static bool is_inside(int fd, int dir_fd, const char *name)
{
	char path[PATH_MAX], dir[PATH_MAX];
	size_t len;

	if (path_of(fd, path) < 0 || path_of(dir_fd, dir) < 0)
		return true;
	len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);
	if (strncmp(path, dir, len) != 0 || path[len] != '/' ||
	    strncmp(path + len + 1, name, strlen(name)) != 0)
		return false;
	len += 1 + strlen(name);
	return path[len] == '/' || path[len] == '\0';
}

static bool is_empty(int dir_fd, const char *name)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;

	return resolve_dir(dir_fd, name, &fd) < 0 || dirlist_read(fd, &list) < 0 || list.n == 0;
}

static bool may_write(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, W_OK | X_OK, AT_EACCESS) == 0;
}

/* The one that is to move, from DIR_FD to TO_FD. FAR: another directory, so that its ".." changes. */
static bool may_move(int dir_fd, const char *name, const struct fs_stat *st, int to_fd, bool far)
{
	if (is_inside(to_fd, dir_fd, name) || st->mount_root)
		return false;
	return !far || !S_ISDIR(st->mode) ||
	       faccessat(dir_fd, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0;
}

int raise_for_rename(const struct raise_rename *r)
{
	bool exchange = r->flags & RENAME_EXCHANGE;
	struct fs_stat from_dir, to_dir, from, to = { 0 };
	bool far;
	int there;

	if (r->flags != 0 && r->flags != RENAME_NOREPLACE && r->flags != RENAME_EXCHANGE)
		return 0;
	if (fs_stat_at(r->from_fd, "", 0, &from_dir) < 0 ||
	    fs_stat_at(r->to_fd, "", 0, &to_dir) < 0 || from_dir.mnt_id != to_dir.mnt_id ||
	    fs_stat_at(r->from_fd, r->from, 0, &from) < 0)
		return 0;
	there = fs_stat_at(r->to_fd, r->to, 0, &to);
	if (there < 0 && (exchange || there != -ENOENT))
		return 0;
	/* One directory: the kernel has nothing to do, whatever is in it. */
	if (there == 0 && from.dev == to.dev && from.id.ino == to.id.ino)
		return 0;
	far = from_dir.id.ino != to_dir.id.ino;
	if (!may_write(r->from_fd, ".") || !may_write(r->to_fd, ".") ||
	    !may_move(r->from_fd, r->from, &from, r->to_fd, far) ||
	    (exchange && !may_move(r->to_fd, r->to, &to, r->from_fd, far)))
		return 0;
	if (!exchange && to.mode) {
		if ((r->flags & RENAME_NOREPLACE) || !S_ISDIR(to.mode) || to.mount_root ||
		    is_inside(r->from_fd, r->to_fd, r->to))
			return 0;
		/* The kernel says EXDEV before it looks there. */
		if (!is_empty(r->to_fd, r->to))
			return ENOTEMPTY;
	}
	if (S_ISDIR(from.mode))
		raise_tree(r->from_fd, r->from);
	if (exchange && S_ISDIR(to.mode))
		raise_tree(r->to_fd, r->to);
	return 0;
}
