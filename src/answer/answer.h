/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results and records as JSON: one shape for `atoll --json` and for the daemon (docs/schema). Each
 * function writes members into an object that is open in J, or an object into an open array.
 */
#ifndef ANSWER_ANSWER_H
#define ANSWER_ANSWER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <atoll.h>
#include "plan/doctor.h"
#include "util/json.h"

/* An object of format "atoll.NAME/1" on F, open until answer_end(). */
void answer_begin(struct json *j, FILE *f, const char *name);
void answer_end(struct json *j);

/* ---- members ---- */

/* "plan" */
void answer_plan_ref(struct json *j, const char *id, const char *name);
void answer_plan_of(struct json *j, const struct atoll_plan *p);
/* "atomicity", "participants", "notes" */
void answer_result(struct json *j, const struct atoll_result *res);
/* "notes"; and with "participants" before them */
void answer_notes(struct json *j, const struct atoll_result *res);
void answer_participants(struct json *j, const struct atoll_result *res);
/* "cause" */
void answer_cause(struct json *j, const char *op, const char *path, int os_errno,
                  const char *detail);
/* What commit, rollback, reset, refresh and stop came to. */
void answer_decided(struct json *j, const struct atoll_plan *p, unsigned flags,
                    const struct atoll_result *res);
/* Of a commit: the same, and until when it can be undone; not of a dry run. */
void answer_committed(struct json *j, struct atoll_plan *p, unsigned flags,
                      const struct atoll_result *res);
/* A plan that was started: "plan", "opened", "sandboxes". */
void answer_started(struct json *j, struct atoll_plan *p, bool opened);
/* One plan, its sandboxes and its history. The members are there also when reading one of them fails;
 * "code" says so. 0 or the code. */
int answer_show(struct json *j, struct atoll_plan *p, struct atoll_result *res);
/* "name", "state", "exit_code" of one job. */
void answer_job_state(struct json *j, const char *name, enum atoll_job_state state, int exit_code);
/* BROKEN NULL: nobody held it. */
void answer_lock_broken(struct json *j, const struct atoll_lock_broken *broken);
/* All but "format" of a line of the log. */
void answer_log_members(struct json *j, const struct atoll_log_entry *e);

/* ---- objects of a list; J is a struct json, so that they fit the functions that list ---- */

int answer_plan(void *j, const struct atoll_plan_info *info);
int answer_sandbox(void *j, const struct atoll_sandbox_info *info);
int answer_event(void *j, const struct atoll_event *event);
int answer_job(void *j, const struct atoll_job *job);
int answer_lock(void *j, const struct atoll_lock_info *info);
void answer_finding(void *j, const struct doctor_finding *finding);
const char *answer_level_word(enum doctor_level level);

#endif
