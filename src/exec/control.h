/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller says while its command waits or runs, through a descriptor of its own: each byte is
 * the number of a signal for the command; the end of it all says that the command must end. So a
 * caller that dies, or lets go of the other end, needs to say nothing.
 */
#ifndef EXEC_CONTROL_H
#define EXEC_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

struct control {
	int fd; /* the caller's */
	bool ended;
	uint64_t pending; /* signals for a command that does not run yet: a bit each */
};

/* Takes what there is, without waiting: the next signal, or 0: there is none now. */
int control_next(struct control *c);
/* Nothing is to run any more: it has ended, or a signal came that ends whatever waits. Other signals
 * are kept for the command. */
bool control_cancels(void *control);

#endif
