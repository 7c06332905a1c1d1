/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests on disk: writing, and reading what may be damaged. */
#include "strategy/manifest.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define MAGIC          "ATOLLMF1"
#define VERSION        2u
#define VERSION_OLDEST 1u
#define WRITE_SIZE     (64u << 10)
#define PATH_AT        12 /* in an operation: behind op, flags and its length */
#define CONTENTS       (MANIFEST_OLD_CONTENT | MANIFEST_NEW_CONTENT)

void manifest_op_done(struct manifest_op *o)
{
	free(o->path);
	*o = MANIFEST_OP_INIT;
}

static void dir_done(struct manifest_dir *d)
{
	free(d->path);
	xattrs_done(&d->old_xattrs);
	xattrs_done(&d->new_xattrs);
	*d = (struct manifest_dir){ 0 };
}

int manifest_add_dir(struct manifest *m, struct manifest_dir *record)
{
	int r = grow((void **)&m->dirs, &m->cap_dirs, m->n_dirs + 1, sizeof(*m->dirs));

	if (r < 0) {
		dir_done(record);
		return r;
	}
	m->dirs[m->n_dirs++] = *record;
	*record = (struct manifest_dir){ 0 };
	return 0;
}

void manifest_done(struct manifest *m)
{
	for (size_t i = 0; i < m->n_dirs; i++)
		dir_done(&m->dirs[i]);
	spool_done(&m->ops);
	free(m->dirs);
	*m = MANIFEST_INIT;
}

/* ---- writing ---- */

static void put_u32(struct strbuf *sb, uint32_t v)
{
	v = htole32(v);
	strbuf_add(sb, &v, sizeof(v));
}

static void put_u64(struct strbuf *sb, uint64_t v)
{
	v = htole64(v);
	strbuf_add(sb, &v, sizeof(v));
}

static void put_bytes(struct strbuf *sb, const void *data, size_t len)
{
	put_u32(sb, (uint32_t)len);
	strbuf_add(sb, data, len);
}

static void put_stat(struct strbuf *sb, const struct fs_stat *st)
{
	put_u64(sb, st->id.ino);
	put_u64(sb, st->id.gen);
	put_u32(sb, st->mode);
	put_u32(sb, st->uid);
	put_u32(sb, st->gid);
	put_u64(sb, st->size);
	put_u64(sb, (uint64_t)st->mtime_ns);
	put_u64(sb, (uint64_t)st->ctime_ns);
}

static void put_content(struct strbuf *sb, const struct fs_content *c)
{
	if (!c->known)
		return;
	strbuf_add(sb, c->hash, sizeof(c->hash));
	put_u64(sb, c->xattrs);
}

static void put_xattrs(struct strbuf *sb, const struct xattrs *x)
{
	put_u32(sb, (uint32_t)x->n);
	for (size_t i = 0; i < x->n; i++) {
		put_bytes(sb, x->v[i].name, strlen(x->v[i].name));
		put_bytes(sb, x->v[i].value, x->v[i].len);
	}
}

static void put_op(struct strbuf *sb, const struct manifest_op *o)
{
	put_u32(sb, o->op);
	put_u32(sb, o->flags | (o->old_stat.content.known ? MANIFEST_OLD_CONTENT : 0) |
	                    (o->new_stat.content.known ? MANIFEST_NEW_CONTENT : 0));
	put_bytes(sb, o->path, strlen(o->path));
	put_stat(sb, &o->old_stat);
	put_stat(sb, &o->new_stat);
	put_content(sb, &o->old_stat.content);
	put_content(sb, &o->new_stat.content);
}

static void put_dir(struct strbuf *sb, const struct manifest_dir *d)
{
	put_u32(sb, d->flags);
	put_bytes(sb, d->path, strlen(d->path));
	put_stat(sb, &d->old_stat);
	put_stat(sb, &d->new_stat);
	put_xattrs(sb, &d->old_xattrs);
	put_xattrs(sb, &d->new_xattrs);
}

