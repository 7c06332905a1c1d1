/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FIFO lock on a file, between threads and processes of one machine.
 *
 * One small file per lock, mode 0600. Only its holder may unlink it, and only as the last thing
 * before ticket_release(): those who wait find that the file has no name and begin again on a new
 * one, which somebody else may hold by then. Its epochs begin again, too. A caller draws a ticket under
 * a gate byte, write-locks its own byte (open-file-description locks, so threads conflict like
 * processes and the kernel lets go when the last descriptor closes, however the process ends),
 * waits on its predecessor's byte, then read-locks all older bytes: proof that nobody older is
 * alive. Last it write-locks the one byte that only a holder has. A record beside the ticket says who
 * it is.
 *
 * A waiter that is stopped (SIGSTOP, ^Z) when its turn comes lets the others pass: they see it by
 * /proc, now and then, and go on to the last byte without it. It keeps its number, and is the next
 * one once it goes on. A holder that is stopped holds.
 *
 * Each grant carries an epoch, greater than every earlier one, and says whether the last holder
 * released it (TICKET_CLEAN) or died (TICKET_OWNER_DIED): then recover before anything else.
 *
 * Calling sequence: ticket_acquire(); work; ticket_release(). A ticket is not thread-safe; each
 * thread acquires its own.
 *
 * Crash: a dead waiter disappears from the queue, a dead holder's successor is granted with
 * TICKET_OWNER_DIED. Deadlines are on CLOCK_BOOTTIME. Network filesystems: -ATOLL_E_LOCK_UNSUPPORTED.
 * A file that is not a lock: -ATOLL_E_DAMAGED, of a newer version: -ATOLL_E_NEWER.
 *
 * fork: a child keeps the lock alive until it runs exec, ends, or calls ticket_abandon() on its
 * copy of the ticket. It never calls ticket_release() on it.
 */
#ifndef LOCK_TICKET_H
#define LOCK_TICKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "util/limits.h"

struct ticket {
	int fd; /* FD_NONE: not held */
	uint64_t number;
	uint64_t epoch;
	bool owner_died; /* the previous holder ended without releasing */
};
#define TICKET_INIT ((struct ticket){ .fd = -1 })

/* Who holds a lock. PID is as the holder saw itself. */
struct ticket_holder {
	pid_t pid;
	uint64_t start_time; /* /proc/PID/stat field 22 */
	int64_t since_ms;    /* UTC */
	uint64_t epoch;
	char command[LIMIT_COMMAND];
	unsigned ahead; /* tickets before ours, the holder included */
};

/* Called after 300 ms of waiting, whenever the holder changes, and then every 30 s. */
typedef void (*ticket_wait_fn)(void *user, const struct ticket_holder *holder);

struct ticket_options {
	const char *command;    /* what we are, for the record; secrets removed by the caller */
	int64_t deadline;       /* clock.h; CLOCK_NEVER: for ever; 0: try */
	ticket_wait_fn on_wait; /* may be NULL */
	void *user;
	/* Asked every 200 ms of a wait: true ends it, -ECANCELED. May be NULL. */
	bool (*cancelled)(void *ctx);
	void *cancelled_ctx;
	struct ticket_holder *ret_holder; /* filled on TIMEOUT and BUSY; may be NULL */
};

/* 0, -ATOLL_E_TIMEOUT (deadline passed), -ATOLL_E_BUSY (deadline 0 and held), -ECANCELED, -errno. */
int ticket_acquire(struct ticket *t, int dir_fd, const char *name,
                   const struct ticket_options *opt);
/* Marks the lock clean and lets go. Accepts a ticket that is not held. */
void ticket_release(struct ticket *t);
/* Lets go without marking it clean: the next holder is told to recover. */
void ticket_abandon(struct ticket *t);
/* A descriptor that keeps the lock held as long as it is open somewhere (for the process that
 * runs the command). Close-on-exec. */
int ticket_dup(const struct ticket *t);

/* Who holds it now: 1 and *ret, 0 when free, -errno. Takes nothing. */
int ticket_peek(int dir_fd, const char *name, struct ticket_holder *ret);
/* The holder and, behind it, all who wait, in order; AHEAD says how many are before each. The
 * number of them. Takes nothing. A negative answer of FN ends it. */
typedef int (*ticket_queue_fn)(void *user, const struct ticket_holder *who);
int ticket_queue(int dir_fd, const char *name, ticket_queue_fn fn, void *user);
/* "pid 4121 \"atoll exec fix-42 -- make\" since 12:03:11 (42 s); you are 2nd" into OUT. */
void ticket_describe(const struct ticket_holder *h, char *out, unsigned size);

#endif
