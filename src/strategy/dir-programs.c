/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant: what of a change set makes git run a program. */
#include "strategy/dir.h"

#include "diff/git-program.h"
#include "strategy/select.h"

static bool taken(const void *ctx, const char *path)
{
	return selection_has(ctx, path, false);
}

int dir_programs(struct atoll_participant *p, const struct dir_roots *at,
                 const struct changeset *cs, struct strlist *ret)
{
	struct tree_state after = { .orig_fd = at->orig_fd,
		                    .work_fd = at->work_fd,
		                    .cs = cs,
		                    .others = &p->merged,
		                    .others_fd = p->merged_fd };
	int r;

	if (p->batch.select) {
		after.taken = taken;
		after.taken_ctx = p->batch.select;
	}
	r = git_programs_find(&after, p->root, ret);
	return r < 0 ? error_sys(&p->err, r, "look for git directories below", p->root) : 0;
}