int manifest_add_op(struct manifest *m, struct manifest_op *record)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	int r;

	put_op(&sb, record);
	r = spool_add(&m->ops, sb.buf, sb.len);
	manifest_op_done(record);
	return r;
}

uint64_t manifest_limit(void)
{
	return sabotage("manifest-limit") ? 100u << 10 : LIMIT_MANIFEST;
}

/* A file being written, and its hash. */
struct output {
	struct strbuf sb;
	struct hash *hash;
	uint64_t total;
	int fd;
};

static int output_flush(struct output *o, size_t at_least)
{
	int r = 0;

	if (o->sb.len < at_least)
		return 0;
	/* Nobody would read it. */
	o->total += o->sb.len;
	if (o->total > manifest_limit())
		return -EFBIG;
	hash_add(o->hash, o->sb.buf, o->sb.len);
	r = fs_write_all(o->fd, o->sb.buf, o->sb.len);
	strbuf_truncate(&o->sb, 0);
	return r;
}

static void put_header(struct strbuf *sb, int64_t created_ns, size_t n_ops, size_t n_dirs)
{
	strbuf_add(sb, MAGIC, 8);
	put_u32(sb, VERSION);
	put_u64(sb, (uint64_t)created_ns);
	put_u32(sb, (uint32_t)n_ops);
	put_u32(sb, (uint32_t)n_dirs);
}

static int create(int dir_fd, const char *name, int *ret_fd)
{
	int r = fs_create_at(dir_fd, name, 0600, ret_fd);

	if (r == -EEXIST) {
		r = fs_unlink_at(dir_fd, name);
		if (r >= 0)
			r = fs_create_at(dir_fd, name, 0600, ret_fd);
	}
	return r;
}

static int output_all(struct output *o, const struct manifest *m)
{
	int r = 0;

	put_header(&o->sb, m->created_ns, m->ops.n, m->n_dirs);
	for (size_t i = 0; i < m->ops.n && r >= 0; i++) {
		const void *data;
		size_t len;

		r = spool_get(&m->ops, i, &data, &len);
		if (r >= 0)
			strbuf_add(&o->sb, data, len);
		if (r >= 0)
			r = output_flush(o, WRITE_SIZE);
	}
	for (size_t i = 0; i < m->n_dirs && r >= 0; i++) {
		put_dir(&o->sb, &m->dirs[i]);
		r = output_flush(o, WRITE_SIZE);
	}
	return r < 0 ? r : output_flush(o, 0);
}

int manifest_write(const struct manifest *m, int batch_fd, const char *name,
                   char ret_hash[HASH_TEXT_LEN], struct error *err)
{
	cleanup_hash struct hash *hash = hash_new();
	cleanup_close int fd = FD_NONE;
	struct output o = { .sb = STRBUF_INIT, .hash = hash };
	int r = create(batch_fd, name, &fd);

	o.fd = fd;
	if (r >= 0)
		r = output_all(&o, m);
	strbuf_done(&o.sb);
	if (r < 0)
		return error_sys(err, r, "write", name);
	hash_text(hash, ret_hash);
	return 0;
}

struct manifest_writer {
	struct output out;
	int64_t created_ns;
	size_t n;
};

int manifest_writer_open(int dir_fd, const char *name, int64_t created_ns,
                         struct manifest_writer **ret)
{
	cleanup_close int fd = FD_NONE;
	struct manifest_writer *w;
	int r = create(dir_fd, name, &fd);

	if (r < 0)
		return r;
	w = xcalloc(1, sizeof(*w));
	w->out.hash = hash_new();
	w->out.fd = take_fd(&fd);
	w->created_ns = created_ns;
	put_header(&w->out.sb, created_ns, 0, 0); /* its place */
	*ret = w;
	return 0;
}

