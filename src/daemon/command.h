/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command of a client: atoll_plan_exec_with() in a thread of its own, on pipes or a terminal, whose
 * other ends are here. Nothing of it outlives it: when its control is closed, here or by the death of
 * this process, the command and all it started are ended, and so is a wait for the plan.
 *
 *   started    the thread waits for the plan's lock, or the command runs
 *   ended      done_fd is readable: after command_join() result and status say how; what it printed
 *              may still be in the pipes, which end after it
 */
#ifndef DAEMON_COMMAND_H
#define DAEMON_COMMAND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <atoll.h>
#include "daemon/exec-request.h"
#include "util/error.h"

#define COMMAND_NOTICE_MAX 1024

struct command {
	/* Ours; all but done_fd never block, and FD_NONE says closed. */
	int in_fd;      /* its input goes here; or its terminal */
	int out_fd;     /* what it prints; or its terminal */
	int err_fd;     /* the same */
	int control_fd; /* as the option `control` */
	int notice_fd;  /* one line for each read: what is waited for */
	int done_fd;    /* readable when it has ended */
	bool terminal;
	/* Once it was joined: */
	int result; /* of the call */
	struct atoll_exec_status status;
	struct atoll_result *res;
	int64_t changes; /* -1: not counted */

	/* the rest is command.c's */
	const struct exec_request *request;
	struct atoll *atoll;
	struct atoll_plan *plan;
	int theirs[4]; /* stdin, stdout, stderr, control */
	int notice_to;
	char *cwd;
	pthread_t thread;
	bool has_thread;
};

/* Where a command of P begins when nobody says: the daemon's own working directory is nothing to a
 * client. The caller frees. */
char *command_cwd(struct atoll_plan *p);
/* What is pointed to must live until command_free(). */
struct command_options {
	const struct exec_request *request;
	struct atoll *atoll;
	struct atoll_plan
		*plan; /* NULL: a program of ours, run as it is, without a plan around it */
	bool input;    /* somebody can send some */
	int input_fd;  /* what it reads instead, which stays the caller's; or FD_NONE */
};
int command_start(const struct command_options *how, struct command **ret, struct error *err);
void command_signal(struct command *c, int sig);
void command_resize(struct command *c, uint16_t rows, uint16_t columns);
/* Its end begins, and nobody reads or writes any more. */
void command_end(struct command *c);
/* Waits for its end. */
void command_join(struct command *c);
/* Reads what it printed: the number of bytes; 0: the end, and *fd is closed; -EAGAIN. */
ssize_t command_read(struct command *c, int *fd, void *buf, size_t size);
/* Ends it, and waits for that. */
void command_free(struct command *c);
void cleanup_commandp(struct command **c);
#define cleanup_command __attribute__((__cleanup__(cleanup_commandp)))

#endif
