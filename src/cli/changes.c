/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting a plan's changes. */
#include "cli/changes.h"

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
