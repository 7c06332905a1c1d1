/* SPDX-License-Identifier: Apache-2.0 */
/* Going through what a base record has below a directory. Depth costs memory, not stack. */
#include "diff/tree-impl.h"

#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>

struct level {
	struct base_block blk;
	size_t next;
	size_t path_len; /* of the directory */
};

struct base_walk {
	const struct base *base;
	struct level *v;
	size_t n, cap;
	struct strbuf path;
};

static int enter(struct base_walk *w, uint32_t dir, struct error *err)
{
	struct level lv = { .path_len = w->path.len };
	void *v = w->v;
	int r;

	r = base_read(w->base, dir, &lv.blk, err);
	if (r < 0)
		return r;
	r = grow(&v, &w->cap, w->n + 1, sizeof(*w->v));
	if (r < 0) {
		base_block_done(&lv.blk);
		return error_sys(err, r, "read", "base record");
	}
	w->v = v;
	w->v[w->n++] = lv;
	return 0;
}

static int step(struct base_walk *w, tree_base_fn fn, void *ctx, struct error *err)
{
	struct level *lv = &w->v[w->n - 1];
	const struct base_entry *e;
	int r;

	if (lv->next == lv->blk.n) {
		base_block_done(&lv->blk);
		w->n--;
		return 0;
	}
	r = base_block_at(&lv->blk, lv->next++, &e);
	if (r < 0)
		return error_sys(err, r, "read", "base record");
	strbuf_truncate(&w->path, lv->path_len);
	if (lv->path_len > 0)
		strbuf_putc(&w->path, '/');
	strbuf_puts(&w->path, e->name);
	r = fn(ctx, strbuf_str(&w->path), e);
	if (r < 0 || e->dir == BASE_NO_DIR)
		return r;
	return enter(w, e->dir, err);
}

int tree_base_walk(const struct base *b, const char *path, uint32_t dir, tree_base_fn fn, void *ctx,
                   struct error *err)
{
	struct base_walk w = { .base = b };
	int r;

	strbuf_puts(&w.path, path);
	r = enter(&w, dir, err);
	while (r >= 0 && w.n > 0)
		r = step(&w, fn, ctx, err);
	while (w.n > 0)
		base_block_done(&w.v[--w.n].blk);
	free(w.v);
	strbuf_done(&w.path);
	return r < 0 ? r : 0;
}
