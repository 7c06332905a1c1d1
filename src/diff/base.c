/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a base record. Nothing in the file is believed before its hash fits, and nothing is
 * allocated before its length fits into the file.
 */
#include "diff/base.h"

#include "diff/base-impl.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/limits.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct base {
	int fd;
	struct base_entry root;
	uint64_t index_offset; /* blocks end here */
	uint64_t n_dirs;
	uint64_t n_links;
	uint64_t count;
	unsigned char *index; /* as in the file: N_DIRS offsets, then N_LINKS links */
};

size_t base_decode(const unsigned char at[BASE_ENTRY_FIXED], struct base_entry *ret)
{
	*ret = (struct base_entry){
		.flags = (unsigned)base_get(at + 2, 2),
		.dir = (uint32_t)base_get(at + 4, 4),
		.src.id.ino = base_get(at + 8, 8),
		.src.id.gen = base_get(at + 16, 8),
		.src.mode = (uint32_t)base_get(at + 24, 4),
		.src.uid = (uint32_t)base_get(at + 28, 4),
		.src.gid = (uint32_t)base_get(at + 32, 4),
		.src.nlink = (uint32_t)base_get(at + 36, 4),
		.src.size = base_get(at + 40, 8),
		.src.mtime_ns = (int64_t)base_get(at + 48, 8),
		.src.ctime_ns = (int64_t)base_get(at + 56, 8),
		.work_ino = base_get(at + 72, 8),
		.work_ctime_ns = (int64_t)base_get(at + 80, 8),
		.xattrs = base_get(at + 88, 8),
	};
	/* No directory is a device, or has content. */
	if (S_ISDIR(ret->src.mode))
		ret->work_gen = base_get(at + 64, 8);
	else
		ret->src.rdev = base_get(at + 64, 8);
	if (!S_ISDIR(ret->src.mode) && ret->flags & BASE_CONTENT) {
		ret->src.content.known = true;
		ret->src.content.xattrs = ret->xattrs;
		memcpy(ret->src.content.hash, at + 96, HASH_SIZE);
		ret->flags &= ~BASE_CONTENT;
		ret->xattrs = 0;
	}
	return (size_t)base_get(at, 2);
}

static int damaged(struct error *err, const char *what)
{
	return error_set(err, -ATOLL_E_DAMAGED, "the base record is damaged: %s", what);
}

