/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command whose answer is lines of JSON: for clients that cannot upgrade. It has no input.
 *
 *   {"type":"notice","kind":"waiting","message":"..."}
 *   {"type":"stdout","data":"..."}            and "data_b64" where that is no UTF-8
 *   {"type":"stderr","data":"..."}
 *   {"type":"exit","exit_code":0,...}         the last line; or
 *   {"type":"error","problem":{...}}
 *
 * What fails before anything is printed or waited for is a problem document instead.
 */
#ifndef DAEMON_EXEC_LINES_H
#define DAEMON_EXEC_LINES_H

#include "daemon/call.h"
#include "daemon/exec-request.h"

/* Takes what is in REQUEST. */
int exec_lines_reply(struct call *c, struct exec_request *request);

#endif
