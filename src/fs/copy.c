/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of entries. The order matters: content first (writing strips capabilities), then owner
 * (which strips them too, and setuid), attributes, mode, and the times when nothing else will
 * touch them.
 */
#include "fs/copy.h"

#include "fs/atomic.h"
#include "fs/fs-impl.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/progress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_ATTEMPTS 5
#define COMPARE_CHUNK (64u << 10)

/* One name in one directory; or, with the name "", an open descriptor. */
struct place {
	int fd;
	const char *name;
};

static int set_owner(struct place to, const struct fs_stat *have, const struct fs_stat *want)
{
	int r;

	if (have->uid == want->uid && have->gid == want->gid)
		return 0;
	r = fs_set_owner(to.fd, to.name, want->uid, want->gid);
	if (r == -EPERM && have->gid != want->gid) /* one of our own groups, perhaps */
		r = fs_set_owner(to.fd, to.name, (uid_t)-1, want->gid);
	/* -EINVAL: not mapped in this user namespace. */
	return r == -EPERM || r == -EINVAL ? 0 : r;
}

static int copy_meta(struct place from, const struct fs_stat *st, struct place to)
{
	cleanup_xattrs struct xattrs attrs = XATTRS_INIT;
	struct fs_stat have;
	int r;

	r = xattrs_read_at(from.fd, from.name, &attrs);
	if (r == 0)
		r = fs_stat_at(to.fd, to.name, 0, &have);
	if (r == 0)
		r = set_owner(to, &have, st);
	if (r == 0)
		r = xattrs_write_at(to.fd, to.name, &attrs);
	if (r == 0 && !S_ISLNK(st->mode))
		r = fs_set_mode(to.fd, to.name, st->mode);
	if (r == 0)
		r = fs_set_times(to.fd, to.name, st->atime_ns, st->mtime_ns);
	return r;
}

static bool same_inode(const struct fs_stat *a, const struct fs_stat *b)
{
	return a->id.ino == b->id.ino && a->dev == b->dev;
}

/* The inode number will do: a new inode that got the same one has another ctime. */
static bool unchanged(const struct fs_stat *a, const struct fs_stat *b)
{
	return same_inode(a, b) && a->ctime_ns == b->ctime_ns && a->mtime_ns == b->mtime_ns &&
	       a->size == b->size;
}

/* Opens the regular file that ST tells of; -EAGAIN when something else is there by now. */
static int open_source(struct place from, const struct fs_stat *st, int *ret_fd)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat now;
	int r;

	fd = openat(from.fd, from.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -EAGAIN : -errno;
	r = fs_stat_at(fd, "", 0, &now);
	if (r < 0)
		return r;
	if (!S_ISREG(now.mode) || !same_inode(&now, st))
		return -EAGAIN;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int make_regular(struct place from, const struct fs_stat *st, struct place to, bool *made)
{
	cleanup_close int src_fd = FD_NONE;
	cleanup_close int dst_fd = FD_NONE;
	int r;

	r = open_source(from, st, &src_fd);
	if (r == 0)
		r = fs_create_at(to.fd, to.name, 0600, &dst_fd);
	if (r < 0)
		return r;
	*made = true;
	r = copy_data(src_fd, dst_fd, st->size);
	if (r < 0)
		return r;
	return copy_meta((struct place){ src_fd, "" }, st, (struct place){ dst_fd, "" });
}

/* The target of a link, NUL-terminated. */
static int read_link(struct place at, char out[PATH_MAX])
{
	ssize_t n = readlinkat(at.fd, at.name, out, PATH_MAX);

	if (n < 0)
		return errno == EINVAL ? -EAGAIN : -errno; /* no link any more */
	if (n >= PATH_MAX)
		return -ENAMETOOLONG;
	out[n] = '\0';
	return 0;
}

static int make_link(struct place from, const struct fs_stat *st, struct place to, bool *made)
{
	char target[PATH_MAX];
	int r = read_link(from, target);

	if (r < 0)
		return r;
	if (symlinkat(target, to.fd, to.name) < 0)
		return -errno;
	*made = true;
	return copy_meta(from, st, to);
}

static int make_node(struct place from, const struct fs_stat *st, struct place to, bool *made)
{
	if (mknodat(to.fd, to.name, (st->mode & S_IFMT) | 0600, st->rdev) < 0)
		return -errno;
	*made = true;
	return copy_meta(from, st, to);
}

static int make_entry(struct place from, const struct fs_stat *st, struct place to, bool *made)
{
	switch (st->mode & S_IFMT) {
	case S_IFREG:
		return make_regular(from, st, to, made);
	case S_IFLNK:
		return make_link(from, st, to, made);
	case S_IFDIR:
		return -EISDIR;
	default:
		return make_node(from, st, to, made);
	}
}

static int copy_once(struct place from, struct place to, struct fs_stat *ret_src,
                     struct fs_stat *ret_dst)
{
	struct fs_stat before;
	struct fs_stat after;
	struct fs_stat dst;
	bool made = false;
	int r;

	r = fs_stat_at(from.fd, from.name, ret_src != NULL ? FS_STAT_ID : 0, &before);
	if (r < 0)
		return r;
	r = make_entry(from, &before, to, &made);
	if (r == 0)
		r = fs_stat_at(from.fd, from.name, 0, &after);
	if (r == 0 && !unchanged(&before, &after))
		r = -EAGAIN;
	if (r == 0 && ret_dst != NULL)
		r = fs_stat_at(to.fd, to.name, FS_STAT_ID, &dst);
	if (r < 0) {
		if (made)
			(void)unlinkat(to.fd, to.name, 0);
		return r;
	}
	if (ret_src != NULL)
		*ret_src = before;
	if (ret_dst != NULL)
		*ret_dst = dst;
	return 0;
}

int copy_entry_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name,
                  struct fs_stat *ret_src, struct fs_stat *ret_dst)
{
	struct place from = { src_dir_fd, src_name };
	struct place to = { dst_dir_fd, dst_name };
	int r = -EAGAIN;

