/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long output goes through a pager: $ATOLL_PAGER, else core.pager, else $PAGER, else less, if
 * standard output is a terminal and --no-pager is not given. "cat" and "" mean none.
 * One that is not there is said, and the output goes to the terminal.
 *
 * Only for commands that change nothing: when the reader leaves, the writer dies of SIGPIPE, as
 * quietly as `... | head` would have it. Else its exit status is its own.
 */
#ifndef CLI_PAGER_H
#define CLI_PAGER_H

#include <signal.h>
#include <stdio.h>
#include "cli/cli.h"
#include "util/child.h"

/* Standard output, and standard error if it is the terminal too, go to the pager from here on. */
void pager_start(struct cli *c);
/* Waits until the reader is done. Harmless without one. */
void pager_end(struct cli *c);

/* A stream to a pager that shows it where standard error goes, or standard error itself where there is
 * none. Until pager_close() ^C is the pager's, and a reader that leaves is no signal. */
struct pager {
	FILE *f;
	struct child child;
	struct sigaction interrupt, pipe; /* as they were */
};
void pager_open(struct cli *c, struct pager *p);
void pager_close(struct pager *p);

#endif
