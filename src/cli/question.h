/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a command's end and what is decided about its work: a signal is remembered, so that the
 * work is kept in order, and then obeyed. Whoever sends a second one is obeyed at once; the work is
 * kept then, too, as that of an owner who died.
 */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include <stdbool.h>
#include <stddef.h>

/* SIGINT, SIGTERM and SIGHUP are remembered from now on. What is being written is cut off. */
void question_hold_signals(void);
/* The signal that came, or 0. */
int question_signal(void);
/* Ends the process as the signal would have; returns when none came. */
void question_obey_signal(void);

/* Asks TEXT on the terminal. False: there is no answer, but the end of input or a signal. */
bool question_ask(const char *text, char *line, size_t size);

#endif