	for (int i = 0; i < COPY_ATTEMPTS && r == -EAGAIN; i++)
		r = copy_once(from, to, ret_src, ret_dst);
	if (r == 0)
		progress_add(1, 0);
	return r;
}

int copy_begun_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name)
{
	cleanup_close int src_fd = openat(
		src_dir_fd, src_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	cleanup_close int dst_fd = FD_NONE;
	struct stat st;
	int r;

	if (src_fd < 0 || fstat(src_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ELOOP;
	r = fs_create_at(dst_dir_fd, dst_name, 0600, &dst_fd);
	if (r == 0)
		r = copy_data(src_fd, dst_fd, (uint64_t)st.st_size);
	return r;
}

int copy_dir_meta(int src_fd, int dst_fd)
{
	struct fs_stat st;
	int r = fs_stat_at(src_fd, "", 0, &st);

	if (r < 0)
		return r;
	return copy_meta((struct place){ src_fd, "" }, &st, (struct place){ dst_fd, "" });
}

/* Copying a tree: the walk goes through the source; the target directory at hand is kept open. */
struct tree {
	int dst_root_fd;
	int dst_fd; /* of dst_path; FD_NONE: none yet */
	char *dst_path;
	uint64_t mnt_id;
};

/* The directory, in the target, that holds the entry PATH. */
static int tree_target(struct tree *t, const char *path, int *ret_fd)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash != NULL ? (size_t)(slash - path) : 0;
	cleanup_free char *dir = NULL;
	int fd;
	int r;

	if (t->dst_fd == FD_NONE || strlen(t->dst_path) != len ||
	    memcmp(t->dst_path, path, len) != 0) {
		dir = strndup(path, len);
		if (dir == NULL)
			return -ENOMEM;
		r = resolve_dir(t->dst_root_fd, dir, &fd);
		if (r < 0)
			return r;
		close_fd(&t->dst_fd);
		t->dst_fd = fd;
		free(t->dst_path);
		t->dst_path = take_ptr(dir);
	}
	*ret_fd = t->dst_fd;
	return 0;
}

static int tree_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct tree *t = ctx;
	struct fs_stat st;
	int fd;
	int r;

	r = tree_target(t, path, &fd);
	if (r < 0)
		return r;
	if (type != DT_DIR)
		return copy_entry_at(dir_fd, name, fd, name, NULL, NULL);
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r < 0)
		return r;
	if (st.mount_root || st.mnt_id != t->mnt_id)
		return -EXDEV; /* without what is mounted there it would not be a copy */
	return fs_mkdir_at(fd, name, 0700);
}

static int tree_finish_dir(void *ctx, int dir_fd, const char *name, const char *path,
                           unsigned char type)
{
	cleanup_close int src_fd = FD_NONE;
	cleanup_close int dst_fd = FD_NONE;
	struct tree *t = ctx;
	int r;

	(void)type;
	src_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (src_fd < 0)
		return -errno;
	r = resolve_dir(t->dst_root_fd, path, &dst_fd);
	return r < 0 ? r : copy_dir_meta(src_fd, dst_fd);
}

