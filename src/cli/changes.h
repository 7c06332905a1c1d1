/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a plan, collected, and which of them the user named. */
#ifndef CLI_CHANGES_H
#define CLI_CHANGES_H

#include "cli/cli.h"

struct shown_change {
	struct atoll_change change; /* its strings are ours */
	bool selected;
};

struct changes {
	struct shown_change *v;
	size_t n, cap;
};
#define CHANGES_INIT ((struct changes){ 0 })

/* 0 or a negative code, with c->res filled. All are selected. */
int changes_read(struct cli *c, struct changes *ret);
void changes_done(struct changes *ch);
#define cleanup_changes __attribute__((__cleanup__(changes_done)))

/*
 * Selects what lies at or below one of WORDS (N of them). A word is an absolute path, or relative
 * to the current directory, or, where that names nothing in the plan, relative to a resource's
 * root. -ATOLL_E_NOT_FOUND for one that names nothing, -ATOLL_E_AMBIGUOUS.
 */
int changes_select(struct cli *c, struct changes *ch, char **words, size_t n, struct error *err);

/* A line each on standard output, as `diff` prints them. */
void changes_print(const struct cli *c, const struct changes *ch);

#endif
