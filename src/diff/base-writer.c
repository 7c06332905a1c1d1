/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a base record. A block is put together outside the lock and appended under it. */
#include "diff/base.h"

#include "diff/base-impl.h"
#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct base_link {
	uint64_t ino;
	int64_t ctime_ns;
};

struct base_writer {
	int fd;

	pthread_mutex_t lock; /* guards all below */
	uint64_t offset;      /* end of what is written */
	uint32_t n_dirs;
	uint64_t count;
	uint64_t *index; /* CAP_INDEX of them, those without a block are 0 */
	size_t cap_index;
	struct base_link *links;
	size_t n_links;
	size_t cap_links;
	int failure; /* a write failed: the file has a hole */
};

void base_encode(unsigned char at[BASE_ENTRY_FIXED], const struct base_entry *e, size_t name_len)
{
	base_put(at, name_len, 2);
	base_put(at + 2, e->flags, 2);
	base_put(at + 4, e->dir, 4);
	base_put(at + 8, e->src.id.ino, 8);
	base_put(at + 16, e->src.id.gen, 8);
	base_put(at + 24, e->src.mode, 4);
	base_put(at + 28, e->src.uid, 4);
	base_put(at + 32, e->src.gid, 4);
	base_put(at + 36, e->src.nlink, 4);
	base_put(at + 40, e->src.size, 8);
	base_put(at + 48, (uint64_t)e->src.mtime_ns, 8);
	base_put(at + 56, (uint64_t)e->src.ctime_ns, 8);
	base_put(at + 64, S_ISDIR(e->src.mode) ? e->work_gen : e->src.rdev, 8);
	base_put(at + 72, e->work_ino, 8);
	base_put(at + 80, (uint64_t)e->work_ctime_ns, 8);
	base_put(at + 88, e->xattrs, 8);
}

/* With the lock held, or before any other thread knows W. */
static int append(struct base_writer *w, const void *data, size_t len)
{
	if (w->failure == 0)
		w->failure = fs_write_all(w->fd, data, len);
	if (w->failure == 0)
		w->offset += len;
	return w->failure;
}

