/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cycle: lock, push, run, pull, release. One critical section under the plan's lock on the daemon,
 * which the connection holds.
 *
 * settle an earlier pull (its plan's commit; conflicts: -ATOLL_E_CONFLICT) -> start the local plan ->
 * connect -> open (lock) -> pull what is pending -> list, when the generations differ -> scan, push ->
 * run -> pull -> apply in the local plan -> received -> close (unlock) -> local commit -> save.
 *
 * A negative answer means that no command ran to its end: nothing was changed here. Once one did, the
 * answer is 0 and RET says how it ended and what became of the pull.
 */
#ifndef REMOTE_CYCLE_H
#define REMOTE_CYCLE_H

#include "remote/session.h"
#include "util/list.h"

enum remote_step {
	REMOTE_EXEC = 0, /* the whole of it */
	REMOTE_COMMIT,   /* nothing is pushed or run: what is pending there comes here */
	REMOTE_STEP_END_
};

enum remote_notice {
	REMOTE_WAITING = 0, /* for the lock: who has it, since when */
	REMOTE_TOLD,        /* a remark worth a line: a session replaced, files left out */
	REMOTE_NOTICE_END_
};

struct remote_run {
	enum remote_step step;
	/* Of EXEC; the request of atoll-exec/1 is made of it. */
	char *const *argv;
	size_t argc;
	const char *cwd;           /* absolute, inside the project, as it is here; NULL: the root */
	const struct strlist *env; /* "NAME=VALUE"; NULL: none */
	const struct strlist *unset;
	const char *net; /* NULL: the daemon's own choice; so for those that follow */
	const char *memory;
	const char *cpus;
	const char *pids;
	int64_t timeout_ms; /* 0: none */
	bool transcript;
	bool terminal;     /* standard input and output are one; it is made raw meanwhile */
	bool unserialized; /* a peer without a lock will do */
	int in_fd, out_fd, err_fd;
	/* Of both. */
	int64_t wait_ms; /* for the lock; -1: for ever */
	void (*notice)(void *user, enum remote_notice kind, const char *text);
	void *user;
};

struct remote_conflict {
	char *path;
	char *why;
};

struct remote_outcome {
	bool has_run;
	int exit_code; /* 128+N after signal N */
	int term_signal;
	bool timed_out;
	uint64_t pushed; /* entries */
	uint64_t pulled;
	bool committed; /* what was pulled is in place here (or there was nothing) */
	struct remote_conflict *conflicts; /* else, why not; LIMIT_CONFLICTS at most are named */
	size_t n_conflicts;
	char plan[PLAN_ID_LEN + 1]; /* the local plan that has it: to be undone, or settled; "" */
	char plan_name[LIMIT_NAME + 1];
	struct error pull_error; /* what went wrong after the command ended; code 0: nothing */
};
void remote_outcome_done(struct remote_outcome *o);
#define cleanup_remote_outcome __attribute__((__cleanup__(remote_outcome_done)))

int remote_cycle(struct remote_session *s, const struct remote_run *run, struct remote_outcome *ret,
                 struct error *err);

#endif
