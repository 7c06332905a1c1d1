/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idempotency-Key: a request that makes something may be sent again, by the same sender with the same
 * key, until he has an answer; the thing is made once (registry/request.h says how that survives us).
 *
 *   once_begin()    no key: nothing more happens. A key that is in use by a request under way: 409; that
 *                   was used for another request: 422. Else the row of an earlier try, or a new one
 *   once_record()   the new one is on disk, before anything is made
 *   once_failed()   nothing was made: the next try is the first
 *   once_done()     always
 */
#ifndef DAEMON_ONCE_H
#define DAEMON_ONCE_H

#include "daemon/call.h"
#include "registry/request.h"

struct once {
	struct request_row row;
	bool given;
	bool again;        /* row is that of an earlier try */
	int held_fd;       /* of once_hold() */
	struct once *next; /* of those under way */
};
#define ONCE_INIT ((struct once){ .held_fd = -1 })

/* 0; 1: the request is answered; negative: c->err. O stays where it is until once_done(). */
int once_begin(struct call *c, struct once *o, enum request_kind kind);
/* Others who are at the request are those that have held_fd, or a copy of it, too. Before it is known
 * whether an earlier try got as far as to make something. The same answers. */
int once_hold(struct call *c, struct once *o);
/* PLAN and NAME are set in the row. The same answers. */
int once_record(struct call *c, struct once *o);
/* What was made is called otherwise than the row says. */
int once_made(struct call *c, struct once *o);
void once_failed(struct call *c, struct once *o);
/* The answer to a request that is still under way, elsewhere. */
int once_busy(struct call *c);
void once_done(struct once *o);
#define cleanup_once __attribute__((__cleanup__(once_done)))

#endif
