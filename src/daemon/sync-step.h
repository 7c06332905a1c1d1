/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a session (sync-stream.h). Each is asked for by one frame and answers with its last one,
 * or fails: negative, with the stream's err (or res) set unless the client is gone. Then the workspace is
 * what it was before the step.
 */
#ifndef DAEMON_SYNC_STEP_H
#define DAEMON_SYNC_STEP_H

#include "daemon/mirror.h"
#include "daemon/stream.h"

struct sync {
	struct stream *s;
	struct mirror mirror;
	uint64_t generation;
	int64_t pending;  /* changes of a run that nobody has received yet */
	bool out_of_turn; /* of a failure: nothing more can be understood */
};

/* After the lock was taken: what is here, and what of it is pending. What is neither is dropped. */
int sync_settle(struct sync *x);

/* TEXT is the frame's JSON, LEN bytes. */
typedef int (*sync_step_fn)(struct sync *x, const char *text, size_t len);
int sync_push(struct sync *x, const char *text, size_t len);
int sync_list(struct sync *x, const char *text, size_t len);
int sync_run(struct sync *x, const char *text, size_t len);
int sync_pull(struct sync *x, const char *text, size_t len);
int sync_received(struct sync *x, const char *text, size_t len);

#endif
