/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of a remote client over an upgraded connection, atoll-sync/1 (sync/frame.h), in that
 * connection's thread.
 *
 *   asked    the first frame says who it is, and how long it waits
 *   waiting  for the plan's lock: notices say for whom
 *   opened   the lock is held; steps are done one after another: push, list, run, pull, received
 *   closed   by the client, or because it went: the lock is free, the workspace as the last step that was
 *            finished left it
 *
 * A step that fails ends with an error frame; its member `session` says whether the next one can be asked
 * for ("open"), or the connection is over ("closed"): after what is no frame, or one out of turn, and when
 * the daemon stops.
 *
 * Crash: what a step left in the workspace is dropped by the next one who opens; changes of a run that
 * ended stay pending and are told to it (mirror.h).
 */
#ifndef DAEMON_SYNC_STREAM_H
#define DAEMON_SYNC_STREAM_H

#include "daemon/stream.h"

extern const struct stream_protocol sync_stream;

#endif
