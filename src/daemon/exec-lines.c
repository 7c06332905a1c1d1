/* SPDX-License-Identifier: Apache-2.0 */
/* The answer in lines: each is made when the last one was taken, in the connection's thread. */
#include "daemon/exec-lines.h"

#include "daemon/command.h"
#include "daemon/daemon.h"
#include "daemon/follow.h"
#include "daemon/problem.h"
#include "daemon/reply.h"
#include "util/cleanup.h"
#include "util/json.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (16u << 10)

enum lines_state { LINES_RUNNING = 0, LINES_ENDED, LINES_LAST };

struct lines {
	struct daemon *d;
	int conn_fd;
	char id[CALL_ID_LEN];
	struct atoll *atoll;
	struct atoll_plan *plan;
	struct exec_request request;
	struct command *cmd;
	enum lines_state state;
	struct error err; /* the daemon's own, for the last line */
	char *line;
	size_t at, len; /* of it */
	char chunk[CHUNK];
};

static void lines_free(void *arg)
{
	struct lines *l = arg;

	if (!l)
		return;
	command_free(l->cmd);
	exec_request_done(&l->request);
	atoll_plan_free(l->plan);
	if (l->atoll)
		stores_give(l->d->stores, l->atoll);
	error_done(&l->err);
	free(l->line);
	free(l);
}

static void cleanup_linesp(struct lines **l)
{
	lines_free(*l);
}

/* ---- waiting ---- */

enum { ON_CONN = 0, ON_STOP, ON_DONE, ON_OUT, ON_ERR, ON_NOTICE, ON_END_ };

