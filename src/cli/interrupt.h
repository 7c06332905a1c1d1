/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP in commands that decide about a plan's work.
 *
 *   before the decision   it stops, "interrupted; nothing was changed", and the process ends by the signal.
 *                         While something is prepared that is taken back first; a second one does not
 *                         wait for that, and the next command takes it back
 *   after it              "finishing (...)": it is carried out, and that is what the exit status says. A second
 *                         one leaves the rest to `atoll recover` (exit 7); a third does not wait for the
 *                         step at hand
 *   when it is over       too late to be of any consequence
 *
 * And between the command of `run` and the decision about its work one is held: remembered, so that the
 * work is kept in order, and then obeyed. A second one is obeyed at once; the work is kept then, too, as
 * that of an owner who died.
 *
 * Signals that were ignored stay ignored.
 */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>
#include "cli/cli.h"

#define INTERRUPT_SIGNALS 3

/* From here on as above. Once the store is open. */
void interrupt_watch(struct cli *c);
/* What dead processes left is settled, or no longer: then that is what a signal ends. */
void interrupt_recovering(bool begins);

/* From here on they are held. What is being written is cut off. */
struct interrupt_held {
	int stage;
	struct sigaction before[INTERRUPT_SIGNALS];
};
void interrupt_hold(struct interrupt_held *h);
void interrupt_release(const struct interrupt_held *h);
/* As if SIG came now; 0: none did. */
void interrupt_remember(int sig);
/* The signal that came and is not obeyed yet, or 0. */
int interrupt_signal(void);
/* Ends the process as the signal would have; returns when there is none. */
void interrupt_obey(void);
/* Blocks them, for a wait that lets them in. */
void interrupt_block(sigset_t *ret_before);

#endif
