/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a plan, collected. */
#ifndef CLI_CHANGES_H
#define CLI_CHANGES_H

#include "cli/cli.h"

struct changes {
	struct atoll_change *v; /* their strings are ours */
	size_t n, cap;
};
#define CHANGES_INIT ((struct changes){ 0 })

/* 0 or a negative code, with c->res filled. */
int changes_read(struct cli *c, struct changes *ret);
void changes_done(struct changes *ch);
#define cleanup_changes __attribute__((__cleanup__(changes_done)))

#endif
