/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command over an upgraded connection (sync/frame.h), in that connection's thread. The session:
 *
 *   asked     the first frame says what to run
 *   running   frames go to the command and come from it, each as fast as the other side takes them;
 *             one frame each way and FRAME_WINDOW bytes of input are all that is ever held
 *   draining  the command has ended; what it printed is sent
 *   closing   the last frame is sent; the client has a moment to close first
 *
 * When the client goes, a frame is none, or the daemon stops, the command is ended; in the last two
 * cases an error frame says so. The daemon's stop waits for sessions as for requests.
 */
#ifndef DAEMON_EXEC_STREAM_H
#define DAEMON_EXEC_STREAM_H

#include "daemon/call.h"

/* Answers 101; from then on the session is on its own. */
int exec_stream_reply(struct call *c);

/* Also for the other form: members of an open object. */
struct command;
struct json;
void exec_put_exit(struct json *j, const struct command *cmd);
/* Of a command that was not run. */
struct problem;
void exec_problem(struct problem *p, const struct command *cmd);

#endif
