/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a base record anew with some of its entries changed. Directories are gone through one by
 * one, each with the part of the amendments that lies below it, and numbered anew.
 */
#include "diff/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/base-impl.h"
#include "diff/change.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

/* A directory of the new record still to be written. */
struct todo {
	char *path;
	uint32_t old_dir; /* BASE_NO_DIR: it has nothing of the old record */
	uint32_t dir;
	size_t from, to; /* amendments below it */
};

struct amend {
	const struct base *old;
	const struct spool *v; /* sorted */
	struct base_writer *w;
	struct todo *todo;
	size_t n, cap;
	struct error *err;
};

/* One directory at hand. */
struct at {
	const struct todo *dir;
	size_t skip; /* bytes of a path up to the name in this directory */
	struct base_draft *out;
};

/* An amendment as a record: its kind, the entry as in a base record, the path. */
#define KIND_LEN 1u
#define PATH_AT  (KIND_LEN + BASE_ENTRY_FIXED)

int base_amendment_add(struct spool *v, const struct base_amendment *a)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	unsigned char fixed[PATH_AT] = { (unsigned char)a->kind };

	base_encode(fixed + KIND_LEN, &a->e, 0);
	strbuf_add(&sb, fixed, sizeof(fixed));
	strbuf_add(&sb, a->path, strlen(a->path) + 1);
	return spool_add(v, sb.buf, sb.len);
}

static int by_path(const void *a, size_t a_len, const void *b, size_t b_len)
{
	(void)a_len;
	(void)b_len;
	return path_compare((const char *)a + PATH_AT, (const char *)b + PATH_AT);
}

static int fail(struct amend *a, int r)
{
	return error_sys(a->err, r, "write", "base record");
}

/* The path of amendment I, until the next call. */
static int path_of(struct amend *a, size_t i, const char **ret)
{
	const void *data;
	size_t len;
	int r = spool_get(a->v, i, &data, &len);

	if (r < 0)
		return fail(a, r);
	*ret = (const char *)data + PATH_AT;
	return 0;
}

static int get(struct amend *a, size_t i, enum base_amend_kind *ret_kind, struct base_entry *ret)
{
	const unsigned char *at;
	const void *data;
	size_t len;
	int r = spool_get(a->v, i, &data, &len);

	if (r < 0)
		return fail(a, r);
	at = data;
	*ret_kind = (enum base_amend_kind)at[0];
	(void)base_decode(at + KIND_LEN, ret);
	return 0;
}

static int push(struct amend *a, const char *dir, const char *name, const struct base_entry *e,
                uint32_t old_dir, size_t from, size_t to)
{
	int r = grow((void **)&a->todo, &a->cap, a->n + 1, sizeof(*a->todo));

	if (r < 0)
		return fail(a, r);
	a->todo[a->n++] =
		(struct todo){ .path = xasprintf("%s%s%s", dir, *dir && *name ? "/" : "", name),
		               .old_dir = old_dir,
		               .dir = e->dir,
		               .from = from,
		               .to = to };
	return 0;
}

/* End of the run of amendments that share amendment I's name in the directory, which the caller frees;
 * *ret_own: so many of the first of them are about that itself. */
static int run_end(struct amend *a, const struct at *at, size_t i, char **ret_name, size_t *ret_own,
                   size_t *ret_end)
{
	const char *path = NULL;
	int r = path_of(a, i, &path);
	size_t len = r < 0 ? 0 : strcspn(path + at->skip, "/");

	if (r < 0)
		return r;
	*ret_own = path[at->skip + len] == '\0' ? 1 : 0;
	*ret_name = xstrndup(path + at->skip, len);
	for (i++; i < at->dir->to; i++) {
		r = path_of(a, i, &path);
		if (r < 0)
			return r;
		path += at->skip;
		if (strncmp(path, *ret_name, len) != 0 || (path[len] && path[len] != '/'))
			break;
		*ret_own += !path[len];
	}
	*ret_end = i;
	return 0;
}

/* With the proof that the copy is unchanged, which is about the SRC it was made of. */
static void take_meta(struct base_entry *out, const struct base_entry *e)
{
	out->src = e->src;
	out->xattrs = e->xattrs;
	out->work_ino = e->work_ino;
	out->work_ctime_ns = e->work_ctime_ns;
}

/* One name: E as it was (NULL: it was not), and the amendments FROM..TO at it and below it; OWN: so many
 * of the first of them are about itself, of which the very first counts. */
