/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache keeps on disk: a private directory (0700) with, for each sandbox of each service and
 * principal, files whose names are a hash of the three:
 *
 *   HASH.tok   the token, 0600: text lines under a line with their hash
 *   HASH.fl    the flight record: how the last request failed, or that the token was cleared; it has
 *              a random number, so that who waited can tell a record that came meanwhile
 *   HASH.lk    the ticket lock (lock/ticket.h) that is held around a request and around whatever
 *              reads a token to write it again
 *   .bad-...   what was in the place of a token and was none
 *
 * Every file is replaced as a whole. A reader needs no lock: it finds the old one or the new one.
 *
 * Crash: the old file or the new, perhaps a ".tmp-" beside it, which the next first use sweeps away
 * after an hour; the lock is free.
 *
 * Nothing here fails a caller: a directory that cannot be used is said once and then done without.
 * Locking: none is held by callers but the ticket; only threads of the cache come here, and the
 * blocking clear.
 */
#ifndef TOKEN_DISK_H
#define TOKEN_DISK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "lock/ticket.h"
#include "token/token.h"
#include "util/hash.h"

struct disk {
	char *path; /* NULL: nothing is kept */
	char *endpoint;
	char *principal;
	atoll_token_notice_fn notice;
	void *user;
	pthread_once_t once;
	int fd; /* FD_NONE: not usable */
	_Atomic bool write_told;
};

#define DISK_NAME_LEN (HASH_TEXT_LEN + 4)
struct disk_key {
	const char *sandbox;
	char stem[HASH_TEXT_LEN];
};
void disk_key(const struct disk *d, const char *sandbox, struct disk_key *ret);

/* Opens the directory, the first time; false: there is none to use. */
bool disk_ready(struct disk *d);
void disk_close(struct disk *d);

/* 1 and a token that is not over; 0: none. One that is over is removed, what is no token is set
 * aside. Locking: the ticket is held. */
int disk_read(struct disk *d, const struct disk_key *key, struct atoll_token **ret_token);
/* 0 or -errno, said once. */
int disk_write(struct disk *d, const struct disk_key *key, struct atoll_token *token);
void disk_remove(struct disk *d, const struct disk_key *key);

enum record_kind { RECORD_NONE, RECORD_FAILED, RECORD_CLEARED };
struct record {
	enum record_kind kind;
	uint64_t attempt; /* random */
	int code;
	int status;
	int64_t real_ns;   /* when the pause is over */
	char message[512]; /* without line breaks */
};
/* RECORD_NONE when there is none, or none that can be read. */
void record_read(struct disk *d, const struct disk_key *key, struct record *ret);
/* Gives it a new number. */
void record_write(struct disk *d, const struct disk_key *key, struct record *rec);
void record_remove(struct disk *d, const struct disk_key *key);

/* FN is told of every token of this service and principal that is not over; what it answers: keep it
 * (0) or remove it and note that it was cleared (1). The rest is swept: what is over, strays. */
typedef int (*disk_fn)(void *user, const char *sandbox, struct atoll_token *token);
void disk_sweep(struct disk *d, disk_fn fn, void *user);

#endif
