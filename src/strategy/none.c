/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `none`: the resource itself, for what must be worked on in place. It isolates nothing, so it can
 * neither prepare nor undo; beside others it is refused unless the caller allows it, and then
 * comes last. The smallest complete strategy.
 */
#include "strategy/strategy-impl.h"

#include "util/mem.h"

static int none_create(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static int none_path(struct atoll_participant *p, char **ret_path)
{
	*ret_path = xstrdup(p->root);
	return 0;
}

static int none_mounts(struct atoll_participant *p)
{
	return atoll_participant_mount(p, p->root, p->root, NULL, NULL);
}

static int none_commit(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static int none_reset(struct atoll_participant *p)
{
	return error_set(&p->err, -ATOLL_E_NOT_UNDOABLE,
	                 "'%s' is worked on in place, what was done to it stays", p->root);
}

static int none_remove(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

const struct atoll_strategy strategy_none = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "none",
	.kind = "any",
	.capabilities = ATOLL_CAP_PATH | ATOLL_CAP_MOUNTS,
	.create = none_create,
	.path = none_path,
	.mounts = none_mounts,
	.commit = none_commit,
	.reset = none_reset,
	.remove = none_remove,
};