static int await(const struct lines *l, struct pollfd fds[ON_END_])
{
	const struct command *cmd = l->cmd;
	bool running = l->state == LINES_RUNNING;
	const int all[ON_END_] = {
		[ON_CONN] = l->conn_fd,
		[ON_STOP] = l->d->stop_fd,
		[ON_DONE] = running ? cmd->done_fd : FD_NONE,
		[ON_OUT] = cmd->out_fd,
		[ON_ERR] = cmd->err_fd,
		[ON_NOTICE] = running ? cmd->notice_fd : FD_NONE,
	};
	int n;

	for (int i = 0; i < ON_END_; i++)
		fds[i] = (struct pollfd){ .fd = all[i],
			                  .events = i == ON_CONN ? POLLRDHUP : POLLIN };
	do {
		n = poll(fds, ON_END_, -1);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* ---- lines ---- */

static void put_type(struct json *j, const char *type)
{
	json_open_object(j, NULL);
	json_string(j, "type", type);
}

static void put_last(struct lines *l, struct json *j)
{
	struct problem p;

	if (!l->err.code && l->cmd->result >= 0) {
		put_type(j, "exit");
		exec_put_exit(j, l->cmd);
		json_close(j);
		return;
	}
	if (l->err.code)
		problem_of_error(&p, 503, &l->err);
	else
		exec_problem(&p, l->cmd);
	p.instance = l->id;
	put_type(j, "error");
	problem_write_as(j, "problem", &p);
	json_close(j);
}

/* What there is to say now; false: nothing. */
static bool put_news(struct lines *l, struct json *j)
{
	struct command *cmd = l->cmd;
	const struct {
		const char *type;
		int *fd;
	} streams[] = { { "stdout", &cmd->out_fd }, { "stderr", &cmd->err_fd } };
	ssize_t n = l->state == LINES_RUNNING ? read(cmd->notice_fd, l->chunk, CHUNK - 1) : 0;

	if (n > 0) {
		l->chunk[n] = '\0';
		put_type(j, "notice");
		json_string(j, "kind", "waiting");
		json_string(j, "message", l->chunk);
		json_close(j);
		return true;
	}
	for (size_t i = 0; i < 2; i++) {
		n = *streams[i].fd == FD_NONE ? 0
		                              : command_read(cmd, streams[i].fd, l->chunk, CHUNK);
		if (n <= 0)
			continue;
		put_type(j, streams[i].type);
		json_data(j, "data", l->chunk, (size_t)n);
		json_close(j);
		return true;
	}
	if (l->state == LINES_RUNNING || cmd->out_fd != FD_NONE || cmd->err_fd != FD_NONE)
		return false;
	put_last(l, j);
	l->state = LINES_LAST;
	return true;
}

/* 1: a line is made; 0: not yet; negative: nobody is there to read it, or no memory. */
static int make_line(struct lines *l)
{
	struct json j;
	FILE *f = open_memstream(&l->line, &l->len);
	bool put;

	if (!f)
		return -ENOMEM;
	json_init(&j, f);
	put = put_news(l, &j);
	if (put)
		json_end(&j);
	if (fclose(f) != 0)
		return -ENOMEM;
	l->at = 0;
	if (!put) {
		free(l->line);
		l->line = NULL;
	}
	return put;
}

/* Waits for something to say, and makes a line of it. */
static int next_line(struct lines *l)
{
	struct pollfd fds[ON_END_];
	int r = 0;

	while (r == 0) {
		r = await(l, fds);
		if (r < 0 || fds[ON_CONN].revents)
			return r < 0 ? r : -ECONNRESET;
		if (fds[ON_STOP].revents) {
			command_end(l->cmd);
			(void)error_set(&l->err, -ECANCELED,
			                "the daemon stops; the command was ended");
			l->state = LINES_ENDED;
		}
		if (fds[ON_DONE].revents) {
			command_join(l->cmd);
			l->state = LINES_ENDED;
		}
		r = make_line(l);
	}
	return r;
}

static ssize_t lines_read(void *arg, char *buf, size_t size)
{
	struct lines *l = arg;
	size_t n;
	int r;

	if (!l->line) {
		if (l->state == LINES_LAST)
			return 0;
		r = next_line(l);
		if (r < 0)
			return r;
	}
	n = l->len - l->at < size ? l->len - l->at : size;
	memcpy(buf, l->line + l->at, n);
	l->at += n;
	if (l->at == l->len) {
		free(l->line);
		l->line = NULL;
	}
	return (ssize_t)n;
}

/* ---- the answer ---- */

/* It ended before it began: the answer is what went wrong. */
static int refuse(struct call *c, struct lines *l)
{
	struct problem p;

	exec_problem(&p, l->cmd);
	(void)error_set(&c->err, l->cmd->result, "%s", p.detail);
	if (*p.hint)
		error_hint(&c->err, "%s", p.hint);
	error_cause(&c->err, p.op, p.path, p.os_errno, *p.cause ? p.cause : NULL);
	return reply_error_as(c, p.status, &c->err);
}

int exec_lines_reply(struct call *c, struct exec_request *request)
{
	__attribute__((__cleanup__(cleanup_linesp))) struct lines *l = xcalloc(1, sizeof(*l));
	struct reply_stream stream = { .type = "application/x-ndjson",
		                       .read = lines_read,
		                       .done = lines_free };
	struct command_options how;
	int r;

	l->d = c->d;
	l->conn_fd = call_fd(c);
	(void)snprintf(l->id, sizeof(l->id), "%s", c->id);
	l->request = *request;
	l->request.exec.fence = &l->request.fence;
	*request = EXEC_REQUEST_INIT;
	r = call_plan(c, 0, &l->plan);
	if (r < 0)
		return r;
	l->atoll = take_ptr(c->atoll);
	how = (struct command_options){ .request = &l->request,
		                        .atoll = l->atoll,
		                        .plan = l->plan,
		                        .input_fd = FD_NONE };
	r = command_start(&how, &l->cmd, &c->err);
	if (r >= 0)
		r = next_line(l);
	if (r == -ECONNRESET)
		(void)error_set(&c->err, r, "the client went; the command was ended");
	if (r < 0)
		return r;
	if (l->state == LINES_LAST && !l->err.code && l->cmd->result < 0)
		return refuse(c, l);
	stream.arg = take_ptr(l);
	return reply_stream(c, 200, &stream);
}
