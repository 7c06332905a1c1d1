/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Unix socket: mode 0600, in a directory in which only we can put things. Its directory is locked
 * (flock) while a dead daemon's socket is taken away and ours put there, so that two that start at once
 * do not take each other for dead.
 */
#ifndef DAEMON_LISTEN_UNIX_H
#define DAEMON_LISTEN_UNIX_H

#include "daemon/daemon.h"

/* The directory is made (0700) when missing. -EADDRINUSE: a daemon answers there. */
int listen_unix(const char *path, int *ret_fd, struct error *err);
/* That L's socket is at PATH, and ours to remove. */
void listen_unix_remember(struct listener *l, const char *path);
/* Removes it, unless something else is there by now. Harmless when there is none. */
void listen_unix_remove(struct listener *l);

#endif
