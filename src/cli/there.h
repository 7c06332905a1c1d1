/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands at a remote: atoll --remote NAME COMMAND. They work on the session that the project of the
 * current directory has there (remote/session.h), so none of them takes a PLAN. Each is a row of its own,
 * which the command's row names as `there`.
 */
#ifndef CLI_THERE_H
#define CLI_THERE_H

#include "cli/cli.h"
#include "remote/session.h"

/* Rows for the option table of a command that calls there_open(). */
/* clang-format off */
#define THERE_OPTIONS                                                                     \
	{ "dir", "DIR", "for the project of that directory (default: the current one)" }, \
		{ "session", "ID", "that session, or the one whose id begins so, of several" }
/* clang-format on */

/* Opens the store, the remote and the session, and says what was made or replaced. MUST_EXIST: makes
 * none. NAME: for a plan that is made; may be NULL. 0, or an exit status: everything was said then. */
int there_open(struct cli *c, bool must_exist, const char *name, struct remote_session **ret);
/* "session 1f2e of '/home/me/project' (main) at remote 'big'"; caller frees. */
char *there_subject(const struct remote_session *s);
/* Members of an object that is open. */
void there_json_session(struct json *j, const struct session_row *row);
/* What its plan has changed and nobody has pulled: how many entries, or -1 and *ERR. */
int64_t there_pending(struct remote_session *s, struct error *err);

extern const struct command there_commit;
extern const struct command there_diff;
extern const struct command there_exec;
extern const struct command there_list;
extern const struct command there_log;
extern const struct command there_discard;
extern const struct command there_shell;
extern const struct command there_start;
extern const struct command there_stop;

#endif
