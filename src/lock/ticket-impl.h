/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock file as the parts of lock/ see it.
 *
 * Content: a header, which holds the record of the last grant, then TICKET_RECORDS records of 256
 * bytes for those who wait; ticket N uses record N modulo TICKET_RECORDS. Numbers are in the
 * machine's byte order: the file never leaves the machine. Records only feed messages: one that
 * was overwritten by a younger ticket names nobody.
 *
 * Lock bytes lie far behind the content (locks past the end of a file are legal), so tickets
 * never wrap: byte 0 is the gate, byte 1 the holder's, byte TICKET_BASE + N belongs to ticket N.
 */
#ifndef LOCK_TICKET_IMPL_H
#define LOCK_TICKET_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include "lock/ticket.h"

#define TICKET_MAGIC   0x4b4c5441u /* "ATLK" */
#define TICKET_VERSION 1u
#define TICKET_RECORDS 1024u
#define TICKET_BASE    (INT64_C(1) << 40)
#define TICKET_MAX     (UINT64_C(1) << 61) /* TICKET_BASE + this fits an off_t */

struct ticket_record {
	uint64_t number;
	uint64_t start_time;
	int64_t since_ms;
	uint64_t epoch; /* 0: still waiting */
	int32_t pid;
	char command[LIMIT_COMMAND];
	char unused[60];
};
_Static_assert(sizeof(struct ticket_record) == 256, "layout of a lock file");

struct ticket_header {
	uint32_t magic;
	uint32_t version;
	uint64_t next; /* changed under the gate */
	/* From here on changed by the holder alone, in one write. */
	uint64_t epoch;
	uint32_t dirty; /* granted and not released */
	uint32_t unused;
	struct ticket_record holder;
};
_Static_assert(sizeof(struct ticket_header) == 288, "layout of a lock file");

#define TICKET_RECORDS_AT 512

/* ---- ticket-file.c ----------------------------------------------------------------------- */

/* 1 and the header, 0 when the file is empty, -ATOLL_E_DAMAGED, -ATOLL_E_NEWER, -errno. */
int ticket_file_header(int fd, struct ticket_header *ret);
/* 0 or -errno: all LEN bytes are written or it is a failure. */
int ticket_file_write(int fd, const void *data, size_t len, int64_t offset);
/* Fills a record with who we are. */
void ticket_record_init(struct ticket_record *rec, uint64_t number, const char *command);
/* Failure (a full disk) is ignored: the record is for messages, locking goes on without. */
void ticket_record_write(int fd, const struct ticket_record *rec);
/* The oldest live ticket of those below NUMBER: 1 and *ret, 0 when there is none, -errno. */
int ticket_file_oldest(int fd, uint64_t number, uint64_t *ret);
/* Any of them, in one call. */
int ticket_file_any(int fd, uint64_t number);
/* The holder among them: who was granted the lock and still has it, else the oldest, whose turn it
 * is. 1 and *ret, 0, -errno. */
int ticket_file_first(int fd, uint64_t number, uint64_t *ret);
/* Nobody of them was granted the lock, and all of them are stopped. */
bool ticket_file_all_stopped(int fd, uint64_t number);
/* The holder with its record and AHEAD. A record that is gone leaves pid 0. */
int ticket_file_holder(int fd, uint64_t number, struct ticket_holder *ret);

/* As ticket_queue(). */
int ticket_file_queue(int fd, ticket_queue_fn fn, void *user);

/* ---- ticket-wait.c ----------------------------------------------------------------------- */

struct ticket_step {
	short type; /* F_RDLCK, F_WRLCK, F_UNLCK */
	int64_t start;
	int64_t len;
};

/* Without waiting: 0, -EAGAIN when somebody has it, -errno. */
int ticket_step_try(int fd, const struct ticket_step *step);

#define TICKET_DONE      INT64_MIN
#define TICKET_CANCELLED (INT64_MIN + 1)
struct ticket_wait {
	int fd;
	const struct ticket_step *steps; /* taken in this order */
	unsigned n_steps;
	int64_t deadline;
	/* Called in the waiting thread at TICK_AT (boot ns); returns when next, or TICKET_DONE: what is
	 * waited for was had in another way, or TICKET_CANCELLED: nobody wants it any more. May be
	 * NULL. */
	int64_t (*tick)(void *user);
	int64_t tick_at;
	void *user;
};

/* Takes every step: 0, -ETIMEDOUT or -ECANCELED (then some may be taken: close the descriptor),
 * -errno. */
int ticket_wait(const struct ticket_wait *w);

#endif
