/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the resources want a command to find in its environment, kept beside the record of the running
 * command: one that joins it (exec --shared) has the same. Without PGHOST and the rest it would reach the real
 * database instead of the plan's.
 *
 * Locking: written under the plan's lock, before the command begins; read while it runs.
 * Crash: may leave a part; no command runs then, and the next one writes it anew.
 */
#ifndef PLAN_COMMAND_ENV_H
#define PLAN_COMMAND_ENV_H

#include "util/error.h"
#include "util/list.h"

/* ENV: NAME=VALUE, or NAME for one to take away. Mode 0600: there may be a password in it. */
int command_env_keep(const char *area, const struct strlist *env, struct error *err);
/* Appends to ENV what was kept, if anything. */
int command_env_read(const char *area, struct strlist *env, struct error *err);

#endif
