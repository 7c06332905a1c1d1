/* SPDX-License-Identifier: Apache-2.0 */
/* What `exec`, `shell` and `run` have in common: a command in c->plan, as if called directly. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/cli.h"

/* Runs WORDS (N of them); EXEC says the rest. As atoll_plan_exec(), signals passed on. */
int command_run(struct cli *c, char **words, size_t n, struct atoll_exec *exec,
                struct atoll_exec_status *ret);
/* Our exit status for the command's; died of ^C, so do we. */
int command_end(const struct cli *c, const struct atoll_exec_status *status);

#endif
