/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests on disk: writing, and reading what may be damaged. */
#include "strategy/manifest.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define MAGIC   "ATOLLMF1"
#define VERSION 1u

static void op_done(struct manifest_op *o)
{
	free(o->path);
	*o = (struct manifest_op){ 0 };
}

static void dir_done(struct manifest_dir *d)
{
	free(d->path);
	xattrs_done(&d->old_xattrs);
	xattrs_done(&d->new_xattrs);
	*d = (struct manifest_dir){ 0 };
}

int manifest_add_op(struct manifest *m, struct manifest_op *record)
{
	int r = grow((void **)&m->ops, &m->cap_ops, m->n_ops + 1, sizeof(*m->ops));

	if (r < 0) {
		op_done(record);
		return r;
	}
	m->ops[m->n_ops++] = *record;
	*record = (struct manifest_op){ 0 };
	return 0;
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
	for (size_t i = 0; i < m->n_ops; i++)
		op_done(&m->ops[i]);
	for (size_t i = 0; i < m->n_dirs; i++)
		dir_done(&m->dirs[i]);
	free(m->ops);
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

static void put_xattrs(struct strbuf *sb, const struct xattrs *x)
{
	put_u32(sb, (uint32_t)x->n);
	for (size_t i = 0; i < x->n; i++) {
		put_bytes(sb, x->v[i].name, strlen(x->v[i].name));
		put_bytes(sb, x->v[i].value, x->v[i].len);
	}
}

int manifest_write(const struct manifest *m, int batch_fd, const char *name,
                   char ret_hash[HASH_TEXT_LEN], struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	int r;

	strbuf_add(&sb, MAGIC, 8);
	put_u32(&sb, VERSION);
	put_u64(&sb, (uint64_t)m->created_ns);
	put_u32(&sb, (uint32_t)m->n_ops);
	put_u32(&sb, (uint32_t)m->n_dirs);
	for (size_t i = 0; i < m->n_ops; i++) {
		const struct manifest_op *o = &m->ops[i];

		put_u32(&sb, o->op);
		put_u32(&sb, o->flags);
		put_bytes(&sb, o->path, strlen(o->path));
		put_stat(&sb, &o->old_stat);
		put_stat(&sb, &o->new_stat);
	}
	for (size_t i = 0; i < m->n_dirs; i++) {
		const struct manifest_dir *d = &m->dirs[i];

		put_u32(&sb, d->flags);
		put_bytes(&sb, d->path, strlen(d->path));
		put_stat(&sb, &d->old_stat);
		put_stat(&sb, &d->new_stat);
		put_xattrs(&sb, &d->old_xattrs);
		put_xattrs(&sb, &d->new_xattrs);
	}
	hash_buffer(sb.buf, sb.len, ret_hash);

	r = fs_create_at(batch_fd, name, 0600, &fd);
	if (r == -EEXIST) {
		r = fs_unlink_at(batch_fd, name);
		if (r >= 0)
			r = fs_create_at(batch_fd, name, 0600, &fd);
	}
	if (r >= 0)
		r = fs_write_all(fd, sb.buf, sb.len);
	return r < 0 ? error_sys(err, r, "write", name) : 0;
}

/* ---- reading ---- */

/* A cursor over untrusted bytes: BAD once anything did not fit, and then reads give zeros. */
struct cursor {
	const unsigned char *p;
	size_t left;
	bool bad;
};

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
		c->bad = true;
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
		c->bad = true;
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

static struct manifest_op get_op(struct cursor *c)
{
	struct manifest_op o = { .op = (enum change_op)get_u32(c), .flags = get_u32(c) };

	o.path = get_path(c, o.flags & MANIFEST_RECORD);
	o.old_stat = get_stat(c);
	o.new_stat = get_stat(c);
	c->bad = c->bad || !op_valid(&o);
	return o;
}

static int parse_records(struct cursor *c, struct manifest *m, uint32_t n_ops, uint32_t n_dirs)
{
	int r = 0;

	for (uint32_t i = 0; i < n_ops && !c->bad && r >= 0; i++) {
		struct manifest_op o = get_op(c);

		r = manifest_add_op(m, &o);
	}
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
#define HEADER_LEN (8 + 4 + 8 + 4 + 4)

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
	if (version != VERSION)
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
	r = parse_records(&c, &m, h.n_ops, h.n_dirs);
	if (r < 0 || c.bad || c.left) {
		manifest_done(&m);
		if (r < 0)
			return error_set(err, r, "manifest too big for memory");
		return error_set(err, -ATOLL_E_DAMAGED, "manifest is damaged");
	}
	*ret = m;
	return 0;
}

int manifest_read(int batch_fd, const char *name, const char *hash, struct manifest *ret,
                  struct error *err)
{
	char found[HASH_TEXT_LEN];
	cleanup_close int fd = openat(batch_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *data = NULL;
	size_t len = 0;
	int r;

	if (fd < 0)
		return error_sys(err, -errno, "open", name);
	r = fs_read_all(fd, LIMIT_MANIFEST, &data, &len);
	if (r < 0)
		return error_sys(err, r, "read", name);
	hash_buffer(data, len, found);
	if (*hash && strcmp(found, hash) != 0)
		return error_set(err, -ATOLL_E_DAMAGED,
		                 "the manifest is not the one that was decided on");
	return manifest_parse(data, len, ret, err);
}

/* ---- one by one ---- */

#define READ_SIZE (64u << 10)
#define OP_HEAD   12  /* op, flags, length of the path */
#define OP_TAIL   104 /* both states */

struct manifest_reader {
	int fd;
	uint32_t left; /* operations still to come */
	char *buf;     /* what was read and not used yet: */
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
		m->to += (size_t)got;
	}
	return 0;
}

static struct cursor reader_take(struct manifest_reader *m, size_t n)
{
	struct cursor c = { .p = (const unsigned char *)m->buf + m->from, .left = n };

	m->from += n;
	return c;
}

static int reader_fail(int r, struct error *err)
{
	if (r == -ATOLL_E_DAMAGED)
		return error_set(err, r, "manifest is damaged");
	return error_sys(err, r, "read", "a manifest");
}

int manifest_reader_open(int batch_fd, const char *name, struct manifest_reader **ret,
                         struct error *err)
{
	struct manifest_reader *m = xcalloc(1, sizeof(*m));
	struct cursor c;
	struct header h;
	int r;

	m->fd = openat(batch_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (m->fd < 0)
		r = error_sys(err, -errno, "open", name);
	else if (grow((void **)&m->buf, &m->cap, READ_SIZE, 1) < 0)
		r = reader_fail(-ENOMEM, err);
	else if ((r = reader_fill(m, HEADER_LEN)) < 0)
		r = reader_fail(r, err);
	if (r < 0) {
		manifest_reader_close(m);
		return r;
	}
	c = reader_take(m, HEADER_LEN);
	r = parse_header(&c, &h, err);
	if (r < 0) {
		manifest_reader_close(m);
		return r;
	}
	m->left = h.n_ops;
	*ret = m;
	return 0;
}

int manifest_reader_next(struct manifest_reader *m, const struct manifest_op **ret,
                         struct error *err)
{
	uint32_t path_len;
	struct cursor c;
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
	r = path_len > LIMIT_PATH ? -ATOLL_E_DAMAGED : reader_fill(m, OP_HEAD + path_len + OP_TAIL);
	if (r < 0)
		return reader_fail(r, err);
	c = reader_take(m, OP_HEAD + path_len + OP_TAIL);
	m->op = get_op(&c);
	if (c.bad)
		return reader_fail(-ATOLL_E_DAMAGED, err);
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
