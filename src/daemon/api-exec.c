/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in plans: over frames (exec-stream.h), in lines (exec-lines.h), or as jobs (job.h). */
#include "daemon/daemon.h"
#include "daemon/exec-lines.h"
#include "daemon/exec-request.h"
#include "daemon/exec-stream.h"
#include "daemon/job.h"
#include "daemon/reply.h"
#include "daemon/route.h"
#include "util/cleanup.h"

#define BODY_MAX (1u << 20)

static int exec(struct call *c)
{
	cleanup_exec_request struct exec_request q = EXEC_REQUEST_INIT;
	int r;

	if (call_header(c, "Upgrade"))
		return stream_upgrade(c, &exec_stream);
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
