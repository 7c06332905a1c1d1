/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes. The calls by path do not exist relative to a directory (before Linux
 * 6.13), so they go through /proc/self/fd; the l variants do not follow the last component.
 */
#include "fs/xattr.h"

#include "fs/fs-impl.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/limits.h"
#include "util/mem.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* An entry as the calls want it. A descriptor itself is a magic link, which must be followed. */
struct target {
	char path[PATH_MAX];
	bool follow;
};

int fs_proc_path(int fd, const char *name, char out[PATH_MAX])
{
	const char *slash = name[0] != '\0' ? "/" : "";
	int n;

	if (fd == AT_FDCWD)
		n = snprintf(out, PATH_MAX, "/proc/self/cwd%s%s", slash, name);
	else
		n = snprintf(out, PATH_MAX, "/proc/self/fd/%d%s%s", fd, slash, name);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int target_init(struct target *t, int dir_fd, const char *name)
{
	t->follow = name[0] == '\0';
	return fs_proc_path(dir_fd, name, t->path);
}

static ssize_t target_list(const struct target *t, char *buf, size_t size)
{
	ssize_t n = t->follow ? listxattr(t->path, buf, size) : llistxattr(t->path, buf, size);

	return n < 0 ? -errno : n;
}

static ssize_t target_get(const struct target *t, const char *name, void *buf, size_t size)
{
	ssize_t n = t->follow ? getxattr(t->path, name, buf, size)
	                      : lgetxattr(t->path, name, buf, size);

	return n < 0 ? -errno : n;
}

static int target_set(const struct target *t, const struct xattr *x)
{
	int r = t->follow ? setxattr(t->path, x->name, x->value, x->len, 0)
	                  : lsetxattr(t->path, x->name, x->value, x->len, 0);

	return r < 0 ? -errno : 0;
}

static int target_remove(const struct target *t, const char *name)
{
	int r = t->follow ? removexattr(t->path, name) : lremovexattr(t->path, name);

	return r < 0 && errno != ENODATA ? -errno : 0;
}

#define FEW_NAMES 256

/* The list of names, each with its NUL; *RET_LEN 0: none, and *RET is NULL. */
static int read_names(const struct target *t, char **ret, size_t *ret_len)
{
	cleanup_free char *buf = NULL;
	char few[FEW_NAMES];
	ssize_t n = target_list(t, few, sizeof(few));

	/* Mostly one call is enough. */
	if (n > 0) {
		buf = malloc((size_t)n);
		if (buf == NULL)
			return -ENOMEM;
		memcpy(buf, few, (size_t)n);
	}
	while (n == -ERANGE) {
		n = target_list(t, NULL, 0);
		if (n <= 0)
			break;
		free(take_ptr(buf));
		buf = malloc((size_t)n);
		if (buf == NULL)
			return -ENOMEM;
		n = target_list(t, buf, (size_t)n); /* -ERANGE: it grew in between */
	}
	if (n < 0 && n != -EOPNOTSUPP && n != -ENOSYS)
		return n == -E2BIG ? -ATOLL_E_TOO_BIG : (int)n;
	*ret_len = n < 0 ? 0 : (size_t)n;
	*ret = take_ptr(buf);
	return 0;
}

/* 1: read; 0: gone meanwhile. */
static int read_value(const struct target *t, const char *name, struct xattr *ret)
{
	cleanup_free char *buf = NULL;
	ssize_t n;

	do {
		n = target_get(t, name, NULL, 0);
		if (n < 0)
			break;
		free(take_ptr(buf));
		buf = malloc((size_t)n + 1);
		if (buf == NULL)
			return -ENOMEM;
		/* Not (size_t)n: a size of 0 would ask for the length again. */
		n = target_get(t, name, buf, (size_t)n + 1);
	} while (n == -ERANGE);
	if (n < 0)
		return n == -ENODATA ? 0 : (int)n;
	ret->name = strdup(name);
	if (ret->name == NULL)
		return -ENOMEM;
	ret->value = take_ptr(buf);
	ret->len = (size_t)n;
	return 1;
}

static bool is_overlays_own(const char *name)
{
	static const char *const prefix[] = { "trusted.overlay.", "user.overlay." };

	for (size_t i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++) {
		if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
			return true;
	}
	return false;
}

static int by_name(const void *a, const void *b)
{
	const struct xattr *x = a;
	const struct xattr *y = b;

	return strcmp(x->name, y->name);
}

static int read_values(const struct target *t, const char *names, size_t len, struct xattrs *ret)
{
	size_t total = len;
	size_t cap = 0;

	for (size_t at = 0; at < len; at += strlen(names + at) + 1) {
		void *v = ret->v;
		int r;

		if (is_overlays_own(names + at))
			continue;
		r = grow(&v, &cap, ret->n + 1, sizeof(*ret->v));
		ret->v = v;
		if (r < 0)
			return r;
		r = read_value(t, names + at, &ret->v[ret->n]);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		total += ret->v[ret->n++].len;
		if (total > LIMIT_XATTRS)
			return -ATOLL_E_TOO_BIG;
	}
	if (ret->n > 1)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
	return 0;
}

static int target_read(const struct target *t, struct xattrs *ret)
{
	cleanup_free char *names = NULL;
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	size_t len = 0;
	int r;

	r = read_names(t, &names, &len);
	if (r == 0 && len > 0)
		r = read_values(t, names, len, &x);
	if (r < 0)
		return r;
	*ret = x;
	x = XATTRS_INIT;
	return 0;
}

int xattrs_read_at(int dir_fd, const char *name, struct xattrs *ret)
{
	struct target t;
	int r = target_init(&t, dir_fd, name);

	return r < 0 ? r : target_read(&t, ret);
}

static bool same(const struct xattr *a, const struct xattr *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->value, b->value, a->len) == 0);
}

