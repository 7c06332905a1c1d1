/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command over an upgraded connection, atoll-exec/1 (sync/frame.h). The session:
 *
 *   asked     the first frame says what to run
 *   running   frames go to the command and come from it (follow.h); one frame each way and FRAME_WINDOW
 *             bytes of input are all that is ever held
 *   draining  the command has ended; what it printed is sent
 *   closing   the last frame is sent; the client has a moment to close first
 *
 * When the client goes, a frame is none, or the daemon stops, the command is ended; in the last two
 * cases an error frame says so. The daemon's stop waits for sessions as for requests.
 */
#ifndef DAEMON_EXEC_STREAM_H
#define DAEMON_EXEC_STREAM_H

#include "daemon/stream.h"

extern const struct stream_protocol exec_stream;

#endif