static int copy_below(int src_fd, int dst_fd)
{
	struct tree t = { .dst_root_fd = dst_fd, .dst_fd = FD_NONE };
	struct fs_stat st;
	int r;

	r = fs_stat_at(src_fd, "", 0, &st);
	if (r < 0)
		return r;
	t.mnt_id = st.mnt_id;
	r = walk_tree(src_fd, "", tree_entry, tree_finish_dir, &t);
	close_fd(&t.dst_fd);
	free(t.dst_path);
	return r;
}

int copy_tree_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name)
{
	cleanup_close int src_fd = FD_NONE;
	cleanup_close int dst_fd = FD_NONE;
	struct fs_stat st;
	int r;

	r = fs_stat_at(src_dir_fd, src_name, 0, &st);
	if (r < 0)
		return r;
	if (!S_ISDIR(st.mode))
		return copy_entry_at(src_dir_fd, src_name, dst_dir_fd, dst_name, NULL, NULL);
	r = resolve_dir(src_dir_fd, src_name, &src_fd);
	if (r == 0)
		r = fs_mkdir_at(dst_dir_fd, dst_name, 0700);
	if (r < 0)
		return r;
	r = resolve_dir(dst_dir_fd, dst_name, &dst_fd);
	if (r == 0)
		r = copy_below(src_fd, dst_fd);
	if (r < 0)
		(void)remove_tree_at(dst_dir_fd, dst_name);
	return r;
}

bool copy_is_zero(const char *data, size_t len)
{
	return len > 0 && data[0] == '\0' && memcmp(data, data + 1, len - 1) == 0;
}

int64_t copy_next_data(int fd, int64_t at)
{
	off_t next = lseek(fd, (off_t)at, SEEK_DATA);

	if (next < 0 && errno == ENXIO)
		next = lseek(fd, 0, SEEK_END);
	return next > at ? next : at;
}

/* Past what neither has anything in: a file can be said to be larger than anybody could read. */
static int skip_holes(int a_fd, int b_fd)
{
	off_t at = lseek(a_fd, 0, SEEK_CUR);
	int64_t a = at < 0 ? at : copy_next_data(a_fd, at);
	int64_t b = at < 0 ? at : copy_next_data(b_fd, at);
	off_t to = (off_t)(a < b ? a : b);

	return at < 0 || lseek(a_fd, to, SEEK_SET) < 0 || lseek(b_fd, to, SEEK_SET) < 0 ? -errno
	                                                                                : 0;
}

static int compare_files(int a_fd, int b_fd)
{
	cleanup_free char *a = malloc(COMPARE_CHUNK);
	cleanup_free char *b = malloc(COMPARE_CHUNK);

	if (a == NULL || b == NULL)
		return -ENOMEM;
	for (;;) {
		size_t n, m;
		int r = fs_read_some(a_fd, a, COMPARE_CHUNK, &n);

		if (r == 0)
			r = fs_read_some(b_fd, b, COMPARE_CHUNK, &m);
		if (r < 0)
			return r;
		if (n != m || memcmp(a, b, n) != 0)
			return 0;
		if (n == 0)
			return 1;
		r = copy_is_zero(a, n) ? skip_holes(a_fd, b_fd) : 0;
		if (r < 0)
			return r;
	}
}

static int compare_links(struct place a, struct place b)
{
	char a_target[PATH_MAX];
	char b_target[PATH_MAX];
	int r = read_link(a, a_target);

	if (r == 0)
		r = read_link(b, b_target);
	return r < 0 ? r : strcmp(a_target, b_target) == 0;
}

int copy_same_content(int a_dir_fd, const char *a_name, int b_dir_fd, const char *b_name)
{
	cleanup_close int a_fd = FD_NONE;
	cleanup_close int b_fd = FD_NONE;
	struct place a = { a_dir_fd, a_name };
	struct place b = { b_dir_fd, b_name };
	struct fs_stat a_st;
	struct fs_stat b_st;
	int r;

	r = fs_stat_at(a_dir_fd, a_name, 0, &a_st);
	if (r == 0)
		r = fs_stat_at(b_dir_fd, b_name, 0, &b_st);
	if (r < 0)
		return r;
	if (S_ISLNK(a_st.mode) && S_ISLNK(b_st.mode))
		return compare_links(a, b);
	if (!S_ISREG(a_st.mode) || !S_ISREG(b_st.mode))
		return -EINVAL;
	if (a_st.size != b_st.size)
		return 0;
	if (same_inode(&a_st, &b_st))
		return 1;
	r = open_source(a, &a_st, &a_fd);
	if (r == 0)
		r = open_source(b, &b_st, &b_fd);
	return r < 0 ? r : compare_files(a_fd, b_fd);
}
