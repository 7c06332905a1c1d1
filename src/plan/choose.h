/* SPDX-License-Identifier: Apache-2.0 */
/* Which strategy a resource gets where overlays decide: overlay or copy, git or worktree. */
#ifndef PLAN_CHOOSE_H
#define PLAN_CHOOSE_H

#include "exec/exec.h"
#include "plan/plan.h"
#include "util/list.h"

/* NAMED NULL: `overlay` where it works for this user, on this host, over this directory; else `copy`,
 * and a note in RES says why. "git": the same with `git` and `worktree`. Any other is taken as it is,
 * or -ATOLL_E_UNSUPPORTED when it cannot work there. ROW's area and work directory are made already.
 * That it works is remembered in the store for this boot, user namespace and filesystem, so it is tried
 * once. */
int choose_strategy(struct atoll *a, const struct sandbox_row *row, int root_fd, const char *named,
                    struct atoll_result *res, const char **ret, struct error *err);
/* A mount over ROW's root failed, although it is remembered as possible: tries again, and remembers what came
 * of it. *ret_why as exec_probe() has it. */
int choose_again(struct atoll *a, const struct sandbox_row *row, enum exec_tier *ret,
                 char **ret_why, struct error *err);
/* Adds the names of all strategies. */
void choose_names(struct strlist *ret);

#endif
