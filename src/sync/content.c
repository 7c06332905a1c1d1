/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/content.h"

#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_BITS 07777u

static const unsigned char zeros[SYNC_CHUNK];

struct sync_look {
	struct sync_writer *w;
	struct hash *hash;
	uint64_t at; /* bytes of the file that were read */
	unsigned char buf[SYNC_CHUNK + 1];
};

struct sync_look *sync_look_new(void)
{
	struct sync_look *l = xcalloc(1, sizeof(*l));

	l->hash = hash_new();
	return l;
}

void sync_look_free(struct sync_look *l)
{
	if (l)
		hash_free(l->hash);
	free(l);
}

void cleanup_sync_lookp(struct sync_look **l)
{
	sync_look_free(*l);
}

static int read_some(int fd, void *buf, size_t max, size_t *ret)
{
	ssize_t n;

	do
		n = read(fd, buf, max);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*ret = (size_t)n;
	return 0;
}

/* Until END, or the end of the file: *ret_ended then. */
static int read_data(struct sync_look *l, int fd, uint64_t end, bool *ret_ended)
{
	while (l->at < end) {
		size_t max = end - l->at < SYNC_CHUNK ? (size_t)(end - l->at) : SYNC_CHUNK, n = 0;
		int r = read_some(fd, l->buf, max, &n);

		if (r < 0)
			return r;
		if (n == 0) {
			*ret_ended = true;
			return 0;
		}
		l->at += n;
		/* A file gives less than was asked for only at its end. */
		*ret_ended = n < max;
		hash_add(l->hash, l->buf, n);
		if (l->w)
			r = sync_write(l->w, &(struct sync_record){ .type = SYNC_DATA,
			                                            .data = l->buf,
			                                            .len = n });
		if (r < 0 || *ret_ended)
			return r;
	}
	return 0;
}

static int skip_hole(struct sync_look *l, int fd, uint64_t to)
{
	uint64_t size = to - l->at;

	for (uint64_t left = size; left > 0;) {
		size_t n = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);

		hash_add(l->hash, zeros, n);
		left -= n;
	}
	l->at = to;
	if (lseek(fd, (off_t)to, SEEK_SET) < 0)
		return -errno;
	return l->w ? sync_write(l->w, &(struct sync_record){ .type = SYNC_HOLE, .size = size })
	            : 0;
}

/* From one hole to the next. SIZE is where the file ended when it was looked at. */
static int read_sparse(struct sync_look *l, int fd, uint64_t size)
{
	bool ended = false;

	while (l->at < size && !ended) {
		off_t data = lseek(fd, (off_t)l->at, SEEK_DATA), hole;
		int r;

		if (data < 0 && errno != ENXIO)
			return -errno;
		if (data < 0 || (uint64_t)data > size)
			data = (off_t)size;
		r = (uint64_t)data > l->at ? skip_hole(l, fd, (uint64_t)data) : 0;
		if (r < 0 || l->at >= size)
			return r;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || lseek(fd, data, SEEK_SET) < 0)
			return -errno;
		r = read_data(l, fd, (uint64_t)hole, &ended);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_content(struct sync_look *l, int fd, struct sync_writer *w, struct sync_content *c)
{
	bool ended = false;
	int r;

	l->w = w;
	l->at = 0;
	hash_reset(l->hash);
	if (c->st.size > SYNC_CHUNK && c->st.disk < c->st.size)
		r = read_sparse(l, fd, c->st.size);
	else
		r = read_data(l, fd, UINT64_MAX, &ended);
	hash_bytes(l->hash, c->hash);
	c->len = l->at;
	return r;
}

static bool is_same(const struct fs_stat *a, const struct fs_stat *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->mode == b->mode;
}

static int send_file(struct sync_look *l, int fd, const char *path, struct sync_writer *w,
                     struct sync_content *c)
{
	const struct sync_record head = { .type = SYNC_FILE,
		                          .path = path,
		                          .mode = c->st.mode & MODE_BITS,
		                          .mtime_ns = c->st.mtime_ns };
	struct fs_stat after;
	int r = w ? sync_write(w, &head) : 0;

	if (r == 0)
		r = read_content(l, fd, w, c);
	if (r == 0 && w)
		r = sync_write_done(w);
	if (r == 0)
		r = fs_stat_at(fd, "", 0, &after);
	c->steady = r == 0 && is_same(&c->st, &after) && c->len == c->st.size;
	return r;
}

static bool not_there(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int look_at_file(struct sync_look *l, int dir_fd, const char *name, const char *path,
                        struct sync_writer *w, struct sync_content *c)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = fs_stat_at(fd, "", 0, &c->st);
	if (r == 0 && !S_ISREG(c->st.mode))
		r = -ENOENT; /* it is something else by now */
	return r < 0 ? r : send_file(l, fd, path, w, c);
}

static int look_at_link(struct sync_look *l, int dir_fd, const char *name, const char *path,
                        struct sync_writer *w, struct sync_content *c)
{
	ssize_t n = readlinkat(dir_fd, name, (char *)l->buf, SYNC_CHUNK);

	if (n < 0)
		return errno == EINVAL ? -ENOENT : -errno;
	l->buf[n] = '\0';
	c->target = (char *)l->buf;
	c->len = (uint64_t)n;
	hash_reset(l->hash);
	hash_add(l->hash, l->buf, (size_t)n);
	hash_bytes(l->hash, c->hash);
	return w ? sync_write(w, &(struct sync_record){ .type = SYNC_LINK,
	                                                .path = path,
	                                                .other = c->target,
	                                                .mtime_ns = c->st.mtime_ns })
	         : 0;
}

static int look_at_other(const char *path, struct sync_writer *w, const struct sync_content *c)
{
	bool is_dir = S_ISDIR(c->st.mode) && !c->st.mount_root;
	const struct sync_record rec = { .type = is_dir ? SYNC_DIR : SYNC_SKIPPED,
		                         .path = path,
		                         .mode = is_dir ? c->st.mode & MODE_BITS : c->st.mode,
		                         .mtime_ns = c->st.mtime_ns };

	return w ? sync_write(w, &rec) : 0;
}

static int look(struct sync_look *l, int dir_fd, const char *name, const char *path, bool seen,
                struct sync_writer *w, struct sync_content *c)
{
	int r = seen ? 0 : fs_stat_at(dir_fd, name, 0, &c->st);

	if (r < 0)
		return r;
	if (seen || S_ISREG(c->st.mode))
		return look_at_file(l, dir_fd, name, path, w, c);
	if (S_ISLNK(c->st.mode))
		return look_at_link(l, dir_fd, name, path, w, c);
	return look_at_other(path, w, c);
}

int sync_look_at(struct sync_look *l, int dir_fd, const char *name, const char *path, bool seen,
                 struct sync_writer *w, struct sync_content *ret)
{
	struct sync_content c = { .steady = true };
	int r = look(l, dir_fd, name, path, seen, w, &c);

	if (not_there(r)) {
		c = (struct sync_content){ .steady = true };
		r = 0;
	}
	if (r == 0)
		*ret = c;
	return r;
}
