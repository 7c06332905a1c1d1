/* SPDX-License-Identifier: Apache-2.0 */
/* What a command printed, as an answer: bytes, as they were printed. */
#ifndef DAEMON_OUTPUT_H
#define DAEMON_OUTPUT_H

#include <limits.h>
#include <stdint.h>
#include <atoll.h>
#include "daemon/call.h"
#include "util/limits.h"

/* Which output; read() gets it. */
struct output {
	int64_t (*read)(const struct output *o, atoll_output_fn fn, void *user,
	                struct atoll_result *res);
	int64_t entry; /* of the log */
	char job[LIMIT_NAME + 1];
	uint64_t offset;
	/* The answer's own: */
	struct atoll *atoll;
	struct atoll_plan *plan;
};

int output_reply(struct call *c, const struct atoll_plan *p, const struct output *o);

#endif
