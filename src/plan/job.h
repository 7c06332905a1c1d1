/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: commands in the background, each with a name in its plan.
 *
 * A job is a command like any other: a process of the caller's (the CLI detaches one of its own)
 * holds the plan's lock and follows it, and everything ends with that process. What is more: a row in
 * the registry, durable before the command begins, with the grant of the lock it runs under (boot and
 * epoch); and its output goes nowhere but to output.h.
 *
 * A job runs exactly as long as that grant is the one that holds the lock, which the kernel lets go of
 * however it ends. So a row without an end whose grant is not held tells of one that was killed,
 * together with what followed it, or went down with the machine: lost. No number of a process is
 * asked.
 *
 * So one job runs in a plan at a time, and whatever needs the lock waits for it. Other commands join
 * it instead (exec --shared).
 */
#ifndef PLAN_JOB_H
#define PLAN_JOB_H

#include "plan/plan-op.h"

/* What the last job of that name printed, which goes once another is on record; "": nothing. */
void job_old_output(const struct plan_op *op, const char *name, char ret[REGISTRY_OUTPUT_LEN]);

/* The job that holds the plan's lock now: 1 and *ret_name, or 0. */
int job_running(struct atoll_plan *p, char ret_name[LIMIT_NAME + 1], struct error *err);

int job_list(struct atoll *a, const char *ref, atoll_job_fn fn, void *user, struct error *err);
int64_t job_output(struct atoll_plan *p, const char *name, uint64_t offset, atoll_output_fn fn,
                   void *user, struct error *err);
/* SIGTERM, time, SIGKILL; until the lock is free. 1: it was ended, 0: it did not run. */
int job_stop(struct atoll_plan *p, const char *name, struct error *err);

#endif
