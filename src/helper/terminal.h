/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal of the command's own: the one at its standard input, which the caller made. The process
 * that follows the command leads a session for it, and the command begins as the group in its
 * foreground: so keys, job control and sizes work as at any terminal, and the follower knows, for
 * what the caller sends instead of keys, who is in the foreground.
 */
#ifndef HELPER_TERMINAL_H
#define HELPER_TERMINAL_H

#include "helper/failure.h"
#include "helper/run-impl.h"

/* Where one is wanted: takes it. 0, or -errno and F. */
int terminal_take(struct run *run, struct failure *f);
/* In the child: to its foreground. 0 or -errno. */
int terminal_enter(const struct run *run);
/* To the group in its foreground; without one to the command. */
void terminal_signal(const struct run *run, int sig);
/* The other end was closed. The kernel tells whoever leads the session, and nobody else. */
void terminal_hang_up(const struct run *run);
/* Whoever looks at it is back: to the command, and to the group in the foreground. */
void terminal_continue(const struct run *run);
/* Whether the caller relays it (helper/relay.h), and wants to hear when the command stops. */
bool terminal_is_relayed(void);
/* SIG stopped the command; 0: it goes on, or begins. Never waits. */
void terminal_say_stopped(int sig);

#endif
