/* SPDX-License-Identifier: Apache-2.0 */
/* What entries hold, as records keep it. See content.h. */
#include "fs/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/git-index.h"
#include "util/hash.h"

#define SHORT_LEN (16u << 10)  /* read in one piece, without asking for memory */
#define CHUNK_LEN (256u << 10) /* of a longer one */

static int hash_stream(int fd, const char *first, size_t n_first, unsigned char out[HASH_SIZE])
{
	cleanup_hash struct hash *h = hash_new();
	cleanup_free char *buf = malloc(CHUNK_LEN);
	size_t n = n_first;
	int r = buf ? 0 : -ENOMEM;

	hash_add(h, first, n_first);
	while (r >= 0 && n > 0) {
		r = fs_read_some(fd, buf, CHUNK_LEN, &n);
		if (r >= 0)
			hash_add(h, buf, n);
	}
	hash_bytes(h, out);
	return r;
}

/* -ENODATA: it is none. */
static int hash_index(int fd, size_t size, unsigned char out[HASH_SIZE])
{
	cleanup_hash struct hash *h = hash_new();
	cleanup_free char *data = malloc(size);
	size_t n = 0;
	int r = data ? 0 : -ENOMEM;

	if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r >= 0)
		r = fs_read_some(fd, data, size, &n);
	if (r >= 0 && !git_index_add(data, n, h))
		r = -ENODATA;
	hash_bytes(h, out);
	return r;
}

static int hash_file(int fd, size_t size, unsigned char out[HASH_SIZE])
{
	char buf[SHORT_LEN];
	size_t n = 0;
	int r = fs_read_some(fd, buf, size < sizeof(buf) ? size : sizeof(buf), &n);

	if (r >= 0 && n >= GIT_INDEX_MAGIC_LEN &&
	    memcmp(buf, GIT_INDEX_MAGIC, GIT_INDEX_MAGIC_LEN) == 0) {
		r = hash_index(fd, size, out);
		if (r != -ENODATA)
			return r;
		if (lseek(fd, (off_t)n, SEEK_SET) < 0)
			return -errno;
		r = 0;
	}
	if (r < 0 || n < sizeof(buf)) {
		hash128(buf, n, out);
		return r;
	}
	return hash_stream(fd, buf, n, out);
}

static bool unchanged(const struct fs_stat *was, const struct fs_stat *now)
{
	return was->id.ino == now->id.ino && was->ctime_ns == now->ctime_ns &&
	       was->mode == now->mode && was->size == now->size;
}

/* What it is, the caller tells by fstat. Who may leaves the time of access alone: setting it costs more than the
 * reading of a short file. */
static int open_seen(int dir_fd, const char *name)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = openat(dir_fd, name, flags | O_NOATIME);

	if (fd < 0 && errno == EPERM)
		fd = openat(dir_fd, name, flags);
	return fd < 0 ? -errno : fd;
}

static int hash_xattrs(int fd, uint64_t *ret)
{
	ssize_t n = flistxattr(fd, NULL, 0);

	*ret = 0;
	return n == 0 || (n < 0 && errno == ENOTSUP) ? 0 : xattrs_hash_at(fd, "", ret);
}

static int take_file(int dir_fd, const char *name, const struct fs_stat *st, struct fs_content *ret)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat after;
	int r = open_seen(dir_fd, name);

	if (r < 0)
		return r;
	fd = r;
	r = hash_file(fd, (size_t)st->size, ret->hash);
	if (r >= 0)
		r = hash_xattrs(fd, &ret->xattrs);
	if (r >= 0)
		r = fs_stat_at(fd, "", 0, &after);
	return r < 0 ? r : unchanged(st, &after) ? 0 : -EAGAIN;
}

static int take_link(int dir_fd, const char *name, const struct fs_stat *st, struct fs_content *ret)
{
	char target[PATH_MAX];
	struct fs_stat after;
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));
	int r = n < 0 ? -errno : xattrs_hash_at(dir_fd, name, &ret->xattrs);

	if (r >= 0)
		r = fs_stat_at(dir_fd, name, 0, &after);
	if (r < 0)
		return r;
	hash128(target, (size_t)n, ret->hash);
	return unchanged(st, &after) ? 0 : -EAGAIN;
}

void fs_content_take(int dir_fd, const char *name, struct fs_stat *st)
{
	struct fs_content c = { 0 };
	int r = -ENODATA;

	if (S_ISREG(st->mode) && st->size <= FS_CONTENT_MAX)
		r = take_file(dir_fd, name, st, &c);
	else if (S_ISLNK(st->mode))
		r = take_link(dir_fd, name, st, &c);
	c.known = r >= 0;
	st->content = c;
}

void fs_content_take_below(int root_fd, const char *path, struct fs_stat *st)
{
	cleanup_close int fd = FD_NONE;
	const char *name;

	if (!S_ISREG(st->mode) && !S_ISLNK(st->mode))
		return;
	if (!strchr(path, '/'))
		fs_content_take(root_fd, path, st);
	else if (resolve_parent(root_fd, path, &fd, &name) >= 0)
		fs_content_take(fd, name, st);
}

static bool same_meta(const struct fs_stat *a, const struct fs_stat *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

bool fs_content_equal(const struct fs_stat *a, const struct fs_stat *b)
{
	return same_meta(a, b) && a->content.known && b->content.known &&
	       a->content.xattrs == b->content.xattrs &&
	       memcmp(a->content.hash, b->content.hash, HASH_SIZE) == 0;
}

bool fs_content_same(int root_fd, const char *path, const struct fs_stat *was, struct fs_stat *now)
{
	if (!was->content.known || !same_meta(was, now) || stamp_wait_past(now->ctime_ns) < 0)
		return false;
	fs_content_take_below(root_fd, path, now);
	return fs_content_equal(was, now);
}
