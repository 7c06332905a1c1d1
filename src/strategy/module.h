/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies that come as modules: shared objects NAME.so in a directory of strategies, opened when
 * a strategy of that name is first asked for and never closed.
 *
 * Where: the directory that ATOLL_STRATEGIES names, then the one that was installed with us. Code of
 * somebody else's must not run as us, so the directory and the file must belong to root or to this
 * user, and nobody else may write to them. With sudo that also keeps the environment of another user
 * from choosing what root runs.
 */
#ifndef STRATEGY_MODULE_H
#define STRATEGY_MODULE_H

#include <atoll.h>
#include "util/error.h"
#include "util/list.h"

/* The table of the module NAME. -ATOLL_E_NOT_FOUND: there is none, and ERR is not set. */
int module_load(const char *name, const struct atoll_strategy **ret, struct error *err);
/* Names of the modules that are there, usable or not. */
void module_names(struct strlist *ret);

#endif
