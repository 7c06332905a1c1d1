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

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

/* A directory of the new record still to be written. */
struct todo {
	char *path;
	uint32_t old_dir; /* BASE_NO_DIR: it has nothing of the old record */
	uint32_t dir;
	size_t from, to; /* amendments below it */
};

struct amend {
	const struct base *old;
	const struct base_amendment *v;
	struct base_writer *w;
	struct todo *todo;
	size_t n, cap;
	struct error *err;
};

/* One directory at hand. */
struct at {
	const struct todo *dir;
	size_t skip; /* bytes of a path up to the name in this directory */
	struct base_entry *out;
	size_t n;
	struct strlist *names; /* those that are not in the old block */
};

static int push(struct amend *a, const char *dir, const char *name, const struct base_entry *e,
                uint32_t old_dir, size_t from, size_t to)
{
	int r = grow((void **)&a->todo, &a->cap, a->n + 1, sizeof(*a->todo));

	if (r < 0)
		return error_sys(a->err, r, "write", "base record");
	a->todo[a->n++] =
		(struct todo){ .path = xasprintf("%s%s%s", dir, *dir && *name ? "/" : "", name),
		               .old_dir = old_dir,
		               .dir = e->dir,
		               .from = from,
		               .to = to };
	return 0;
}

/* End of the run of amendments that share V[I]'s name in the directory. */
static size_t run_end(const struct amend *a, const struct at *at, size_t i, size_t *ret_len)
{
	const char *name = a->v[i].path + at->skip;
	size_t len = strcspn(name, "/");

	*ret_len = len;
	for (i++; i < at->dir->to; i++) {
		const char *next = a->v[i].path + at->skip;

		if (strncmp(next, name, len) != 0 || (next[len] && next[len] != '/'))
			break;
	}
	return i;
}

/* With the proof that the copy is unchanged, which is about the SRC it was made of. */
static void take_meta(struct base_entry *out, const struct base_entry *e)
{
	out->src = e->src;
	out->xattrs = e->xattrs;
	out->work_ino = e->work_ino;
	out->work_ctime_ns = e->work_ctime_ns;
}

/* One name: E as it was (NULL: it was not), and the amendments FROM..TO at it and below it. */
static int take(struct amend *a, struct at *at, const char *name, const struct base_entry *e,
                size_t from, size_t to)
{
	const struct base_amendment *own =
		from < to && strcmp(a->v[from].path + at->skip, name) == 0 ? &a->v[from] : NULL;
	struct base_entry out = e ? *e : (struct base_entry){ .dir = BASE_NO_DIR };
	uint32_t old_dir = out.dir;

	if (own && own->kind == BASE_REMOVE)
		return 0;
	if (own && own->kind == BASE_SET) {
		out = own->e;
		old_dir = BASE_NO_DIR;
	} else if (own && e) {
		take_meta(&out, &own->e);
	} else if (!e) {
		return 0; /* below what the record does not know */
	}
	out.name = name;
	out.dir = S_ISDIR(out.src.mode) ? base_writer_dir(a->w) : BASE_NO_DIR;
	at->out[at->n++] = out;
	if (out.dir == BASE_NO_DIR)
		return 0;
	return push(a, at->dir->path, name, &out, old_dir, from + (own != NULL), to);
}

static int merge(struct amend *a, struct at *at, const struct base_block *old)
{
	size_t i = 0, k = at->dir->from;
	int r = 0;

	while (r >= 0 && (i < old->n || k < at->dir->to)) {
		const struct base_entry *e = i < old->n ? &old->v[i] : NULL;
		size_t len = 0, end = k < at->dir->to ? run_end(a, at, k, &len) : k;
		cleanup_free char *name = end > k ? xstrndup(a->v[k].path + at->skip, len) : NULL;
		int order = !e ? 1 : !name ? -1 : strcmp(e->name, name);

		if (order < 0) {
			r = take(a, at, e->name, e, 0, 0);
		} else if (order == 0) {
			r = take(a, at, e->name, e, k, end);
		} else {
			strlist_add(at->names, name);
			r = take(a, at, at->names->v[at->names->n - 1], NULL, k, end);
		}
		i += order <= 0;
		k = order >= 0 ? end : k;
	}
	return r;
}

static int write_dir(struct amend *a, const struct todo *dir)
{
	cleanup_base_block struct base_block old = BASE_BLOCK_INIT;
	cleanup_strlist struct strlist names = STRLIST_INIT;
	cleanup_free struct base_entry *out = NULL;
	struct at at = { .dir = dir, .names = &names };
	int r = 0;

	if (dir->old_dir != BASE_NO_DIR)
		r = base_read(a->old, dir->old_dir, &old, a->err);
	if (r < 0)
		return r;
	out = calloc(old.n + (dir->to - dir->from) + 1, sizeof(*out));
	if (!out)
		return error_sys(a->err, -ENOMEM, "write", "base record");
	at.out = out;
	at.skip = *dir->path ? strlen(dir->path) + 1 : 0;
	r = merge(a, &at, &old);
	if (r < 0)
		return r;
	r = base_writer_block(a->w, dir->dir, out, at.n);
	return r < 0 ? error_sys(a->err, r, "write", "base record") : 0;
}

static int write_all(struct amend *a, size_t n)
{
	struct base_entry root = *base_root(a->old);
	bool own = n && !*a->v[0].path;
	int r;

	if (own)
		take_meta(&root, &a->v[0].e);
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

int base_amend(const struct base *old, const struct base_amendment *v, size_t n, int fd,
               struct error *err)
{
	cleanup_base_writer struct base_writer *w = NULL;
	struct amend a = { .old = old, .v = v, .err = err };
	int r = base_writer_new(fd, &w);

	if (r < 0)
		return error_sys(err, r, "write", "base record");
	a.w = w;
	r = write_all(&a, n);
	while (a.n)
		free(a.todo[--a.n].path);
	free(a.todo);
	return r;
}