int base_writer_new(int fd, struct base_writer **ret)
{
	unsigned char head[BASE_HEADER_LEN] = BASE_MAGIC;
	struct base_writer *w;
	int own, r;

	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	w = xcalloc(1, sizeof(*w));
	w->fd = own;
	pthread_mutex_init(&w->lock, NULL);
	base_put(head + BASE_MAGIC_LEN, BASE_VERSION, 4);
	r = append(w, head, sizeof(head));
	if (r < 0) {
		base_writer_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

uint32_t base_writer_dir(struct base_writer *w)
{
	uint32_t number;

	pthread_mutex_lock(&w->lock);
	number = w->n_dirs++;
	pthread_mutex_unlock(&w->lock);
	return number;
}

/* Bytes of a block, 0 when an entry does not belong into it. */
static size_t measure(uint32_t dir, const struct base_entry *v, size_t n)
{
	size_t len = BASE_BLOCK_HEAD;

	for (size_t i = 0; i < n; i++) {
		size_t name_len = strlen(v[i].name);

		if (name_len == 0 || name_len > BASE_NAME_MAX || (v[i].flags & ~BASE_FLAGS))
			return 0;
		if (S_ISDIR(v[i].src.mode) != (v[i].dir != BASE_NO_DIR))
			return 0;
		if (v[i].dir != BASE_NO_DIR && v[i].dir <= dir)
			return 0;
		if (i > 0 && strcmp(v[i - 1].name, v[i].name) >= 0)
			return 0;
		len += BASE_ENTRY_FIXED + name_len + 1;
	}
	return len;
}

static void encode_block(unsigned char *buf, size_t len, uint32_t dir, const struct base_entry *v,
                         size_t n)
{
	unsigned char *at = buf + BASE_BLOCK_HEAD;

	base_put(buf + 8, dir, 4);
	base_put(buf + 12, n, 4);
	base_put(buf + 16, len - BASE_BLOCK_HEAD, 8);
	for (size_t i = 0; i < n; i++) {
		size_t name_len = strlen(v[i].name);

		base_encode(at, &v[i], name_len);
		memcpy(at + BASE_ENTRY_FIXED, v[i].name, name_len + 1);
		at += BASE_ENTRY_FIXED + name_len + 1;
	}
	base_put(buf, hash64(buf + BASE_HASH_LEN, len - BASE_HASH_LEN), BASE_HASH_LEN);
}

/* Room for directory number DIR in the index. With the lock held. */
static int reach_index(struct base_writer *w, uint32_t dir)
{
	size_t before = w->cap_index;
	void *index = w->index;
	int r;

	r = grow(&index, &w->cap_index, (size_t)dir + 1, sizeof(*w->index));
	if (r < 0)
		return r;
	w->index = index;
	memset(w->index + before, 0, (w->cap_index - before) * sizeof(*w->index));
	return 0;
}

int base_writer_block(struct base_writer *w, uint32_t dir, const struct base_entry *v, size_t n)
{
	cleanup_free unsigned char *buf = NULL;
	size_t len = measure(dir, v, n);
	int r;

	if (len == 0)
		return -EINVAL;
	buf = malloc(len);
	if (!buf)
		return -ENOMEM;
	encode_block(buf, len, dir, v, n);

	pthread_mutex_lock(&w->lock);
	r = dir < w->n_dirs ? reach_index(w, dir) : -EINVAL;
	if (r == 0) {
		uint64_t offset = w->offset;

		r = append(w, buf, len);
		if (r == 0) {
			w->index[dir] = offset;
			w->count += n;
		}
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

int base_writer_link(struct base_writer *w, uint64_t work_ino, int64_t work_ctime_ns)
{
	void *links;
	int r;

	pthread_mutex_lock(&w->lock);
	links = w->links;
	r = grow(&links, &w->cap_links, w->n_links + 1, sizeof(*w->links));
	if (r == 0) {
		w->links = links;
		w->links[w->n_links++] = (struct base_link){ work_ino, work_ctime_ns };
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int by_ino(const void *a, const void *b)
{
	const struct base_link *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void encode_index(unsigned char *at, const struct base_writer *w)
{
	for (uint32_t i = 0; i < w->n_dirs; i++, at += 8)
		base_put(at, i < w->cap_index ? w->index[i] : 0, 8);
	for (size_t i = 0; i < w->n_links; i++, at += BASE_LINK_LEN) {
		base_put(at, w->links[i].ino, 8);
		base_put(at + 8, (uint64_t)w->links[i].ctime_ns, 8);
	}
}

static void encode_trailer(unsigned char *at, const struct base_writer *w,
                           const struct base_entry *root)
{
	memcpy(at, BASE_MAGIC, BASE_MAGIC_LEN);
	base_put(at + 8, w->offset, 8);
	base_put(at + 16, w->n_dirs, 8);
	base_put(at + 24, w->n_links, 8);
	base_put(at + 32, w->count, 8);
	base_encode(at + BASE_TRAILER_HEAD, root, 0);
}

int base_writer_finish(struct base_writer *w, const struct base_entry *root)
{
	cleanup_free unsigned char *buf = NULL;
	size_t index_len = (size_t)w->n_dirs * 8 + w->n_links * BASE_LINK_LEN;
	unsigned char *trailer;

	if (w->n_dirs == 0 || root->dir != 0 || !S_ISDIR(root->src.mode))
		return -EINVAL;
	buf = malloc(index_len + BASE_TRAILER_LEN);
	if (!buf)
		return -ENOMEM;
	if (w->n_links > 1)
		qsort(w->links, w->n_links, sizeof(*w->links), by_ino);
	encode_index(buf, w);

	trailer = buf + index_len;
	encode_trailer(trailer, w, root);
	base_put(trailer + BASE_TRAILER_LEN - 16, hash64(buf, index_len), 8);
	base_put(trailer + BASE_TRAILER_LEN - 8, hash64(trailer, BASE_TRAILER_LEN - 8), 8);
	return append(w, buf, index_len + BASE_TRAILER_LEN);
}

void base_writer_free(struct base_writer *w)
{
	if (!w)
		return;
	close_fd(&w->fd);
	pthread_mutex_destroy(&w->lock);
	free(w->index);
	free(w->links);
	free(w);
}

void cleanup_base_writerp(struct base_writer **w)
{
	base_writer_free(*w);
}