int manifest_writer_add(struct manifest_writer *w, const struct manifest_op *o)
{
	put_op(&w->out.sb, o);
	w->n++;
	return output_flush(&w->out, WRITE_SIZE);
}

int manifest_writer_finish(struct manifest_writer *w)
{
	int r = output_flush(&w->out, 0);

	if (r >= 0 && lseek(w->out.fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r >= 0) {
		put_header(&w->out.sb, w->created_ns, w->n, 0);
		r = output_flush(&w->out, 0);
	}
	return r;
}

void manifest_writer_close(struct manifest_writer *w)
{
	if (!w)
		return;
	close_fd(&w->out.fd);
	hash_free(w->out.hash);
	strbuf_done(&w->out.sb);
	free(w);
}

/* ---- reading ---- */

/* A cursor over untrusted bytes: BAD once anything did not fit, and then reads give zeros. */
struct cursor {
	const unsigned char *p;
	size_t left;
	bool bad;
	bool no_memory; /* and that is why: nothing is known of the bytes */
};

/* What to say of bytes that could not be read. */
static int cursor_error(const struct cursor *c)
{
	return c->no_memory ? -ENOMEM : -ATOLL_E_DAMAGED;
}

static const void *get_raw(struct cursor *c, size_t len)
{
	const void *p = c->p;

	if (c->bad || len > c->left) {
		c->bad = true;
		return NULL;
	}
	c->p += len;
	c->left -= len;
	return p;
}

static uint32_t get_u32(struct cursor *c)
{
	uint32_t v = 0;
	const void *p = get_raw(c, sizeof(v));

	if (p)
		memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get_u64(struct cursor *c)
{
	uint64_t v = 0;
	const void *p = get_raw(c, sizeof(v));

	if (p)
		memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* A length-prefixed run of at most MAX bytes, NUL-terminated, owned by the caller. */
static void *get_bytes(struct cursor *c, size_t max, size_t *ret_len)
{
	size_t len = get_u32(c);
	const void *p;
	char *copy;

	if (len > max)
		c->bad = true;
	p = get_raw(c, len);
	if (!p)
		return NULL;
	copy = malloc(len + 1);
	if (!copy) {
		c->bad = c->no_memory = true;
		return NULL;
	}
	memcpy(copy, p, len);
	copy[len] = '\0';
	if (ret_len)
		*ret_len = len;
	return copy;
}

/* A path that stays below its root: relative, no empty, "." or ".." component, no NUL. */
static bool path_valid(const char *path, size_t len, bool may_be_root)
{
	const char *s = path;

	if (!path || strlen(path) != len || (!len && !may_be_root))
		return false;
	while (len && s) {
		size_t n = strcspn(s, "/");

		if (n == 0 || n > 255 || (n == 1 && s[0] == '.') ||
		    (n == 2 && s[0] == '.' && s[1] == '.'))
			return false;
		s = s[n] ? s + n + 1 : NULL;
	}
	return true;
}

static char *get_path(struct cursor *c, bool may_be_root)
{
	size_t len = 0;
	char *path = get_bytes(c, LIMIT_PATH, &len);

	if (path && !path_valid(path, len, may_be_root))
		c->bad = true;
	return path;
}

static struct fs_stat get_stat(struct cursor *c)
{
	struct fs_stat st = { 0 };

	st.id.ino = get_u64(c);
	st.id.gen = get_u64(c);
	st.mode = get_u32(c);
	st.uid = get_u32(c);
	st.gid = get_u32(c);
	st.size = get_u64(c);
	st.mtime_ns = (int64_t)get_u64(c);
	st.ctime_ns = (int64_t)get_u64(c);
	return st;
}

static struct fs_content get_content(struct cursor *c)
{
	struct fs_content ret = { .known = true };
	const void *hash = get_raw(c, sizeof(ret.hash));

	if (hash)
		memcpy(ret.hash, hash, sizeof(ret.hash));
	ret.xattrs = get_u64(c);
	return ret;
}

static struct xattrs get_xattrs(struct cursor *c)
{
	struct xattrs x = XATTRS_INIT;
	size_t n = get_u32(c);

	if (n > c->left / 8) {
		c->bad = true;
		return x;
	}
	if (!n)
		return x;
	x.v = calloc(n, sizeof(*x.v));
	if (!x.v) {
		c->bad = c->no_memory = true;
		return x;
	}
	for (; x.n < n && !c->bad; x.n++) {
		x.v[x.n].name = get_bytes(c, 255, NULL);
		x.v[x.n].value = get_bytes(c, LIMIT_XATTRS, &x.v[x.n].len);
	}
	return x;
}

static bool op_valid(const struct manifest_op *o)
{
	bool has_old = o->old_stat.mode != 0, has_new = o->new_stat.mode != 0;

	switch (o->op) {
	case CHANGE_CREATE:
		return !has_old && has_new;
	case CHANGE_REPLACE:
		return has_old && has_new;
	case CHANGE_DELETE:
		return has_old && !has_new;
	case CHANGE_ATTR:
	case CHANGE_OP_END_:
		break;
	}
	return false;
}

/* A record; or the plan's attributes of the root itself, given up. */
static bool may_be_root(const struct manifest_op *o)
{
	const unsigned given_up = MANIFEST_WORK | MANIFEST_THEIRS;

	return o->flags & MANIFEST_RECORD ||
	       (o->op == CHANGE_CREATE && (o->flags & given_up) == given_up);
}

static struct manifest_op get_op(struct cursor *c)
{
	struct manifest_op o = { .op = (enum change_op)get_u32(c), .flags = get_u32(c) };

	o.path = get_path(c, may_be_root(&o));
	o.old_stat = get_stat(c);
	o.new_stat = get_stat(c);
	if (o.flags & MANIFEST_OLD_CONTENT)
		o.old_stat.content = get_content(c);
	if (o.flags & MANIFEST_NEW_CONTENT)
		o.new_stat.content = get_content(c);
	o.flags &= ~CONTENTS;
	c->bad = c->bad || !op_valid(&o);
	return o;
}

int manifest_get(const struct manifest *m, size_t k, struct manifest_op *ret)
{
	struct manifest_op o;
	struct cursor c = { 0 };
	const void *data;
	int r = spool_get(&m->ops, k, &data, &c.left);

	if (r < 0)
		return r;
	c.p = data;
	o = get_op(&c);
	if (c.bad || c.left) {
		/* It was valid when it was added, or read for the first time. */
		manifest_op_done(&o);
		return cursor_error(&c);
	}
	*ret = o;
	return 0;
}

/* ---- in order ---- */

struct path_key {
	const char *s;
	size_t len;
};

static struct path_key path_in(const void *data)
{
	uint32_t len;

	memcpy(&len, (const char *)data + PATH_AT - sizeof(len), sizeof(len));
	return (struct path_key){ (const char *)data + PATH_AT, le32toh(len) };
}

static int by_path(const void *a, size_t a_len, const void *b, size_t b_len)
{
	struct path_key x = path_in(a), y = path_in(b);

	(void)a_len;
	(void)b_len;
	return path_compare_len(x.s, x.len, y.s, y.len);
}

static int key_against(const void *key, const void *data, size_t len)
{
	const struct path_key *x = key;
	struct path_key y = path_in(data);

	(void)len;
	return path_compare_len(x->s, x->len, y.s, y.len);
}

int manifest_sort(struct manifest *m)
{
	return spool_sort(&m->ops, by_path);
}

int manifest_find(const struct manifest *m, size_t n, const char *path, struct manifest_op *ret)
{
	struct path_key key = { path, strlen(path) };
	struct manifest_op o;
	size_t i;
	int r = spool_search(&m->ops, n, key_against, &key, &i);

	if (r <= 0)
		return r;
	r = manifest_get(m, i, &o);
	if (r < 0)
		return r == -ENOMEM ? r : -EIO;
	manifest_op_done(&(struct manifest_op){ .path = o.path });
	o.path = NULL;
	*ret = o;
	return 1;
}

int manifest_find_above(const struct manifest *m, const char *path, struct manifest_op *ret)
{
	int r = 0;

	for (size_t len = strlen(path); m->ops.n && r == 0; len--) {
		cleanup_free char *above = xstrndup(path, len);

		r = manifest_find(m, m->ops.n, above, ret);
		while (len > 0 && path[len - 1] != '/')
			len--;
		if (len == 0)
			break;
	}
	return r;
}

int manifest_from(const struct manifest *m, const char *path, size_t *ret)
{
	size_t low = 0, high = m->ops.n, path_len = strlen(path);

	while (low < high) {
		size_t mid = low + (high - low) / 2, len;
		struct path_key at;
		const void *data;
		int r = spool_get(&m->ops, mid, &data, &len);

		if (r < 0)
			return r;
		at = path_in(data);
		if (path_compare_len(at.s, at.len, path, path_len) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret = low;
	return 0;
}

/* ---- a whole one ---- */

static int parse_ops(struct cursor *c, struct manifest *m, uint32_t n_ops)
{
	int r = 0;

	for (uint32_t i = 0; i < n_ops && !c->bad && r >= 0; i++) {
		const unsigned char *from = c->p;
		struct manifest_op o = get_op(c);

		if (!c->bad)
			r = spool_add(&m->ops, from, (size_t)(c->p - from));
		manifest_op_done(&o);
	}
	return r;
}

static int parse_dirs(struct cursor *c, struct manifest *m, uint32_t n_dirs)
{
	int r = 0;

	for (uint32_t i = 0; i < n_dirs && !c->bad && r >= 0; i++) {
		struct manifest_dir d = { .flags = get_u32(c) };

		d.path = get_path(c, true);
		d.old_stat = get_stat(c);
		d.new_stat = get_stat(c);
		d.old_xattrs = get_xattrs(c);
		d.new_xattrs = get_xattrs(c);
		r = manifest_add_dir(m, &d);
	}
	return r;
}

struct header {
	int64_t created_ns;
	uint32_t n_ops, n_dirs;
};
_Static_assert(MANIFEST_HEADER_SIZE == 8 + 4 + 8 + 4 + 4, "as put_header() writes it");
#define HEADER_LEN MANIFEST_HEADER_SIZE

static int parse_header(struct cursor *c, struct header *ret, struct error *err)
{
	const void *magic = get_raw(c, 8);
	uint32_t version;

	if (!magic || memcmp(magic, MAGIC, 8) != 0)
		return error_set(err, -ATOLL_E_DAMAGED, "not a manifest");
	version = get_u32(c);
	ret->created_ns = (int64_t)get_u64(c);
	ret->n_ops = get_u32(c);
	ret->n_dirs = get_u32(c);
	if (version > VERSION || version < VERSION_OLDEST)
		return error_set(err, version > VERSION ? -ATOLL_E_NEWER : -ATOLL_E_DAMAGED,
		                 "manifest of version %u, this is %u", version, VERSION);
	return 0;
}

int manifest_parse(const void *data, size_t len, struct manifest *ret, struct error *err)
{
	struct manifest m = MANIFEST_INIT;
	struct cursor c = { .p = data, .left = len };
	struct header h;
	int r = parse_header(&c, &h, err);

	if (r < 0)
		return r;
	m.created_ns = h.created_ns;
	r = parse_ops(&c, &m, h.n_ops);
	if (r >= 0)
		r = parse_dirs(&c, &m, h.n_dirs);
	if (r < 0 || c.bad || c.left) {
		manifest_done(&m);
		if (r >= 0 && !c.no_memory)
			return error_set(err, -ATOLL_E_DAMAGED, "manifest is damaged");
		return error_set(err, r < 0 ? r : -ENOMEM, "manifest too big for memory");
	}
	*ret = m;
	return 0;
}

/* ---- one by one ---- */

#define READ_SIZE (64u << 10)
#define OP_HEAD   12  /* op, flags, length of the path */
#define OP_TAIL   104 /* both states, without their content */

struct manifest_reader {
	int fd;
	struct hash *hash; /* of what was read; NULL: nobody asks */
	uint64_t used;     /* bytes taken */
	uint32_t left;     /* operations still to come */
	char *buf;         /* what was read and not used yet: */
	size_t from, to, cap;
	struct manifest_op op; /* the last one given */
};

/* At least N bytes at hand. */
static int reader_fill(struct manifest_reader *m, size_t n)
{
	if (m->to - m->from >= n)
		return 0;
	memmove(m->buf, m->buf + m->from, m->to - m->from);
	m->to -= m->from;
	m->from = 0;
	if (m->cap < n && grow((void **)&m->buf, &m->cap, n, 1) < 0)
		return -ENOMEM;
	while (m->to < n) {
		ssize_t got = read(m->fd, m->buf + m->to, m->cap - m->to);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ATOLL_E_DAMAGED;
		if (m->hash)
			hash_add(m->hash, m->buf + m->to, (size_t)got);
		m->to += (size_t)got;
	}
	return 0;
}

static struct cursor reader_take(struct manifest_reader *m, size_t n)
{
	struct cursor c = { .p = (const unsigned char *)m->buf + m->from, .left = n };

	m->from += n;
	m->used += n;
	return c;
}

static int reader_fail(int r, struct error *err)
{
	if (r == -ATOLL_E_DAMAGED)
		return error_set(err, r, "manifest is damaged");
	return error_sys(err, r, "read", "a manifest");
}

static int reader_begin(struct manifest_reader *m, struct header *ret, struct error *err)
{
	struct cursor c;
	int r = grow((void **)&m->buf, &m->cap, READ_SIZE, 1);

	if (r >= 0)
		r = reader_fill(m, HEADER_LEN);
	if (r < 0)
		return reader_fail(r, err);
	c = reader_take(m, HEADER_LEN);
	r = parse_header(&c, ret, err);
	m->left = ret->n_ops;
	return r;
}

int manifest_reader_open(int batch_fd, const char *name, struct manifest_reader **ret,
                         struct error *err)
{
	struct manifest_reader *m = xcalloc(1, sizeof(*m));
	struct header h;
	int r;

	m->fd = openat(batch_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	r = m->fd < 0 ? error_sys(err, -errno, "open", name) : reader_begin(m, &h, err);
	if (r < 0) {
		manifest_reader_close(m);
		return r;
	}
	*ret = m;
	return 0;
}

int manifest_reader_next(struct manifest_reader *m, const struct manifest_op **ret,
                         struct error *err)
{
	uint32_t path_len, flags;
	struct cursor c;
	size_t len;
	int r;

	free(m->op.path);
	m->op.path = NULL;
	if (m->left == 0)
		return 0;
	m->left--;
	r = reader_fill(m, OP_HEAD);
	if (r < 0)
		return reader_fail(r, err);
	memcpy(&path_len, m->buf + m->from + 8, sizeof(path_len));
	path_len = le32toh(path_len);
	memcpy(&flags, m->buf + m->from + 4, sizeof(flags));
	flags = le32toh(flags);
	len = OP_HEAD + (size_t)path_len + OP_TAIL +
	      (flags & MANIFEST_OLD_CONTENT ? MANIFEST_CONTENT : 0) +
	      (flags & MANIFEST_NEW_CONTENT ? MANIFEST_CONTENT : 0);
	r = path_len > LIMIT_PATH ? -ATOLL_E_DAMAGED : reader_fill(m, len);
	if (r < 0)
		return reader_fail(r, err);
	c = reader_take(m, len);
	m->op = get_op(&c);
	if (c.bad)
		return reader_fail(cursor_error(&c), err);
	*ret = &m->op;
	return 1;
}

void manifest_reader_close(struct manifest_reader *m)
{
	if (!m)
		return;
	close_fd(&m->fd);
	free(m->op.path);
	free(m->buf);
	free(m);
}

/* ---- from disk ---- */

static int decided_on(const char *hash, const char *found, struct error *err)
{
	if (!*hash || strcmp(found, hash) == 0)
		return 0;
	return error_set(err, -ATOLL_E_DAMAGED, "the manifest is not the one that was decided on");
}

static int read_short(int fd, const char *name, const char *hash, struct manifest *ret,
                      struct error *err)
{
	char found[HASH_TEXT_LEN];
	cleanup_free char *data = NULL;
	size_t len = 0;
	int r = fs_read_all(fd, LIMIT_MANIFEST, &data, &len);

	if (r < 0)
		return error_sys(err, r, "read", name);
	hash_buffer(data, len, found);
	r = decided_on(hash, found, err);
	return r < 0 ? r : manifest_parse(data, len, ret, err);
}

/* Every operation is looked at, and where it is is kept. */
static int read_ops(struct manifest_reader *rd, struct manifest *m, struct error *err)
{
	int r;

	do {
		uint64_t from = rd->used;
		const struct manifest_op *o;

		r = manifest_reader_next(rd, &o, err);
		if (r > 0) {
			int named = spool_name(&m->ops, from, (size_t)(rd->used - from));

			r = named < 0 ? reader_fail(named, err) : r;
		}
	} while (r > 0);
	return r;
}

/* What is behind the operations, which fits into memory: directories that stay are few. */
static int read_dirs(struct manifest_reader *rd, uint64_t size, uint32_t n_dirs, struct manifest *m,
                     struct error *err)
{
	struct cursor c;
	int r = reader_fill(rd, (size_t)(size - rd->used));

	if (r < 0)
		return reader_fail(r, err);
	c = reader_take(rd, (size_t)(size - rd->used));
	r = parse_dirs(&c, m, n_dirs);
	if (r < 0)
		return error_set(err, r, "manifest too big for memory");
	return c.bad || c.left ? reader_fail(cursor_error(&c), err) : 0;
}

static int read_long(int fd, uint64_t size, const char *hash, struct manifest *ret,
                     struct error *err)
{
	cleanup_hash struct hash *sum = hash_new();
	struct manifest_reader rd = { .fd = fd, .hash = sum };
	struct manifest m = MANIFEST_INIT;
	char found[HASH_TEXT_LEN];
	struct header h = { 0 };
	int r = spool_over(&m.ops, fd, size);

	r = r < 0 ? reader_fail(r, err) : reader_begin(&rd, &h, err);
	m.created_ns = h.created_ns;
	if (r >= 0)
		r = read_ops(&rd, &m, err);
	if (r >= 0)
		r = read_dirs(&rd, size, h.n_dirs, &m, err);
	free(rd.op.path);
	free(rd.buf);
	hash_text(sum, found);
	if (r >= 0)
		r = decided_on(hash, found, err);
	if (r < 0)
		manifest_done(&m);
	else
		*ret = m;
	return r;
}

int manifest_read(int batch_fd, const char *name, const char *hash, struct manifest *ret,
                  struct error *err)
{
	cleanup_close int fd = openat(batch_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_sys(err, -errno, "open", name);
	if ((uint64_t)st.st_size > LIMIT_MANIFEST)
		return error_sys(err, -ATOLL_E_TOO_BIG, "read", name);
	if ((uint64_t)st.st_size <= SPOOL_MEMORY)
		return read_short(fd, name, hash, ret, err);
	return read_long(fd, (uint64_t)st.st_size, hash, ret, err);
}
