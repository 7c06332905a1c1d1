/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step in the middle: a command over there, with our input, output, terminal and signals. The frames
 * are those of atoll-exec/1 (sync/frame.h).
 *
 * Both directions go at the pace of the slower side. What the command prints is written before more is
 * read; input is read only as far as the command has taken what was sent (the window). While either waits,
 * signals go on. A reader of ours that is gone is a SIGPIPE for the command, as if it had written there
 * itself. Every byte is the command's: nothing that it prints is looked at.
 */
#ifndef REMOTE_RUN_H
#define REMOTE_RUN_H

#include "remote/connection.h"
#include "remote/cycle.h"

/* Runs it. ROOT_THERE: the project's root over there. 0: it ended, RET says how; a command that cannot be
 * found or started is -ENOENT or -EACCES, with the cause `run`, as it is here. */
int run_there(struct connection *c, const struct remote_run *run, const char *root_here,
              const char *root_there, struct remote_outcome *ret, struct error *err);

/* The request, as JSON; the caller frees. -ATOLL_E_INVALID: something that cannot be said in it. */
int run_request(const struct remote_run *run, const char *root_here, const char *root_there,
                char **ret_text, struct error *err);

#endif
