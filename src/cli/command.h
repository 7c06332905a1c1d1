/* SPDX-License-Identifier: Apache-2.0 */
/* What `exec`, `shell` and `run` have in common: a command in c->plan, as if called directly. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/cli.h"

/* Rows for the option table of a command that calls command_options(). */
#define COMMAND_OPTIONS                                                                           \
	{ "env", "NAME[=VALUE]",                                                                  \
	  "set a variable; without =VALUE it is the caller's; may be repeated" },                 \
		{ "unset", "NAME", "leave a variable out; may be repeated" },                     \
		{ "cwd", "DIR", "start the command in DIR" },                                     \
		{ "at", "PATH", "show the plan's first directory at PATH, not at its own path" }, \
		{ "net", "none|loopback|host", "the command's network (default: host)" },         \
		{ "memory", "SIZE", "at most so many bytes of memory, such as 512m" },            \
		{ "cpus", "N", "at most so many processors, such as 1.5" },                       \
		{ "pids", "N", "at most so many processes" },                                     \
		{ "transcript", NULL,                                                             \
		  "record what the command prints, up to exec.transcript-max" },                  \
		{ "timeout", "SECONDS",                                                           \
		  "end the command after that time: SIGTERM, two seconds later SIGKILL" },        \
		{ "status-file", "FILE",                                                          \
		  "write the object of --json to FILE when the command has ended" },              \
		FENCE_OPTIONS

/* Reads them: EXEC gets the time and the place, c->status is open, the rest is handed on by
 * command_run(). 0 or an exit status. */
int command_options(struct cli *c, struct atoll_exec *exec);
/* Runs WORDS (N of them); EXEC says the rest. As atoll_plan_exec(), signals passed on. */
int command_run(struct cli *c, char **words, size_t n, struct atoll_exec *exec,
                struct atoll_exec_status *ret);
/* Runs $SHELL, else /bin/sh, and says in which plan. */
int command_run_shell(struct cli *c, struct atoll_exec *exec, struct atoll_exec_status *ret);
/* SIGINT, SIGTERM or SIGHUP that came when the command had ended already, or 0. */
int command_late_signal(void);
/* The object of --json, in each place that is to have it. PUT adds members; may be NULL. */
typedef void (*command_put_fn)(const struct cli *c, struct json *j, void *ctx);
void command_report(const struct cli *c, command_put_fn put, void *ctx);
/* Our exit status for the command's, which is c->ran; died of ^C, so do we. */
int command_end(struct cli *c);

#endif
