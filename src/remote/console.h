/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process while a command runs somewhere else: its terminal, its signals. From console_begin() to
 * console_end() the terminal is raw, so that every key is the command's, and signals come through a
 * descriptor instead of ending us. What was ignored stays ignored. Once in a process at a time.
 *
 * Crash: killed without a chance to end it, the terminal stays raw (`reset` mends it).
 */
#ifndef REMOTE_CONSOLE_H
#define REMOTE_CONSOLE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#define CONSOLE_SUSPEND_KEY 0x1a /* ^Z */

struct console {
	int tty_fd;    /* FD_NONE: no terminal is made raw */
	int signal_fd; /* readable when there is one */
	bool is_raw;
	struct termios before;
	sigset_t mask_before;
	struct sigaction pipe_before;
};
#define CONSOLE_INIT ((struct console){ .tty_fd = -1, .signal_fd = -1 })

/* TTY_FD FD_NONE: only signals. 0 or -errno. */
int console_begin(struct console *c, int tty_fd);
void console_end(struct console *c); /* harmless when it never began */
#define cleanup_console __attribute__((__cleanup__(console_end)))

/* A signal that came, or 0. */
int console_signal(struct console *c);
/* Of the terminal; false: there is none. */
bool console_size(const struct console *c, uint16_t *ret_rows, uint16_t *ret_columns);
/* Stops this process as ^Z does, with the terminal as it was; returns when it goes on. */
void console_suspend(struct console *c);

#endif
