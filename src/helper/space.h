/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command in namespaces of its own: user, mount, pid, ipc, uts. Three processes: the helper
 * outside, pid 1 of the namespace, and the command. Pid 1 builds the tree (helper/tree.h), follows
 * the command, ends all it left behind, freezes the overlays and answers. The helper passes signals
 * on and waits. Whichever of the two dies, the kernel ends everything inside.
 *
 * The caller has the answer before pid 1 has ended where nothing can come of what is left: pid 1 was
 * alone, and the overlays are frozen. The helper itself ends after pid 1 in any case, and its record
 * (EXEC_RUNNING) goes then; who waits for the helper's end finds no namespace of the command.
 *
 * Pid 1 is there before anybody knows what is to be done: it makes what is the same for every
 * command, the process that becomes it included (helper/command.h), and waits for the request. Until
 * then its mounts follow the host's, so that it sees what is mounted when the request comes, and keeps
 * nothing busy that is unmounted meanwhile.
 */
#ifndef HELPER_SPACE_H
#define HELPER_SPACE_H

#include "helper/failure.h"
#include "helper/run-impl.h"

/* Stages of notes from pid 1, before its answer: what the command did. */
enum { SPACE_STOPPED = REPLY_STAGE_END_, SPACE_CONTINUED, SPACE_BEGUN, SPACE_RUNNING };

struct space {
	struct run *run;
	int (*inside)(const struct request *q, struct failure *f);
	uid_t uid;
	gid_t gid;
	bool own_user_ns; /* pid 1 is in a user namespace of its own */
	pid_t pid;        /* pid 1, seen from outside; -1: there is none, and failure says why */
	struct failure failure;
	int status[2];    /* from pid 1 to the helper: notes, then the answer */
	int go[2];        /* from the helper to pid 1: it is on record, begin; with the request */
	int record_fd;    /* directory of the record; FD_NONE: none is wanted */
	int origins_fd;   /* helper/origin.h; FD_NONE: nobody asks */
	int64_t begin_by; /* when the command must have begun; CLOCK_NEVER once it has */
	int64_t stop_at;  /* when the foreground is to stop as the command has */
	bool answered;
	bool gone;
	int wait_status; /* of pid 1, when gone */
};

bool space_wanted(const struct request *q);
/* Makes the namespaces. Pid 1 gets the request later, unless RUN has it now. In it INSIDE is run
 * when the tree is built, instead of a command, if it is not NULL. */
void space_open(struct space *s, struct run *run,
                int (*inside)(const struct request *q, struct failure *f));
/* Runs RUN->request. *REPLY tells of failures too, also when pid 1 is killed. */
void space_run(struct space *s, struct reply *reply);
/* It is not needed. */
void space_drop(struct space *s);
void space_close(struct space *s);

/* What keeps this host from making namespaces, as a sentence, or NULL. */
const char *space_why_not(void);

#endif
