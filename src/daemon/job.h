/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a job (plan/job.h) for a client. A job goes on when the client, and the daemon, are gone: so
 * it has a process of its own, this program once more, which holds the plan's lock and follows the
 * command. It is told what to do through a file in memory, and tells through a pipe that the job runs,
 * or why not.
 */
#ifndef DAEMON_JOB_H
#define DAEMON_JOB_H

#include "daemon/call.h"

#define JOB_ARGUMENT "--job"

/* NAME: the job's. Answers 202 once the command runs, or with what went wrong. The job's process has a copy
 * of HELD_FD (or FD_NONE) until the job is on record, or is not to be. */
int job_reply(struct call *c, const char *name, int held_fd);
/* The answer to one that runs, or did so: 202. */
int job_answer(struct call *c, struct atoll_plan *p, const char *name);
/* job_reply(), once for each Idempotency-Key; in api-jobs.c. */
int jobs_begin(struct call *c, const char *name);
/* That process. An exit status. */
int job_main(void);

#endif
