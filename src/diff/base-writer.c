/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a base record. A block is put together outside the lock and appended under it. */
#include "diff/base.h"

#include "diff/base-impl.h"
#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WRITE_SIZE (64u << 10)

struct base_link {
	uint64_t ino;
	int64_t ctime_ns;
};

struct base_writer {
	int fd;
	bool may_spill;
	int dir_fd;

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
	bool has_content = !S_ISDIR(e->src.mode) && e->src.content.known;

	base_put(at, name_len, 2);
	base_put(at + 2, e->flags | (has_content ? BASE_CONTENT : 0), 2);
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
	base_put(at + 88, has_content ? e->src.content.xattrs : e->xattrs, 8);
	memset(at + 96, 0, HASH_SIZE);
	if (has_content)
		memcpy(at + 96, e->src.content.hash, HASH_SIZE);
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

void base_writer_spill_to(struct base_writer *w, int dir_fd)
{
	w->may_spill = true;
	w->dir_fd = dir_fd;
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

/* ---- one block ---- */

void base_draft_init(struct base_draft *d, const struct base_writer *w, uint32_t dir)
{
	*d = (struct base_draft){ .dir = dir, .len = BASE_BLOCK_HEAD };
	if (w->may_spill)
		spool_spill_to(&d->v, w->dir_fd);
}

void base_draft_done(struct base_draft *d)
{
	spool_done(&d->v);
	free(d->last);
	d->last = NULL;
}

static bool belongs(const struct base_draft *d, const struct base_entry *e, size_t name_len)
{
	return name_len > 0 && name_len <= BASE_NAME_MAX && !(e->flags & ~BASE_FLAGS) &&
	       S_ISDIR(e->src.mode) == (e->dir != BASE_NO_DIR) &&
	       (e->dir == BASE_NO_DIR || e->dir > d->dir) &&
	       (!d->last || strcmp(d->last, e->name) < 0);
}

int base_draft_add(struct base_draft *d, const struct base_entry *e)
{
	unsigned char buf[BASE_ENTRY_FIXED + BASE_NAME_MAX + 1];
	size_t name_len = strlen(e->name);
	int r;

	if (!belongs(d, e, name_len))
		return -EINVAL;
	r = grow((void **)&d->last, &d->last_cap, name_len + 1, 1);
	if (r < 0)
		return r;
	base_encode(buf, e, name_len);
	memcpy(buf + BASE_ENTRY_FIXED, e->name, name_len + 1);
	r = spool_add(&d->v, buf, BASE_ENTRY_FIXED + name_len + 1);
	if (r < 0)
		return r;
	memcpy(d->last, e->name, name_len + 1);
	d->len += BASE_ENTRY_FIXED + name_len + 1;
	return 0;
}

typedef int (*draft_fn)(void *ctx, const void *data, size_t len);

static int draft_each(const struct base_draft *d, draft_fn fn, void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < d->v.n && r == 0; i++) {
		const void *data;
		size_t len;

		r = spool_get(&d->v, i, &data, &len);
		if (r == 0)
			r = fn(ctx, data, len);
	}
	return r;
}

static int add_to_hash(void *ctx, const void *data, size_t len)
{
	hash_add(ctx, data, len);
	return 0;
}

struct collected {
	struct base_writer *w;
	struct strbuf sb;
};

static int collect(void *ctx, const void *data, size_t len)
{
	struct collected *c = ctx;
	int r = 0;

	strbuf_add(&c->sb, data, len);
	if (c->sb.len >= WRITE_SIZE) {
		r = append(c->w, c->sb.buf, c->sb.len);
		strbuf_truncate(&c->sb, 0);
	}
	return r;
}

static int put(struct base_draft *d, struct base_writer *w, const unsigned char *head)
{
	struct collected c = { .w = w, .sb = STRBUF_INIT };
	uint64_t offset = w->offset;
	int r = d->dir < w->n_dirs ? reach_index(w, d->dir) : -EINVAL;

	if (r == 0)
		r = collect(&c, head, BASE_BLOCK_HEAD);
	if (r == 0)
		r = draft_each(d, collect, &c);
	if (r == 0)
		r = append(w, c.sb.buf, c.sb.len);
	strbuf_done(&c.sb);
	if (r < 0 && r != -EINVAL && w->failure == 0)
		w->failure = r; /* perhaps in the middle of it */
	if (r == 0) {
		w->index[d->dir] = offset;
		w->count += d->v.n;
	}
	return r;
}

int base_draft_put(struct base_draft *d, struct base_writer *w)
{
	cleanup_hash struct hash *hash = hash_new();
	unsigned char head[BASE_BLOCK_HEAD];
	int r;

	base_put(head + 8, d->dir, 4);
	base_put(head + 12, d->v.n, 4);
	base_put(head + 16, d->len - BASE_BLOCK_HEAD, 8);
	hash_add(hash, head + BASE_HASH_LEN, sizeof(head) - BASE_HASH_LEN);
	r = draft_each(d, add_to_hash, hash);
	if (r < 0)
		return r;
	base_put(head, hash_sum64(hash), BASE_HASH_LEN);
	pthread_mutex_lock(&w->lock);
	r = put(d, w, head);
	pthread_mutex_unlock(&w->lock);
	return r;
}

int base_writer_block(struct base_writer *w, uint32_t dir, const struct base_entry *v, size_t n)
{
	cleanup_base_draft struct base_draft d = { 0 };
	int r = 0;

	base_draft_init(&d, w, dir);
	for (size_t i = 0; i < n && r == 0; i++)
		r = base_draft_add(&d, &v[i]);
	return r < 0 ? r : base_draft_put(&d, w);
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
