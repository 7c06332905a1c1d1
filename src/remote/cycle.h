/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cycle of a session: what is here goes there, the command runs there, what it changed comes back.
 *
 *   locked     this session's cycle lock, here, is held from here to the end: one cycle at a time, first
 *              come first served. So whoever wrote a record below is dead
 *   settled    an earlier pull that was whole is committed (or its conflicts are told: nothing else is done)
 *   opened     connected; the plan over there is locked for us, as long as the connection lives
 *   based      a local plan over the project was started: from here on every edit is noticed
 *   pushed     what differs from the manifest has been sent, and is committed there as generation G
 *   ran        the command has ended; its changes are pending there, whoever dies
 *   pulled     they are in the local plan, all of them, and that is on record
 *   received   they are committed there, too, as generation G+1
 *   closed     the plan over there is free
 *   committed  the local plan is committed: the project has them, all or none
 *
 * On record, in the session's row, each written before what it tells of is done:
 *
 *   pull_plan  the id of the local plan; it is started under that id, once
 *   pull_run   "": the plan is the base of a cycle, and nothing of value is in it. Else the run whose
 *              changes it holds, all of them
 *
 * and beside it the manifest: what is over there at the generation it names.
 *
 * Crash: the next cycle of the session goes on as follows; nothing is lost on either side.
 *
 *   killed               record          there               the next cycle
 *   before based         -               as before           begins anew
 *   before pushed        plan, no run    the push is dropped  takes another base
 *   while it runs        plan, no run    as pushed           takes another base
 *   ran, before pulled   plan, no run    changes pending     pulls them into that plan, whose base is the
 *                                                            state they were made from: edits made since
 *                                                            are conflicts
 *   before received      plan, run       the same pending    commits the plan; the run is not pulled again,
 *                                                            only received
 *   before committed     plan, run       generation G+1      commits the plan
 *   before the manifest  - or plan, run  generation G+1      lists what is there, and sends what differs
 *
 * A link that is cut, or a daemon that goes, is the same with a client that lives to tell it. Killed while
 * it makes the pulled changes, it makes all of them again: each says what is to be, not what to do.
 */
#ifndef REMOTE_CYCLE_H
#define REMOTE_CYCLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <atoll.h>
#include "remote/session.h"
#include "util/error.h"
#include "util/list.h"

enum remote_step {
	REMOTE_EXEC = 0, /* the whole of it */
	REMOTE_COMMIT,   /* nothing is pushed or run: what is pending there comes here */
	REMOTE_STEP_END_
};

enum remote_notice {
	REMOTE_WAITING = 0, /* for a lock: who has it, since when */
	REMOTE_TOLD,        /* a remark worth a line */
	REMOTE_NOTICE_END_
};

/* What is to be done. Descriptors stay the caller's. */
struct remote_run {
	enum remote_step step;
	/* Of EXEC: */
	const char *const *argv; /* NULL-terminated */
	const char *cwd;         /* absolute; inside the project it is that place over there */
	int64_t timeout_ms;      /* <= 0: none */
	/* As atoll_plan_exec_with() has them, those that a client of the daemon may wish for. */
	const struct atoll_exec_option *options;
	size_t n_options;
	const struct atoll_fence *fence; /* NULL: as zeros */
	int in_fd, out_fd, err_fd;       /* in_fd FD_NONE: there is no input */
	bool terminal;                   /* in_fd is one, and so has the command one */
	bool suspends; /* ^Z stops us, too: there is no shell over there to stop it for */
	/* Of both: */
	bool unserialized;     /* a peer without a lock will do */
	int64_t wait_ms;       /* for locks, here and there; -1: for ever */
	unsigned commit_flags; /* ATOLL_ALLOW_..., ATOLL_DENY_... of the local commit */
	void (*notice)(void *user, enum remote_notice kind, const char *text); /* may be NULL */
	void *user;
};

struct remote_conflict {
	char *path; /* absolute */
	char *why;
};

/* How it went; cleared by remote_cycle() first. */
struct remote_outcome {
	bool ran;
	struct atoll_exec_status status; /* once it ran */
	struct strlist notes;            /* of the command, from over there */
	int64_t changes_there;           /* entries it changed there; -1: not known */
	bool had_pending;                /* changes of an earlier command came first */
	uint64_t pushed, pulled;         /* entries */
	bool committed; /* what was pulled is in place here; or there was nothing */
	struct remote_conflict *conflicts;
	size_t n_conflicts;
	/* The local plan that has what was pulled, to be undone or settled; or "". */
	char plan[PLAN_ID_LEN + 1];
	char plan_name[LIMIT_NAME + 1];
	struct error pull_err; /* why it is not in place although the command ran; code 0: it is */
};
void remote_outcome_done(struct remote_outcome *o);
#define cleanup_remote_outcome __attribute__((__cleanup__(remote_outcome_done)))

/*
 * 0: all of it was done; or the command ran, and what did not go well is in ret->pull_err. Negative: the
 * command was not run, or nobody knows how it ended; ERR says what is unchanged, and what to type.
 */
int remote_cycle(struct remote_session *s, const struct remote_run *run, struct remote_outcome *ret,
                 struct error *err);

#endif
