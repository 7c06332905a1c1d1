/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and their time. libmicrohttpd's own time-out begins again with every byte, and also runs
 * while a handler works; so each connection has a deadline of ours, for the stage it is in, and one
 * thread, which sleeps until the earliest of them, shuts down what is late:
 *
 *   head      from the accept, or from the request line of a later request, until the head is there
 *   body      until the body is there
 *   working   none: a commit may take its time
 *   sending   until the answer is sent; of a stream, until what was read last is sent
 *   idle      until the next request line has come
 *
 * And their number: of one place that is listened on, and there of one address. At a limit a new connection takes the
 * place of the oldest one that is in "head" (of that address, where it is the address's limit), else of the oldest that
 * is idle; where all others have a request under way it is ended itself. So a client that sends half a head and
 * waits does not keep out one that sends a whole head.
 */
#ifndef DAEMON_PEER_H
#define DAEMON_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum peer_stage {
	PEER_HEAD = 0,
	PEER_BODY,
	PEER_WORKING,
	PEER_SENDING,
	PEER_IDLE,
	PEER_STAGE_END_
};

#define PEER_ADDRESS_LEN 48

struct bond;

struct peer {
	int fd;
	bool is_unix;
	char address[PEER_ADDRESS_LEN]; /* without port; "" on a Unix socket */
	_Atomic int stage;              /* enum peer_stage */
	_Atomic int64_t deadline;       /* CLOCK_BOOTTIME; CLOCK_NEVER: none */
	_Atomic int64_t since;          /* when it entered the stage */
	const void *place;              /* that it came to; compared only */
	bool displaced;                 /* shut down for another, or at once; counts no more */
	struct bond *bond;              /* of the credential that opened a stream on it, or NULL */
	struct peer *next, *prev;       /* of the table */
};

struct peers;
struct peer_limits {
	int64_t ms[PEER_STAGE_END_]; /* <= 0: none */
	unsigned place, address;     /* connections at most */
};
int peers_open(const struct peer_limits *limits, struct peers **ret);
void peers_close(struct peers *t); /* ends its thread; no peer may be left */

/* FD came to PLACE. */
struct peer *peer_add(struct peers *t, int fd, const void *place);
void peer_remove(struct peers *t, struct peer *p);
void peer_enter(struct peers *t, struct peer *p, enum peer_stage stage);
/* PEER_SENDING of so many bytes: those who take a lot get longer. */
void peer_enter_sending(struct peers *t, struct peer *p, uint64_t bytes);
/* Shuts every connection down, or only those that are in a stage without a request under way. */
void peers_end(struct peers *t, bool idle_only);
size_t peers_count(struct peers *t);
uint64_t peers_late(struct peers *t); /* so many were shut down for being late */

#endif
