/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors: TCP sockets at which the holder listens, for clients that know no other (JDBC, most GUIs). There are two
 * kinds, both on the loopback:
 *
 *   of the host     at a port that the kernel chooses, once it is asked for, until the holder ends. Every user of the
 *                   machine can connect: the client has to prove that it knows the holder's password (scram.h)
 *   of a command    with a network of its own: its pid 1 listens inside and hands the socket over (helper/net.h).
 *                   Nothing but the command can connect, so that no password is asked, as at the Unix socket. The
 *                   connection over which it came is the door's life: it ends with pid 1, and so does the door
 *
 * A client that has to prove itself and does not within DOOR_PATIENCE_MS is dropped, and there are never more than
 * DOOR_MAX_UNPROVEN of them: another user of the machine cannot take the holder's descriptors.
 */
#ifndef POSTGRES_DOOR_H
#define POSTGRES_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOOR_PATIENCE_MS  10000
#define DOOR_MAX_UNPROVEN 32

struct scram;
struct client;
struct holder;

struct door {
	struct door *next;
	int listen_fd;
	int life_fd; /* FD_NONE: the host's */
};

struct doors {
	struct door *first;
	struct scram *password; /* of the host's, once there is one */
	uint16_t port;
};

void doors_done(struct doors *d);
/* The host's, made if it is not there yet. 0 or -errno; then port and password are known. */
int doors_open(struct doors *d);
/* A listening socket that came over the connection LIFE_FD; takes both, also when it refuses: -EINVAL. */
int doors_adopt(struct doors *d, int listen_fd, int life_fd);
/* Closes those whose life has ended. */
void doors_close_ended(struct doors *d);
/* Takes a client that knocks at DOOR, if there is one. */
void door_accept(const struct door *door, struct holder *h);
/* May clients come in that have to prove themselves? */
bool doors_have_room(const struct holder *h);

#endif
