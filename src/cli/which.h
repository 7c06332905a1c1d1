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
/* Where paths may follow: c->plan is the plan whose whole name the first word is, which is then taken out; else
 * c->plan stays NULL and the word is a path. 0 or an exit status: it could be both. */
int which_plan_word(struct cli *c);
/* For a command whose next word may name something in the plan: opens the plan whose whole name the next word is, and
 * takes it out; else the one of the current directory that PICK says, and where there is none the one that the word
 * names in any way. 0 or an exit status. */
int which_plan_or_word(struct cli *c, enum pick pick);
/* Takes the first word out of ARGS. */
char *which_take_word(struct args *a);
/* The last used plan of the current directory, which is said; without any c->plan stays NULL. */
int which_plan_here(struct cli *c);
/* "2 h ago: npm test", "3 min ago"; the caller frees. */
char *which_describe(const char *command, int64_t used_ms);

#endif