static int take(struct amend *a, struct at *at, const char *name, const struct base_entry *e,
                const struct todo *below, size_t own)
{
	struct base_entry out = e ? *e : (struct base_entry){ .dir = BASE_NO_DIR }, set = { 0 };
	uint32_t old_dir = out.dir;
	enum base_amend_kind kind = BASE_META;
	int r = own ? get(a, below->from, &kind, &set) : 0;

	if (r < 0 || (own && kind == BASE_REMOVE))
		return r;
	if (own && kind == BASE_SET) {
		out = set;
		old_dir = BASE_NO_DIR;
	} else if (own && e) {
		take_meta(&out, &set);
	} else if (!e) {
		return 0; /* below what the record does not know */
	}
	out.name = name;
	out.dir = S_ISDIR(out.src.mode) ? base_writer_dir(a->w) : BASE_NO_DIR;
	r = base_draft_add(at->out, &out);
	if (r < 0)
		return fail(a, r);
	if (out.dir == BASE_NO_DIR)
		return 0;
	return push(a, at->dir->path, name, &out, old_dir, below->from + own, below->to);
}

static int merge(struct amend *a, struct at *at, struct base_block *old)
{
	static const struct todo nothing;
	struct todo run = { .from = at->dir->from, .to = at->dir->from };
	cleanup_free char *name = NULL; /* of the run; NULL: to be looked for */
	size_t i = 0, own = 0;
	int r = 0;

	while (r >= 0 && (i < old->n || run.from < at->dir->to)) {
		const struct base_entry *e = NULL;
		int order;

		if (!name && run.from < at->dir->to)
			r = run_end(a, at, run.from, &name, &own, &run.to);
		if (r >= 0 && i < old->n) {
			r = base_block_at(old, i, &e);
			r = r < 0 ? fail(a, r) : r;
		}
		if (r < 0)
			break;
		order = !e ? 1 : !name ? -1 : strcmp(e->name, name);
		r = order < 0 ? take(a, at, e->name, e, &nothing, 0)
		              : take(a, at, name, order == 0 ? e : NULL, &run, own);
		i += order <= 0;
		if (order >= 0) {
			run.from = run.to;
			free(name);
			name = NULL;
		}
	}
	return r;
}

static int write_dir(struct amend *a, const struct todo *dir)
{
	cleanup_base_block struct base_block old = BASE_BLOCK_INIT;
	cleanup_base_draft struct base_draft out = { 0 };
	struct at at = { .dir = dir, .out = &out };
	int r = 0;

	base_draft_init(&out, a->w, dir->dir);
	if (dir->old_dir != BASE_NO_DIR)
		r = base_read(a->old, dir->old_dir, &old, a->err);
	if (r < 0)
		return r;
	at.skip = *dir->path ? strlen(dir->path) + 1 : 0;
	r = merge(a, &at, &old);
	if (r < 0)
		return r;
	r = base_draft_put(&out, a->w);
	return r < 0 ? fail(a, r) : 0;
}

static int write_all(struct amend *a, size_t n)
{
	struct base_entry root = *base_root(a->old), set = { 0 };
	enum base_amend_kind kind;
	const char *first = "/";
	bool own;
	int r = n ? path_of(a, 0, &first) : 0;

	own = r >= 0 && !*first;
	if (own)
		r = get(a, 0, &kind, &set);
	if (r < 0)
		return r;
	if (own)
		take_meta(&root, &set);
	root.dir = base_writer_dir(a->w);
	r = push(a, "", "", &root, base_root(a->old)->dir, own, n);
	while (r >= 0 && a->n) {
		struct todo dir = a->todo[--a->n];

		r = write_dir(a, &dir);
		free(dir.path);
	}
	if (r < 0)
		return r;
	r = base_writer_finish(a->w, &root);
	return r < 0 ? error_sys(a->err, r, "write", "base record") : 0;
}

int base_amend(const struct base *old, struct spool *v, int dir_fd, int fd, struct error *err)
{
	cleanup_base_writer struct base_writer *w = NULL;
	struct amend a = { .old = old, .v = v, .err = err };
	int r = base_writer_new(fd, &w);

	if (r < 0)
		return error_sys(err, r, "write", "base record");
	a.w = w;
	base_writer_spill_to(w, dir_fd);
	r = spool_sort(v, by_path);
	r = r < 0 ? fail(&a, r) : write_all(&a, v->n);
	while (a.n)
		free(a.todo[--a.n].path);
	free(a.todo);
	return r;
}
