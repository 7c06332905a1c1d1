/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a command's terminal, which was made for it, and the user's: a process of its own, in the
 * caller's process group, that passes on what is typed and what is printed, and keeps the latter
 * (helper/keep.h) where that is wanted. While the command has the user's attention the user's terminal is raw: every key is the
 * command's, by way of its own terminal, and so are the signals that keys send.
 *
 * It ends when the caller says so and all that was printed is passed on, when nobody has the command's
 * terminal any more, when the user's is hung up, or when the caller is gone; the modes of the
 * user's terminal are as before, then, what it shows is plain text on the main screen again, and a process that
 * still has the command's terminal loses it. Signals that end others do
 * not end it before the command has ended.
 *
 * A command that stops (the helper says so) would leave the user with nothing that listens: the caller's
 * process group stops with it, if it is in the foreground, and when that goes on, so does the command. In
 * the background nothing is read from the user's terminal, and it is left as it is.
 */
#ifndef HELPER_RELAY_H
#define HELPER_RELAY_H

#define RELAY_MASTER_FD 3 /* of the command's terminal, and nobody else has it */
#define RELAY_CALLER_FD \
	4 /* a socket: a byte says that the command has ended, its end that we are alone */
#define RELAY_STOPPED_FD 5 /* terminal_say_stopped() writes to its other end */
#define RELAY_TTY_FD     6 /* the user's terminal, our session's; reading and writing do not wait */

/* DIR and MAX as for keep_open(). Returns an exit status. */
int relay_run(const char *dir, const char *max);

#endif
