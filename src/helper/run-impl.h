/* SPDX-License-Identifier: Apache-2.0 */
/* A command while it runs, as the files of this folder see it. */
#ifndef HELPER_RUN_IMPL_H
#define HELPER_RUN_IMPL_H

#include "helper/calls.h"
#include "helper/failure.h"
#include "exec/request.h"
#include "helper/limit.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#define RUN_OWN_SIGNALS 5

struct run {
	struct request *request;
	struct sigaction before[RUN_OWN_SIGNALS]; /* as the caller had them */
	int signal_fd;
	int note_fd;   /* in pid 1: says here that the command has stopped; else FD_NONE */
	pid_t pid;     /* the command */
	int pass_code; /* in pid 1: only signals with this si_code are passed on; else 0 */
	int64_t deadline;
	bool timed_out;
	bool caller_gone;
	bool ended;
	bool answered;             /* the caller has the reply: run_answer() */
	bool to_sync;              /* and it is one of a command that ran */
	bool fenced;               /* it runs in views: helper/fence.h */
	int proc_fd;               /* in pid 1: its namespace's own /proc; else FD_NONE */
	int ruleset_fd;            /* what it may write: helper/landlock.h; FD_NONE */
	bool bounded;              /* the capabilities it could get are gone already */
	bool filtered;             /* so are the system calls it is not to make */
	int listener_fd;           /* in the child: of its filter, until pid 1 has it; or FD_NONE */
	struct calls calls;        /* in pid 1 */
	const struct views *views; /* in pid 1, once they are made */
	bool is_root;
	bool user_xattrs; /* of its overlays: helper/overlay.h */
	bool strict;      /* rather not run than without a part of the fence */
	bool no_user_ns;  /* root's, and in the helper's own user namespace */
	int wait_status;
	struct rusage usage;
	struct limits limits;
	bool joined;    /* helper/join.h; its parent is in another pid namespace */
	int user_ns_fd; /* and this it still has to enter; or FD_NONE */
	bool terminal;  /* standard input is its terminal: helper/terminal.h */
	struct {
		pid_t pid; /* forked before there was a request: helper/command.h; -1: none */
		int word_fd, said_fd;
	} ahead;
};

/* Blocks what we handle ourselves and opens RUN->signal_fd for it. 0 or -errno. */
int run_take_signals(struct run *run);
/* In the child: what the caller ignored (nohup) stays ignored; what only we ignore does not. */
void run_give_signals_back(const struct run *run);
/* What was put in REQUEST_FD and LOCK_FD. 0 or -errno. */
int run_read_request(struct run *run);
/* Waits until the caller says that the command may begin, and its time starts. False: it is gone. */
bool run_may_begin(struct run *run);
/* From the start of the command until it has ended or the caller is gone. */
void run_follow(struct run *run);
/* To the command, which is forked and does not run yet: what came while it was not. */
void run_catch_up(struct run *run);
void run_fill_reply(const struct run *run, struct reply *reply, struct failure *f);
/* REPLY to the caller, once; a second call does nothing. 0 or -errno. */
int run_answer(struct run *run, struct reply *reply);
/* To the caller, where he asked for it: the command runs. */
void run_tell(const struct request *q);

#endif