bool xattrs_equal(const struct xattrs *a, const struct xattrs *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (strcmp(a->v[i].name, b->v[i].name) != 0 || !same(&a->v[i], &b->v[i]))
			return false;
	}
	return true;
}

static const struct xattr *find(const struct xattrs *x, const char *name)
{
	for (size_t i = 0; i < x->n; i++) {
		if (strcmp(x->v[i].name, name) == 0)
			return &x->v[i];
	}
	return NULL;
}

bool xattrs_has(const struct xattrs *x, const char *name)
{
	return find(x, name) != NULL;
}

bool xattrs_same(const struct xattrs *a, const struct xattrs *b, const char *name)
{
	const struct xattr *x = find(a, name), *y = find(b, name);

	return x && y && same(x, y);
}

uint64_t xattrs_hash(const struct xattrs *x)
{
	uint64_t part[3] = { 0 };

	if (x->n == 0)
		return 0;
	for (size_t i = 0; i < x->n; i++) {
		part[1] = hash64(x->v[i].name, strlen(x->v[i].name));
		part[2] = hash64(x->v[i].len > 0 ? x->v[i].value : "", x->v[i].len);
		part[0] = hash64(part, sizeof(part));
	}
	return part[0] == 0 ? 1 : part[0];
}

int xattrs_hash_at(int dir_fd, const char *name, uint64_t *ret)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	int r = xattrs_read_at(dir_fd, name, &x);

	*ret = r < 0 ? 0 : xattrs_hash(&x);
	return r;
}

int xattrs_write_at(int dir_fd, const char *name, const struct xattrs *want)
{
	cleanup_xattrs struct xattrs have = XATTRS_INIT;
	struct target t;
	size_t h = 0;
	size_t w = 0;
	int r;

	r = target_init(&t, dir_fd, name);
	if (r == 0)
		r = target_read(&t, &have);

	/* Both are sorted: one pass. */
	while (r == 0 && (h < have.n || w < want->n)) {
		int c = h == have.n ? 1 : w == want->n ? -1 : by_name(&have.v[h], &want->v[w]);

		if (c < 0)
			r = target_remove(&t, have.v[h].name);
		else if (c > 0 || !same(&have.v[h], &want->v[w]))
			r = target_set(&t, &want->v[w]);
		h += c <= 0 ? 1 : 0;
		w += c >= 0 ? 1 : 0;
	}
	return r;
}

int xattr_read_at(int dir_fd, const char *entry, const char *xattr_name, struct xattr *ret)
{
	struct target t;
	int r = target_init(&t, dir_fd, entry);

	if (r == 0)
		r = read_value(&t, xattr_name, ret);
	return r == -EOPNOTSUPP ? 0 : r;
}

int xattr_set_at(int dir_fd, const char *entry, const struct xattr *want)
{
	struct target t;
	int r = target_init(&t, dir_fd, entry);

	return r < 0 ? r : target_set(&t, want);
}

int xattr_remove_at(int dir_fd, const char *entry, const char *xattr_name)
{
	cleanup_xattr struct xattr there = XATTR_INIT;
	struct target t;
	int r = target_init(&t, dir_fd, entry);

	if (r < 0)
		return r;
	r = target_remove(&t, xattr_name);
	/* Without the privilege security.* is refused even where there is nothing to remove. */
	if (r == -EPERM && read_value(&t, xattr_name, &there) == 0)
		r = 0;
	return r;
}

void xattr_done(struct xattr *x)
{
	free(x->name);
	free(x->value);
	*x = XATTR_INIT;
}

void xattrs_done(struct xattrs *x)
{
	int e = errno;

	for (size_t i = 0; i < x->n; i++) {
		free(x->v[i].name);
		free(x->v[i].value);
	}
	free(x->v);
	*x = XATTRS_INIT;
	errno = e;
}
