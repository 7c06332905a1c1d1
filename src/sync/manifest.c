/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the file: a head, the entries as they are in memory, the paths, XXH3-128 over all of that. It is
 * read as a whole, for all of it is needed.
 */
#include "sync/manifest.h"

#include "fs/atomic.h"
#include "sync/path.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "atollmf2"
#define ORDER 0x01020304u

struct head {
	char magic[8];
	uint32_t order;      /* of the bytes of a number */
	uint32_t entry_size; /* so that another layout is another version */
	uint64_t generation;
	uint64_t n;
	uint64_t paths_len;
	struct sync_time time;
};

struct sync_manifest *sync_manifest_new(void)
{
	return xcalloc(1, sizeof(struct sync_manifest));
}

void sync_manifest_free(struct sync_manifest *m)
{
	int e = errno;

	if (m) {
		free(m->v);
		free(m->paths);
	}
	free(m);
	errno = e;
}

void cleanup_sync_manifestp(struct sync_manifest **m)
{
	sync_manifest_free(*m);
}

const char *sync_manifest_path(const struct sync_manifest *m, const struct sync_entry *e)
{
	return m->paths + e->path_at;
}

const struct sync_entry *sync_manifest_find(const struct sync_manifest *m, const char *path)
{
	size_t from = 0, to = m->n;

	while (from < to) {
		size_t mid = from + (to - from) / 2;
		int order = sync_path_compare(path, sync_manifest_path(m, &m->v[mid]));

		if (order == 0)
			return &m->v[mid];
		if (order < 0)
			to = mid;
		else
			from = mid + 1;
	}
	return NULL;
}

int sync_manifest_add(struct sync_manifest *m, const char *path, const struct sync_entry *e)
{
	size_t len = strlen(path) + 1;
	void *v = m->v, *paths = m->paths;
	int r = grow(&v, &m->cap, m->n + 1, sizeof(*m->v));

	m->v = v;
	if (r == 0)
		r = grow(&paths, &m->paths_cap, m->paths_len + len, 1);
	m->paths = paths;
	if (r < 0)
		return r;
	memcpy(m->paths + m->paths_len, path, len);
	m->v[m->n] = *e;
	m->v[m->n++].path_at = m->paths_len;
	m->paths_len += len;
	return 0;
}

/* ---- the file ---- */

static bool head_is_good(const struct head *h, size_t len)
{
	if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->order != ORDER ||
	    h->entry_size != sizeof(struct sync_entry))
		return false;
	if (h->n > len / sizeof(struct sync_entry) || h->paths_len > len)
		return false;
	return len == sizeof(*h) + h->n * sizeof(struct sync_entry) + h->paths_len + HASH_SIZE;
}

static bool sum_is_good(const unsigned char *data, size_t len)
{
	cleanup_hash struct hash *h = hash_new();
	unsigned char sum[HASH_SIZE];

	hash_add(h, data, len - HASH_SIZE);
	hash_bytes(h, sum);
	return memcmp(sum, data + len - HASH_SIZE, HASH_SIZE) == 0;
}

/* A good sum is no proof: what is read from a file is looked at before it is used. */
static bool entries_are_good(const struct sync_manifest *m)
{
	const char *before = NULL;

	if (m->paths_len > 0 && m->paths[m->paths_len - 1] != '\0')
		return false;
	for (size_t i = 0; i < m->n; i++) {
		const struct sync_entry *e = &m->v[i];
		const char *path;

		if (e->path_at >= m->paths_len)
			return false;
		path = sync_manifest_path(m, e);
		if (!sync_path_is_good(path, strlen(path)))
			return false;
		if (before && sync_path_compare(before, path) >= 0)
			return false;
		if (!S_ISREG(e->mode) && !S_ISDIR(e->mode) && !S_ISLNK(e->mode))
			return false;
		before = path;
	}
	return true;
}

static int copy_out(const void *from, size_t len, void **ret)
{
	void *p = malloc(len > 0 ? len : 1);

	if (!p)
		return -ENOMEM;
	if (len > 0)
		memcpy(p, from, len);
	*ret = p;
	return 0;
}

int sync_manifest_parse(const void *data, size_t len, struct sync_manifest **ret)
{
	cleanup_sync_manifest struct sync_manifest *m = NULL;
	const unsigned char *p = data;
	struct head h;
	void *v = NULL, *paths = NULL;

	if (len < sizeof(h) + HASH_SIZE)
		return 0;
	memcpy(&h, p, sizeof(h));
	if (!head_is_good(&h, len) || !sum_is_good(p, len))
		return 0;
	m = sync_manifest_new();
	m->generation = h.generation;
	m->time = h.time;
	m->time.boot[SYNC_BOOT_LEN - 1] = '\0';
	if (copy_out(p + sizeof(h), h.n * sizeof(struct sync_entry), &v) < 0)
		return -ENOMEM;
	m->v = v;
	m->n = m->cap = h.n;
	if (copy_out(p + sizeof(h) + h.n * sizeof(struct sync_entry), h.paths_len, &paths) < 0)
		return -ENOMEM;
	m->paths = paths;
	m->paths_len = m->paths_cap = h.paths_len;
	if (!entries_are_good(m))
		return 0;
	*ret = take_ptr(m);
	return 1;
}

int sync_manifest_load(int dir_fd, const char *name, struct sync_manifest **ret)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	cleanup_free char *data = NULL;
	size_t len = 0;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = fs_read_all(fd, LIMIT_MANIFEST, &data, &len);
	if (r == -ATOLL_E_TOO_BIG)
		return 0;
	return r < 0 ? r : sync_manifest_parse(data, len, ret);
}

int sync_manifest_save(int dir_fd, const char *name, const struct sync_manifest *m)
{
	struct head h = { .order = ORDER,
		          .entry_size = sizeof(struct sync_entry),
		          .generation = m->generation,
		          .n = m->n,
		          .paths_len = m->paths_len,
		          .time = m->time };
	cleanup_hash struct hash *sum = hash_new();
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	unsigned char bytes[HASH_SIZE];

	memcpy(h.magic, MAGIC, sizeof(h.magic));
	strbuf_add(&out, &h, sizeof(h));
	strbuf_add(&out, m->v, m->n * sizeof(*m->v));
	strbuf_add(&out, m->paths, m->paths_len);
	hash_add(sum, out.buf, out.len);
	hash_bytes(sum, bytes);
	strbuf_add(&out, bytes, sizeof(bytes));
	return fs_replace_file(dir_fd, name, out.buf, out.len, 0600);
}
