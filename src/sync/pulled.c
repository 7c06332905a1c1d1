/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a stream are gathered as entries, one behind another; at the end they are ordered by path,
 * the last one of a path counts, and merged with what was there.
 */
#include "sync/pulled.h"

#include "sync/path.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct sync_pulled {
	const struct sync_manifest *old;
	struct sync_manifest *news; /* not ordered; mode 0: gone */
	struct sync_reader *reader;
	struct hash *hash; /* of the file that comes */
	bool in_pack;
	struct strlist skipped;
};

static const unsigned char zeros[SYNC_CHUNK];

static struct sync_entry *last(struct sync_pulled *p)
{
	return &p->news->v[p->news->n - 1];
}

static void add_zeros(struct hash *h, uint64_t size)
{
	while (size > 0) {
		size_t n = size < sizeof(zeros) ? (size_t)size : sizeof(zeros);

		hash_add(h, zeros, n);
		size -= n;
	}
}

static int add(struct sync_pulled *p, const struct sync_record *rec, uint32_t mode)
{
	struct sync_entry e = { .mode = mode,
		                .flags = SYNC_ENTRY_UNKNOWN,
		                .mtime_ns = S_ISDIR(mode) ? 0 : rec->mtime_ns };

	return sync_manifest_add(p->news, rec->path, &e);
}

static int take_entry(struct sync_pulled *p, const struct sync_record *rec)
{
	int r;

	if (!S_ISREG(rec->mode) && !S_ISDIR(rec->mode) && !S_ISLNK(rec->mode))
		return -EPROTO;
	r = add(p, rec, rec->mode);
	if (r == 0) {
		last(p)->size = rec->size;
		memcpy(last(p)->hash, rec->hash, SYNC_HASH_SIZE);
	}
	return r;
}

static int take_link(struct sync_pulled *p, const struct sync_record *rec)
{
	int r = add(p, rec, S_IFLNK | 0777);

	if (r == 0) {
		last(p)->size = strlen(rec->other);
		hash_reset(p->hash);
		hash_add(p->hash, rec->other, strlen(rec->other));
		hash_bytes(p->hash, last(p)->hash);
	}
	return r;
}

static int take_content(struct sync_pulled *p, const struct sync_record *rec)
{
	if (rec->type == SYNC_DONE && !p->in_pack) {
		hash_bytes(p->hash, last(p)->hash);
		last(p)->size = rec->size;
	} else if (rec->type == SYNC_DONE) {
		p->in_pack = false;
	} else if (rec->type == SYNC_HOLE) {
		add_zeros(p->hash, rec->size);
	} else if (!p->in_pack) {
		hash_add(p->hash, rec->data, rec->len);
	}
	return 0;
}

static int take_record(struct sync_pulled *p, const struct sync_record *rec)
{
	switch (rec->type) {
	case SYNC_DIR:
		return add(p, rec, S_IFDIR | rec->mode);
	case SYNC_FILE:
		hash_reset(p->hash);
		return add(p, rec, S_IFREG | rec->mode);
	case SYNC_LINK:
		return take_link(p, rec);
	case SYNC_GONE:
		return add(p, rec, 0);
	case SYNC_ENTRY:
		return take_entry(p, rec);
	case SYNC_SKIPPED:
		strlist_add(&p->skipped, rec->path);
		return 0;
	case SYNC_PACK:
		p->in_pack = true;
		return 0;
	case SYNC_DATA:
	case SYNC_HOLE:
	case SYNC_DONE:
		return take_content(p, rec);
	case SYNC_END:
		return 0;
	case SYNC_MOVE: /* of what is known to both, which the other side does not have */
	case SYNC_META:
		break;
	}
	return -EPROTO;
}

static int take(void *ctx, const struct sync_record *rec, struct error *err)
{
	int r = take_record(ctx, rec);

	if (r == -EPROTO)
		return error_set(err, r, "the stream has something that cannot be taken here");
	return r < 0 ? error_sys(err, r, "note", rec->path ? rec->path : "a file") : 0;
}

int sync_pulled_new(const struct sync_manifest *old, struct sync_pulled **ret)
{
	cleanup_sync_pulled struct sync_pulled *p = xcalloc(1, sizeof(*p));
	int r = sync_reader_new(take, p, &p->reader);

	if (r < 0)
		return r;
	p->old = old;
	p->news = sync_manifest_new();
	p->hash = hash_new();
	*ret = take_ptr(p);
	return 0;
}

void sync_pulled_free(struct sync_pulled *p)
{
	int e = errno;

	if (!p)
		return;
	sync_manifest_free(p->news);
	sync_reader_free(p->reader);
	hash_free(p->hash);
	strlist_done(&p->skipped);
	free(p);
	errno = e;
}

void cleanup_sync_pulledp(struct sync_pulled **p)
{
	sync_pulled_free(*p);
}

int sync_pulled_feed(struct sync_pulled *p, const void *data, size_t len, struct error *err)
{
	return sync_reader_feed(p->reader, data, len, err);
}

const char *sync_pulled_skipped(const struct sync_pulled *p, size_t i)
{
	return i < p->skipped.n ? p->skipped.v[i] : NULL;
}

/* ---- merging ---- */

/* Paths are added one behind another, so where one lies tells which came later. */
static int by_path(const void *a, const void *b, void *ctx)
{
	const struct sync_manifest *m = ctx;
	const struct sync_entry *x = a, *y = b;
	int order = sync_path_compare(sync_manifest_path(m, x), sync_manifest_path(m, y));

	if (order != 0)
		return order;
	return x->path_at < y->path_at ? -1 : x->path_at > y->path_at;
}

static void order_news(struct sync_manifest *m)
{
	size_t n = 0;

	if (m->n > 1)
		qsort_r(m->v, m->n, sizeof(*m->v), by_path, m);
	for (size_t i = 0; i < m->n; i++)
		if (i + 1 == m->n || strcmp(sync_manifest_path(m, &m->v[i]),
		                            sync_manifest_path(m, &m->v[i + 1])) != 0)
			m->v[n++] = m->v[i];
	m->n = n;
}

static int copy_entry(struct sync_manifest *to, const struct sync_manifest *from, size_t at)
{
	const struct sync_entry *e = &from->v[at];

	return e->mode == 0 ? 0 : sync_manifest_add(to, sync_manifest_path(from, e), e);
}

static int merge(const struct sync_manifest *old, const struct sync_manifest *news,
                 struct sync_manifest *ret)
{
	size_t o = 0, n = 0, old_n = old ? old->n : 0;
	int r = 0;

	while (r == 0 && (o < old_n || n < news->n)) {
		int order = o == old_n ? 1
		            : n == news->n
		                    ? -1
		                    : sync_path_compare(sync_manifest_path(old, &old->v[o]),
		                                        sync_manifest_path(news, &news->v[n]));

		if (order < 0)
			r = copy_entry(ret, old, o);
		else
			r = copy_entry(ret, news, n);
		o += order <= 0;
		n += order >= 0;
	}
	return r;
}

int sync_pulled_finish(struct sync_pulled *p, struct sync_manifest **ret, uint64_t *ret_changes,
                       struct error *err)
{
	cleanup_sync_manifest struct sync_manifest *m = sync_manifest_new();
	int r = sync_reader_finish(p->reader, err);

	if (r < 0)
		return r;
	order_news(p->news);
	m->generation = p->old ? p->old->generation : 0;
	if (p->old)
		m->time = p->old->time;
	r = merge(p->old, p->news, m);
	if (r < 0)
		return error_set(err, r, "no memory for a manifest");
	*ret_changes = p->news->n;
	*ret = take_ptr(m);
	return 0;
}