static int read_at(int fd, void *buf, size_t len, uint64_t offset, struct error *err)
{
	unsigned char *at = buf;

	while (len > 0) {
		ssize_t n = pread(fd, at, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_sys(err, -errno, "read", "base record");
		if (n == 0)
			return damaged(err, "it ends early");
		at += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int check_header(int fd, uint64_t size, struct error *err)
{
	unsigned char head[BASE_HEADER_LEN];
	uint64_t version;
	int r;

	if (size < BASE_HEADER_LEN + BASE_TRAILER_LEN)
		return damaged(err, "it is not complete");
	r = read_at(fd, head, sizeof(head), 0, err);
	if (r < 0)
		return r;
	if (memcmp(head, BASE_MAGIC, BASE_MAGIC_LEN) != 0)
		return damaged(err, "it is something else");
	version = base_get(head + BASE_MAGIC_LEN, 4);
	if (version > BASE_VERSION)
		return error_set(err, -ATOLL_E_NEWER,
		                 "the base record was written by a newer version");
	if (version == BASE_VERSION_OLD)
		return error_set(
			err, -ATOLL_E_UNSUPPORTED,
			"the base record was written by an older version, which can commit "
			"the changes or discard them");
	if (version != BASE_VERSION || base_get(head + 12, 4) != 0)
		return damaged(err, "its header is not valid");
	return 0;
}

static int read_trailer(struct base *b, uint64_t size, unsigned char *trailer, struct error *err)
{
	uint64_t end = size - BASE_TRAILER_LEN;
	int r;

	r = read_at(b->fd, trailer, BASE_TRAILER_LEN, end, err);
	if (r < 0)
		return r;
	if (memcmp(trailer, BASE_MAGIC, BASE_MAGIC_LEN) != 0)
		return damaged(err, "it is not complete");
	if (base_get(trailer + BASE_TRAILER_LEN - 8, 8) != hash64(trailer, BASE_TRAILER_LEN - 8))
		return damaged(err, "its trailer does not fit");
	b->index_offset = base_get(trailer + 8, 8);
	b->n_dirs = base_get(trailer + 16, 8);
	b->n_links = base_get(trailer + 24, 8);
	b->count = base_get(trailer + 32, 8);
	if (b->index_offset < BASE_HEADER_LEN || b->index_offset > end || b->n_dirs == 0 ||
	    b->n_dirs >= BASE_NO_DIR || b->n_dirs > end / 8 || b->n_links > end / BASE_LINK_LEN ||
	    end - b->index_offset != b->n_dirs * 8 + b->n_links * BASE_LINK_LEN)
		return damaged(err, "its index does not fit into it");
	if (base_decode(trailer + BASE_TRAILER_HEAD, &b->root) != 0 || b->root.dir != 0 ||
	    !S_ISDIR(b->root.src.mode) || (b->root.flags & ~BASE_FLAGS))
		return damaged(err, "its root is not valid");
	b->root.name = "";
	return 0;
}

static int load(struct base *b, struct error *err)
{
	unsigned char trailer[BASE_TRAILER_LEN];
	struct stat st;
	size_t len = 0;
	int r;

	if (fstat(b->fd, &st) < 0)
		return error_sys(err, -errno, "stat", "base record");
	if (!S_ISREG(st.st_mode))
		return damaged(err, "it is no regular file");
	r = check_header(b->fd, (uint64_t)st.st_size, err);
	if (r < 0)
		return r;
	r = read_trailer(b, (uint64_t)st.st_size, trailer, err);
	if (r < 0)
		return r;
	len = (size_t)(b->n_dirs * 8 + b->n_links * BASE_LINK_LEN);
	b->index = malloc(len);
	if (!b->index)
		return error_sys(err, -ENOMEM, "read", "base record");
	r = read_at(b->fd, b->index, len, b->index_offset, err);
	if (r < 0)
		return r;
	if (base_get(trailer + BASE_TRAILER_LEN - 16, 8) != hash64(b->index, len))
		return damaged(err, "its index does not fit");
	return 0;
}

int base_open(int fd, struct base **ret, struct error *err)
{
	cleanup_base struct base *b = xcalloc(1, sizeof(*b));
	int r;

	b->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (b->fd < 0)
		return error_sys(err, -errno, "open", "base record");
	r = load(b, err);
	if (r < 0)
		return r;
	*ret = take_ptr(b);
	return 0;
}

void base_free(struct base *b)
{
	if (!b)
		return;
	close_fd(&b->fd);
	free(b->index);
	free(b);
}

void cleanup_basep(struct base **b)
{
	base_free(*b);
}

const struct base_entry *base_root(const struct base *b)
{
	return &b->root;
}

uint64_t base_count(const struct base *b)
{
	return b->count;
}

/* An inode with several names got its last one after its first entry was written: the links
 * table has the ctime it ended with. */
static void correct_ctime(const struct base *b, struct base_entry *e)
{
	const unsigned char *links = b->index + b->n_dirs * 8;
	uint64_t low = 0, high = b->n_links;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;
		uint64_t ino = base_get(links + mid * BASE_LINK_LEN, 8);

		if (ino == e->work_ino) {
			e->work_ctime_ns = (int64_t)base_get(links + mid * BASE_LINK_LEN + 8, 8);
			return;
		}
		if (ino < e->work_ino)
			low = mid + 1;
		else
			high = mid;
	}
}

static bool name_is_valid(const char *name, size_t len)
{
	if (len == 0 || len > BASE_NAME_MAX || memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	return name[len] == '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* One entry at *AT of LEFT bytes; its length, or 0 when it is not valid. */
static size_t decode_entry(const struct base *b, uint32_t dir, const unsigned char *at, size_t left,
                           struct base_entry *ret)
{
	size_t name_len;

	if (left < BASE_ENTRY_FIXED + 2)
		return 0;
	name_len = base_decode(at, ret);
	if (name_len + 1 > left - BASE_ENTRY_FIXED)
		return 0;
	ret->name = (const char *)at + BASE_ENTRY_FIXED;
	if (!name_is_valid(ret->name, name_len) || (ret->flags & ~BASE_FLAGS))
		return 0;
	if (S_ISDIR(ret->src.mode) != (ret->dir != BASE_NO_DIR))
		return 0;
	if (ret->dir != BASE_NO_DIR && (ret->dir <= dir || ret->dir >= b->n_dirs))
		return 0;
	if (b->n_links > 0 && ret->src.nlink > 1 && ret->dir == BASE_NO_DIR)
		correct_ctime(b, ret);
	return BASE_ENTRY_FIXED + name_len + 1;
}

static int decode_block(const struct base *b, uint32_t dir, const unsigned char *buf, size_t len,
                        struct base_block *blk, struct error *err)
{
	const unsigned char *at = buf + BASE_BLOCK_HEAD;
	size_t left = len - BASE_BLOCK_HEAD;

	for (size_t i = 0; i < blk->n; i++) {
		size_t used = decode_entry(b, dir, at, left, &blk->v[i]);

		if (used == 0 || (i > 0 && strcmp(blk->v[i - 1].name, blk->v[i].name) >= 0))
			return damaged(err, "an entry is not valid");
		at += used;
		left -= used;
	}
	return left == 0 ? 0 : damaged(err, "a block is too long");
}

/* Where the block of DIR is and how long, with its head; only its place is checked. */
static int find_block(const struct base *b, uint32_t dir, uint64_t *ret_offset, size_t *ret_len,
                      struct error *err)
{
	unsigned char head[BASE_BLOCK_HEAD];
	uint64_t offset, len;
	int r;

	if (dir >= b->n_dirs)
		return damaged(err, "a directory has no block");
	offset = base_get(b->index + (size_t)dir * 8, 8);
	if (offset < BASE_HEADER_LEN || offset > b->index_offset ||
	    b->index_offset - offset < BASE_BLOCK_HEAD)
		return damaged(err, "a directory has no block");
	r = read_at(b->fd, head, sizeof(head), offset, err);
	if (r < 0)
		return r;
	len = base_get(head + 16, 8);
	if (len > b->index_offset - offset - BASE_BLOCK_HEAD)
		return damaged(err, "a block does not fit into it");
	*ret_offset = offset;
	*ret_len = (size_t)len + BASE_BLOCK_HEAD;
	return 0;
}

static bool head_fits(const unsigned char head[BASE_BLOCK_HEAD], uint32_t dir, size_t len)
{
	uint64_t n = base_get(head + 12, 4);

	return base_get(head + 8, 4) == dir && base_get(head + 16, 8) == len - BASE_BLOCK_HEAD &&
	       n <= LIMIT_DIR_ENTRIES && n <= len / BASE_ENTRY_FIXED;
}

static int read_short(const struct base *b, uint64_t offset, size_t len, struct base_block *blk,
                      struct error *err)
{
	unsigned char *buf = blk->arena = malloc(len);
	int r;

	if (!buf)
		return error_sys(err, -ENOMEM, "read", "base record");
	r = read_at(b->fd, buf, len, offset, err);
	if (r < 0)
		return r;
	if (base_get(buf, BASE_HASH_LEN) != hash64(buf + BASE_HASH_LEN, len - BASE_HASH_LEN) ||
	    !head_fits(buf, blk->dir, len))
		return damaged(err, "a block does not fit");
	blk->n = (size_t)base_get(buf + 12, 4);
	blk->v = malloc(blk->n > 0 ? blk->n * sizeof(*blk->v) : 1);
	if (!blk->v)
		return error_sys(err, -ENOMEM, "read", "base record");
	return decode_block(b, blk->dir, buf, len, blk, err);
}

/* ---- a block that is read piece by piece ---- */

#define PIECE (64u << 10)
_Static_assert(PIECE > BASE_ENTRY_FIXED + BASE_NAME_MAX + 1, "an entry fits");

struct pieces {
	const struct base *b;
	struct hash *hash; /* of what was read */
	unsigned char *buf;
	size_t from, to; /* what is at hand */
	uint64_t offset; /* in the file, of what follows that */
	uint64_t left;   /* bytes there */
	char last[BASE_NAME_MAX + 1];
};

/* At least WANT bytes at hand, or all that are left. */
static int pieces_fill(struct pieces *p, size_t want, struct error *err)
{
	size_t more;
	int r;

	if (p->to - p->from >= want || p->left == 0)
		return 0;
	memmove(p->buf, p->buf + p->from, p->to - p->from);
	p->to -= p->from;
	p->from = 0;
	more = PIECE - p->to < p->left ? PIECE - p->to : (size_t)p->left;
	r = read_at(p->b->fd, p->buf + p->to, more, p->offset, err);
	if (r < 0)
		return r;
	hash_add(p->hash, p->buf + p->to, more);
	p->to += more;
	p->offset += more;
	p->left -= more;
	return 0;
}

/* Notes where the next entry is. */
static int pieces_entry(struct pieces *p, struct base_block *blk, struct error *err)
{
	struct base_entry e;
	size_t used;
	int r = pieces_fill(p, BASE_ENTRY_FIXED + BASE_NAME_MAX + 1, err);

	if (r < 0)
		return r;
	used = decode_entry(p->b, blk->dir, p->buf + p->from, p->to - p->from, &e);
	if (used == 0 || (blk->where.n > 0 && strcmp(p->last, e.name) >= 0))
		return damaged(err, "an entry is not valid");
	memcpy(p->last, e.name, strlen(e.name) + 1);
	r = spool_name(&blk->where, p->offset - (p->to - p->from), used);
	p->from += used;
	return r < 0 ? error_sys(err, r, "read", "base record") : 0;
}

static int read_pieces(struct pieces *p, struct base_block *blk, uint64_t expected, uint64_t n,
                       struct error *err)
{
	int r = 0;

	while (blk->where.n < n && r == 0)
		r = pieces_entry(p, blk, err);
	if (r == 0 && (p->left > 0 || p->from < p->to))
		r = damaged(err, "a block is too long");
	if (r == 0 && hash_sum64(p->hash) != expected)
		r = damaged(err, "a block does not fit");
	blk->n = blk->where.n;
	return r;
}

static int read_long(const struct base *b, uint64_t offset, size_t len, struct base_block *blk,
                     struct error *err)
{
	cleanup_hash struct hash *hash = hash_new();
	cleanup_free unsigned char *buf = malloc(PIECE);
	unsigned char head[BASE_BLOCK_HEAD];
	struct pieces p = { .b = b, .hash = hash, .buf = buf };
	int r = buf ? spool_over(&blk->where, b->fd, offset + len) : -ENOMEM;

	if (r < 0)
		return error_sys(err, r, "read", "base record");
	r = read_at(b->fd, head, sizeof(head), offset, err);
	if (r < 0)
		return r;
	if (!head_fits(head, blk->dir, len))
		return damaged(err, "a block does not fit");
	hash_add(hash, head + BASE_HASH_LEN, sizeof(head) - BASE_HASH_LEN);
	p.offset = offset + sizeof(head);
	p.left = len - sizeof(head);
	return read_pieces(&p, blk, base_get(head, BASE_HASH_LEN), base_get(head + 12, 4), err);
}

int base_read(const struct base *b, uint32_t dir, struct base_block *ret, struct error *err)
{
	cleanup_base_block struct base_block blk = { .b = b, .dir = dir };
	uint64_t offset = 0;
	size_t len = 0;
	int r;

	r = find_block(b, dir, &offset, &len, err);
	if (r < 0)
		return r;
	r = len > SPOOL_MEMORY ? read_long(b, offset, len, &blk, err)
	                       : read_short(b, offset, len, &blk, err);
	if (r < 0)
		return r;
	*ret = blk;
	blk = BASE_BLOCK_INIT;
	return 0;
}

int base_block_at(struct base_block *blk, size_t i, const struct base_entry **ret)
{
	const void *data;
	size_t len;
	int r;

	if (blk->v) {
		*ret = &blk->v[i];
		return 0;
	}
	r = spool_get(&blk->where, i, &data, &len);
	if (r < 0)
		return r;
	/* It was valid when it was read first. */
	if (decode_entry(blk->b, blk->dir, data, len, &blk->e) != len)
		return -ATOLL_E_DAMAGED;
	*ret = &blk->e;
	return 0;
}

static int name_against_entry(const void *name, const void *entry)
{
	return strcmp(name, ((const struct base_entry *)entry)->name);
}

static int name_against_bytes(const void *name, const void *data, size_t len)
{
	(void)len;
	return strcmp(name, (const char *)data + BASE_ENTRY_FIXED);
}

int base_block_find(struct base_block *blk, const char *name, const struct base_entry **ret)
{
	size_t i;
	int r;

	*ret = NULL;
	if (blk->v && blk->n > 0)
		*ret = bsearch(name, blk->v, blk->n, sizeof(*blk->v), name_against_entry);
	if (blk->v || blk->n == 0)
		return 0;
	r = spool_search(&blk->where, blk->n, name_against_bytes, name, &i);
	return r <= 0 ? r : base_block_at(blk, i, ret);
}

void base_block_done(struct base_block *blk)
{
	int saved = errno;

	free(blk->v);
	free(blk->arena);
	spool_done(&blk->where);
	*blk = BASE_BLOCK_INIT;
	errno = saved;
}

int base_lookup(const struct base *b, const char *path, struct base_entry *ret,
                struct base_block *ret_block, struct error *err)
{
	cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
	struct base_entry found = b->root;

	while (*path) {
		size_t len = strcspn(path, "/");
		cleanup_free char *name = xstrndup(path, len);
		const struct base_entry *e;
		int r;

		if (found.dir == BASE_NO_DIR)
			return 0;
		base_block_done(&blk);
		r = base_read(b, found.dir, &blk, err);
		if (r < 0)
			return r;
		r = base_block_find(&blk, name, &e);
		if (r < 0)
			return error_sys(err, r, "read", "base record");
		if (!e)
			return 0;
		found = *e;
		path += len;
		path += *path == '/';
	}
	*ret = found;
	*ret_block = blk;
	blk = BASE_BLOCK_INIT;
	return 1;
}
