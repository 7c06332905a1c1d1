/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners: TCP sockets at which the holder listens, for clients that know no other (JDBC, most GUIs). There are two
 * kinds, both on the loopback:
 *
 *   of the host     at a port that the kernel chooses, once it is asked for, until the holder ends. Every user of the
 *                   machine can connect: the client has to prove that it knows the holder's password (scram.h)
 *   of a command    with a network of its own: its pid 1 listens inside and hands the socket over (helper/net.h).
 *                   Nothing but the command can connect, so that no password is asked, as at the Unix socket. It
 *                   is closed when pid 1 ends, which is when the connection over which it came does
 *
 * A client that has to prove itself and does not within LISTENER_AUTH_MS is dropped, and there are never more than
 * LISTENER_MAX_AUTH of them: another user of the machine cannot take the holder's descriptors.
 */
#ifndef POSTGRES_LISTENER_H
#define POSTGRES_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LISTENER_AUTH_MS  10000
#define LISTENER_MAX_AUTH 32

struct scram;
struct client;
struct holder;

struct listener {
	struct listener *next;
	int listen_fd;
	int owner_fd; /* FD_NONE: the host's */
};

struct listeners {
	struct listener *first;
	struct scram *password; /* of the host's, once there is one */
	uint16_t port;
};

void listeners_done(struct listeners *d);
/* The host's, made if it is not there yet. 0 or -errno; then port and password are known. */
int listeners_open(struct listeners *d);
/* A listening socket that came over the connection OWNER_FD; takes both, also when it refuses: -EINVAL. */
int listeners_adopt(struct listeners *d, int listen_fd, int owner_fd);
/* Closes those whose owner has ended. */
void listeners_close_ended(struct listeners *d);
/* Takes a client that connects to LISTENER, if there is one. */
void listener_accept(const struct listener *listener, struct holder *h);
/* May clients come in that have to prove themselves? */
bool listeners_have_room(const struct holder *h);

#endif
