/* SPDX-License-Identifier: Apache-2.0 */
/* The cycle of a session (remote/cycle.h) from the command line: what exec, shell and commit share. */
#ifndef CLI_THERE_CYCLE_H
#define CLI_THERE_CYCLE_H

#include "cli/cli.h"
#include "remote/cycle.h"

/* A row for the option table of a command that calls there_init(). */
/* clang-format off */
#define THERE_CYCLE_OPTIONS \
	{ "unserialized", NULL, "also where the daemon cannot keep others out" }
/* clang-format on */

struct there_run {
	struct cli *c;
	struct remote_session *session; /* set by the command */
	struct remote_run run;
	struct remote_outcome out;
};

/* What is the same for all of them; standard input and outputs are ours. */
void there_init(struct there_run *t, struct cli *c, enum remote_step step);
void there_done(struct there_run *t);
/* A cycle that failed; conflicts are named. Frees ERR; the exit status. */
int there_fail(struct there_run *t, struct error *err);
/* After the command: what became of what it changed, for people. */
void there_say(const struct there_run *t);
/* The object of --json, in each place that is to have it. */
void there_report(const struct there_run *t);

#endif
