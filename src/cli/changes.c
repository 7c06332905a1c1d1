/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting a plan's changes and choosing among them. */
#include "cli/changes.h"

#include "cli/names.h"
#include "diff/change.h"
#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>

static int collect(void *user, const struct atoll_change *change)
{
	struct changes *ch = user;
	struct shown_change *to;

	if (grow((void **)&ch->v, &ch->cap, ch->n + 1, sizeof(*ch->v)) < 0)
		return -ENOMEM;
	to = &ch->v[ch->n++];
	*to = (struct shown_change){ .change = *change, .selected = true };
	to->change.sandbox = xstrdup(change->sandbox);
	to->change.root = xstrdup(change->root);
	to->change.path = xstrdup(change->path);
	to->change.text = xstrdup(change->text ? change->text : "");
	to->change.conflict = xstrdup(change->conflict);
	to->change.from = NULL;
	return 0;
}

int changes_read(struct cli *c, struct changes *ret)
{
	int64_t n = atoll_plan_diff(c->plan, collect, ret, c->res);

	return n < 0 ? (int)n : 0;
}

static void free_text(const char *s)
{
	union {
		const char *in;
		char *out;
	} u = { .in = s };

	free(u.out);
}

void changes_done(struct changes *ch)
{
	for (size_t i = 0; i < ch->n; i++) {
		free_text(ch->v[i].change.sandbox);
		free_text(ch->v[i].change.root);
		free_text(ch->v[i].change.path);
		free_text(ch->v[i].change.text);
		free_text(ch->v[i].change.conflict);
	}
	free(ch->v);
	*ch = CHANGES_INIT;
}

static void select_below(struct changes *ch, const char *full)
{
	for (size_t i = 0; i < ch->n; i++) {
		const struct atoll_change *change = &ch->v[i].change;
		cleanup_free char *path =
			xasprintf("%s%s%s", change->root, *change->path ? "/" : "", change->path);

		/* A new directory is one change: something inside it is a part of it. */
		if (path_below(path, full) || (*change->path && path_below(full, path)))
			ch->v[i].selected = true;
	}
}

static bool is_changed(void *ctx, const char *full)
{
	const struct changes *ch = ctx;

	for (size_t i = 0; i < ch->n; i++) {
		cleanup_free char *path =
			xasprintf("%s/%s", ch->v[i].change.root, ch->v[i].change.path);

		if (path_below(path, full))
			return true;
	}
	return false;
}

int changes_select(struct cli *c, struct changes *ch, char **words, size_t n, struct error *err)
{
	cleanup_strlist struct strlist paths = STRLIST_INIT;
	int r = names_resolve(c, words, n, is_changed, ch, &paths, err);

	for (size_t i = 0; i < ch->n; i++)
		ch->v[i].selected = false;
	for (size_t i = 0; r >= 0 && i < paths.n; i++)
		select_below(ch, paths.v[i]);
	return r;
}
