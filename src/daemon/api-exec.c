/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in plans: over frames (exec-stream.h), in lines (exec-lines.h), or as jobs (job.h). */
#include "daemon/daemon.h"
#include "daemon/exec-lines.h"
#include "daemon/exec-request.h"
#include "daemon/exec-stream.h"
#include "sync/frame.h"
#include "daemon/job.h"
#include "daemon/reply.h"
#include "daemon/route.h"
#include "util/cleanup.h"

#include <string.h>

#define BODY_MAX (1u << 20)

static int upgrade(struct call *c, const char *protocol)
{
	struct atoll_plan *p = NULL;
	int r;

	if (strcmp(protocol, FRAME_PROTOCOL) != 0) {
		reply_header(c, "Upgrade", FRAME_PROTOCOL);
		(void)error_set(&c->err, -ATOLL_E_INVALID,
		                "'Upgrade' can be to " FRAME_PROTOCOL ", and nothing else");
		return reply_error_as(c, 426, &c->err);
	}
	if (c->body_len > 0)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "with 'Upgrade' the request is the first frame, not the body");
	/* What is found out now is an ordinary answer. */
	r = call_plan(c, 0, &p);
	if (r < 0)
		return r;
	atoll_plan_free(p);
	return exec_stream_reply(c);
}

static int exec(struct call *c)
{
	cleanup_exec_request struct exec_request q = EXEC_REQUEST_INIT;
	const char *protocol = call_header(c, "Upgrade");
	int r;

	if (protocol)
		return upgrade(c, protocol);
	r = exec_request_read(&q, c->body, c->body_len, &c->who, &c->err);
	if (r < 0)
		return r;
	if (q.background)
		return jobs_begin(c, q.background);
	if (q.terminal)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "a terminal needs a connection with 'Upgrade: " FRAME_PROTOCOL
		                 "'");
	return exec_lines_reply(c, &q);
}

const struct route exec_routes[] = {
	{ "POST", "/v1/plans/{plan}/exec", MAY_AGENT, ROUTE_DATA | ROUTE_STORE | ROUTE_CREATES,
	  BODY_MAX, exec },
	{ NULL, NULL, 0, 0, 0, NULL },
};
