/* SPDX-License-Identifier: Apache-2.0 */
/* One line on the terminal that says how far a long copy or commit is, and goes when it is done. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/cli.h"

/* Watches c->atoll if there is a terminal to show it on. Nothing is shown in the first 300 ms. */
void progress_watch(struct cli *c);
/* Takes the line off, for whoever has something to say. */
void progress_hide(void);
/* Is it there? For a signal handler. */
bool progress_shown(void);

#endif
