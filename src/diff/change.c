/* SPDX-License-Identifier: Apache-2.0 */
/* Change sets and the order of paths. */
#include "diff/change.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool change_is_tree(const struct change *c)
{
	return c->op != CHANGE_ATTR && (S_ISDIR(c->base.mode) || S_ISDIR(c->work.mode));
}

/* ---- a change as a record ---- */

struct fixed {
	enum change_op op;
	unsigned what;
	unsigned base_flags;
	uint32_t base_dir;
	uint64_t entries;
	struct usage goes;
	bool has_base, has_work, counted, databases, in_part, settled;
};

static void encode(const struct change *c, struct strbuf *sb)
{
	struct fixed f;

	memset(&f, 0, sizeof(f)); /* what is between its members goes to the file, too */
	f.op = c->op;
	f.what = c->what;
	f.base_flags = c->base_flags;
	f.base_dir = c->base_dir;
	f.entries = c->entries;
	f.goes = c->goes;
	f.has_base = c->base.mode != 0;
	f.has_work = c->work.mode != 0;
	f.counted = c->counted;
	f.databases = c->databases;
	f.in_part = c->in_part;
	f.settled = c->settled;
	strbuf_add(sb, &f, sizeof(f));
	if (f.has_base)
		strbuf_add(sb, &c->base, sizeof(c->base));
	if (f.has_work)
		strbuf_add(sb, &c->work, sizeof(c->work));
	strbuf_add(sb, c->path, strlen(c->path) + 1);
}

static size_t path_offset(const void *data)
{
	struct fixed f;

	memcpy(&f, data, sizeof(f));
	return sizeof(f) + (f.has_base ? sizeof(struct fs_stat) : 0) +
	       (f.has_work ? sizeof(struct fs_stat) : 0);
}

static const char *path_in(const void *data)
{
	return (const char *)data + path_offset(data);
}

static void decode(const void *data, struct change *ret)
{
	const char *at = (const char *)data + sizeof(struct fixed);
	struct fixed f;

	memcpy(&f, data, sizeof(f));
	*ret = (struct change){ .op = f.op,
		                .what = f.what,
		                .base_flags = f.base_flags,
		                .base_dir = f.base_dir,
		                .entries = f.entries,
		                .goes = f.goes,
		                .counted = f.counted,
		                .databases = f.databases,
		                .in_part = f.in_part,
		                .settled = f.settled };
	if (f.has_base) {
		memcpy(&ret->base, at, sizeof(ret->base));
		at += sizeof(ret->base);
	}
	if (f.has_work)
		memcpy(&ret->work, at, sizeof(ret->work));
	ret->path = xstrdup(path_in(data));
}

static int add(struct spool *v, const struct change *c)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	encode(c, &sb);
	return spool_add(v, sb.buf, sb.len);
}

int changeset_get(const struct spool *v, size_t i, struct change *ret)
{
	const void *data;
	size_t len;
	int r = spool_get(v, i, &data, &len);

	if (r >= 0)
		decode(data, ret);
	return r;
}

int changeset_set(struct spool *v, size_t i, const struct change *c)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	encode(c, &sb);
	return spool_set(v, i, sb.buf, sb.len);
}

void change_done(struct change *c)
{
	free(c->path);
	*c = CHANGE_INIT;
}

/* ---- the set ---- */

int changeset_add(struct changeset *cs, const struct change *c)
{
	int r = add(&cs->v, c);

	free(c->path);
	return r;
}

int changeset_add_dir(struct changeset *cs, const struct change_dir *d)
{
	void *dirs = cs->dirs;
	int r;

	r = grow(&dirs, &cs->cap_dirs, cs->n_dirs + 1, sizeof(*cs->dirs));
	if (r < 0) {
		free(d->path);
		return r;
	}
	cs->dirs = dirs;
	cs->dirs[cs->n_dirs++] = *d;
	return 0;
}

int changeset_give_up(struct changeset *cs, const struct change *c)
{
	return add(&cs->theirs, c);
}

static int by_path(const void *a, size_t a_len, const void *b, size_t b_len)
{
	(void)a_len;
	(void)b_len;
	return path_compare(path_in(a), path_in(b));
}

int changeset_from(const struct changeset *cs, const char *path, size_t *ret)
{
	size_t low = 0, high = cs->v.n;

	while (low < high) {
		size_t mid = low + (high - low) / 2, len;
		const void *data;
		int r = spool_get(&cs->v, mid, &data, &len);

		if (r < 0)
			return r;
		if (path_compare(path_in(data), path) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret = low;
	return 0;
}

int changeset_find(const struct changeset *cs, const char *path, struct change *ret)
{
	size_t i;
	int r = changeset_from(cs, path, &i);

	if (r < 0 || i == cs->v.n)
		return r;
	r = changeset_get(&cs->v, i, ret);
	if (r < 0 || strcmp(ret->path, path) == 0)
		return r < 0 ? r : 1;
	change_done(ret);
	return 0;
}

static int by_dir_path(const void *a, const void *b)
{
	return path_compare(((const struct change_dir *)a)->path,
	                    ((const struct change_dir *)b)->path);
}

int changeset_sort(struct changeset *cs)
{
	if (cs->n_dirs > 1)
		qsort(cs->dirs, cs->n_dirs, sizeof(*cs->dirs), by_dir_path);
	return spool_sort(&cs->v, by_path);
}

void changeset_done(struct changeset *cs)
{
	int saved = errno;

	for (size_t i = 0; i < cs->n_dirs; i++)
		free(cs->dirs[i].path);
	free(cs->dirs);
	spool_done(&cs->v);
	spool_done(&cs->theirs);
	*cs = CHANGESET_INIT;
	errno = saved;
}

/* A path's end comes first, then the slash: what is below a directory follows it at once. */
static int rank(char c)
{
	if (c == '\0')
		return 0;
	return c == '/' ? 1 : (unsigned char)c + 2;
}

int path_compare(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return rank(*a) - rank(*b);
}

int path_compare_len(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t i = 0;

	while (i < a_len && i < b_len && a[i] == b[i])
		i++;
	return rank(i < a_len ? a[i] : '\0') - rank(i < b_len ? b[i] : '\0');
}

bool path_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}
