/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plan a command means: the one that its first word names, or, without such a word, one of those
 * of the current directory (plan_list_at()), by the command's enum pick. Where the answer is not one plan,
 * the error names the candidates (rule STO-06).
 */
#ifndef CLI_WHICH_H
#define CLI_WHICH_H

#include "cli/cli.h"

/* Opens c->plan; the store is open. The word that named it is taken out of c->args. 0 or an exit status. */
int which_plan(struct cli *c);
/* The last used plan of the current directory, which is said; without any c->plan stays NULL. */
int which_plan_here(struct cli *c);
/* "2 h ago: npm test", "3 min ago"; the caller frees. */
char *which_describe(const char *command, int64_t used_ms);

#endif
