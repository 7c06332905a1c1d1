/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a cycle over the connection, each asked for and answered: open, pull, received, close. Push
 * is in push.h, the command in run.h.
 */
#ifndef REMOTE_STEP_H
#define REMOTE_STEP_H

#include "remote/connection.h"
#include "remote/cycle.h"

/* What the daemon says of the plan, as of the last answer. */
struct there {
	int64_t generation; /* 0: no push was ever whole */
	bool has_lock;      /* what is done there is done one after another */
	bool has_pending;   /* a command ended, and its changes were not received: */
	int64_t run;        /* its number */
	int64_t changes;
	char *root; /* the project's, over there */
};
#define THERE_INIT ((struct there){ 0 })
void step_there_done(struct there *t);
#define cleanup_there __attribute__((__cleanup__(step_there_done)))

/* What an answer says, into T. */
int step_read(const struct strbuf *answer, struct there *t, struct error *err);

/* Locks the plan, waiting as RUN says. -ATOLL_E_UNSUPPORTED: it has no lock, and RUN wants one. */
int step_open(struct connection *c, const struct remote_run *run, struct there *ret,
              struct error *err);
/* What is pending, as a stream into *RET_FD, an anonymous file in DIR_FD; the caller closes. T is told what
 * it was. */
int step_pull(struct connection *c, int dir_fd, struct there *t, int *ret_fd, struct error *err);
/* Everything that is there, without contents, in the same way. */
int step_list(struct connection *c, int dir_fd, int *ret_fd, struct error *err);
/* It is safe here: nothing is pending any more. */
int step_received(struct connection *c, struct there *t, struct error *err);
/* Unlocks. */
int step_close(struct connection *c, struct error *err);

#endif
