/* SPDX-License-Identifier: Apache-2.0 */
/* One command, and the connection is over. */
#include "daemon/exec-stream.h"

#include "daemon/follow.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>

#define ASK_MS 10000 /* for the first frame */

struct session {
	struct exec_request request;
	struct follow follow;
};

static int start(struct stream *s, const struct frame *f, void *arg)
{
	struct session *x = arg;
	struct command_options how = { .request = &x->request,
		                       .atoll = s->atoll,
		                       .plan = s->plan,
		                       .input = true,
		                       .input_fd = FD_NONE };
	int r;

	if (f->type != FRAME_REQUEST)
		return stream_fail(s, -EPROTO, 400, "the first frame is to be the request");
	r = exec_request_read(&x->request, (const char *)f->data, f->len, &s->who, &s->err);
	if (r >= 0 && x->request.background)
		r = stream_fail(s, -ATOLL_E_INVALID, 0,
		                "a job needs no upgraded connection: ask without Upgrade");
	return r < 0 ? r : command_start(&how, &x->follow.cmd, &s->err);
}

static bool has_none(const void *arg)
{
	const struct session *x = arg;

	return !x->follow.cmd;
}

/* The first frame; what is behind it is the command's. */
static int await_request(struct stream *s, struct session *x)
{
	const struct stream_taker taker = { start, has_none, x };
	int64_t deadline = clock_deadline(ASK_MS);
	int r = stream_take(s, &taker);

	while (r >= 0 && !x->follow.cmd)
		r = stream_wait(s, &taker, deadline);
	return r == -ATOLL_E_TIMEOUT && !s->err.code ? stream_fail(s, r, 408, "no request came")
	                                             : r;
}

static void fill_exit(struct json *j, const void *cmd)
{
	json_open_object(j, NULL);
	exec_put_exit(j, cmd);
	json_close(j);
}

static void fill_problem(struct json *j, const void *problem)
{
	problem_write(j, problem);
}

static void say_last(struct stream *s, const struct command *cmd, bool well)
{
	struct problem p;

	if (well) {
		stream_say(s, FRAME_EXIT, fill_exit, cmd);
		return;
	}
	if (s->err.code)
		problem_of_error(&p, s->status, &s->err);
	else
		exec_problem(&p, cmd);
	p.instance = s->id;
	stream_say(s, FRAME_ERROR, fill_problem, &p);
}

static void serve(struct stream *s)
{
	struct session *x = xcalloc(1, sizeof(*x));
	int r = await_request(s, x);

	if (r >= 0)
		r = follow(&x->follow, s);
	if (!s->gone)
		say_last(s, x->follow.cmd, r >= 0 && x->follow.cmd->result >= 0);
	stream_linger(s);
	follow_done(&x->follow);
	exec_request_done(&x->request);
	free(x);
}

const struct stream_protocol exec_stream = { .name = FRAME_PROTOCOL,
	                                     .patient = true,
	                                     .from = FRAME_OF_CLIENT,
	                                     .serve = serve };
