/* SPDX-License-Identifier: Apache-2.0 */
/* What commit, rollback, reset and stop have in common. */
#ifndef CLI_DECIDE_H
#define CLI_DECIDE_H

#include "cli/cli.h"

struct decide_flag {
	const char *option; /* "allow" with a value, or one without */
	const char *value;  /* NULL: it has none */
	unsigned flag;
};

/* The flags that the options ask for, by a table that ends with option NULL. 0 or an exit
 * status. A value not in the table is a usage error that names those that are. */
int decide_flags(struct cli *c, const struct decide_flag *table, unsigned *ret_flags);

/* Participants with an outcome, and the entries they changed. */
size_t decide_count(const struct cli *c, enum atoll_outcome outcome, uint64_t *ret_changes);

/* What the participants are: "directory", "directories", or, of more kinds, "resource"s. */
const char *decide_noun(const struct cli *c, size_t n);

/* Of a commit: "undo until tomorrow 14:05: atoll ...", or that it cannot be undone. The caller frees. */
char *decide_undo_words(const struct cli *c, unsigned flags);

/* "atoll commit PLAN PATH... --exclude GLOB" with the command's own: what it was asked for, and no more. The caller
 * frees. */
char *decide_commit_words(const struct cli *c);

/* --json: the plan and the result. */
int decide_json(const struct cli *c, unsigned flags);

#endif
