/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting a plan's changes. */
#include "cli/changes.h"

#include "answer/diff-view.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>

static int collect(void *user, const struct atoll_change *change)
{
	struct changes *ch = user;
	struct atoll_change *to;

	if (grow((void **)&ch->v, &ch->cap, ch->n + 1, sizeof(*ch->v)) < 0)
		return -ENOMEM;
	to = &ch->v[ch->n++];
	*to = *change;
	to->sandbox = xstrdup(change->sandbox);
	to->root = xstrdup(change->root);
	to->path = xstrdup(change->path);
	to->text = xstrdup(change->text ? change->text : "");
	to->conflict = xstrdup(change->conflict);
	to->detail = xstrdup(change->detail);
	to->from = NULL;
	return 0;
}

int changes_read(struct cli *c, struct changes *ret)
{
	int64_t n = atoll_plan_diff(c->plan, collect, ret, c->res);

	return n < 0 ? (int)n : 0;
}

void changes_done(struct changes *ch)
{
	for (size_t i = 0; i < ch->n; i++) {
		free_const(ch->v[i].sandbox);
		free_const(ch->v[i].root);
		free_const(ch->v[i].path);
		free_const(ch->v[i].text);
		free_const(ch->v[i].conflict);
		free_const(ch->v[i].detail);
	}
	free(ch->v);
	*ch = CHANGES_INIT;
}

void changes_print(const struct cli *c, const struct changes *ch)
{
	struct diff_view v = { 0 };

	for (int i = 0; i < PAINT_END_; i++)
		v.paint[i] = cli_paint(c, stdout, (enum paint)i);
	for (size_t i = 0; i < ch->n; i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;

		diff_line(&sb, &v, &ch->v[i], 0);
		(void)fputs(strbuf_str(&sb), stdout);
	}
}
