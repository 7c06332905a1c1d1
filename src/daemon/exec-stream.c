/* SPDX-License-Identifier: Apache-2.0 */
/* The session of an upgraded connection: one loop around poll(). */
#include "daemon/exec-stream.h"

#include "daemon/command.h"
#include "daemon/daemon.h"
#include "sync/frame.h"
#include "daemon/problem.h"
#include "daemon/reply.h"
#include "daemon/wire.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASK_MS     10000 /* for the first frame */
#define CLOSE_MS   1000  /* for the client to close first */
#define CREDIT_MIN (FRAME_WINDOW / 4)
/* Sent without looking whether anything else has come. */
#define FRAMES_AT_ONCE 8

struct session {
	struct daemon *d;
	struct wire wire;
	struct identity who;
	char id[CALL_ID_LEN];
	struct atoll *atoll;
	struct atoll_plan *plan;
	struct exec_request request;
	struct command *cmd;
	bool gone;        /* the client, or its connection is of no use */
	bool ended;       /* the command has */
	bool no_more;     /* the client said that its input ends here */
	bool news;        /* there is a notice */
	bool turn;        /* standard error is looked at first */
	struct error err; /* of the session's own: what the client is told at the end */
	unsigned status;  /* for that; 0: by its code */
	/* Input on its way to the command: a ring. */
	size_t in_begin, in_len;
	size_t credit; /* bytes of it that the command has taken and the client was not told of */
	size_t out_begin, out_end; /* of what is on its way to the client */
	struct frame_reader reader;
	unsigned char out[FRAME_HEAD + FRAME_MAX];
	unsigned char in[FRAME_WINDOW];
};

static bool may_fill(const struct session *s)
{
	return s->out_begin == s->out_end;
}

/* ---- to the client ---- */

static void put_frame(struct session *s, enum frame_type type, size_t len)
{
	frame_head(s->out, type, len);
	s->out_begin = 0;
	s->out_end = FRAME_HEAD + len;
}

static void send_out(struct session *s)
{
	while (!may_fill(s) && !s->gone) {
		ssize_t n = wire_send(&s->wire, s->out + s->out_begin, s->out_end - s->out_begin);

		if (n == -EAGAIN)
			return;
		if (n < 0)
			s->gone = true;
		else
			s->out_begin += (size_t)n;
	}
}

/* One JSON object as a frame. What does not fit is not sent: no text of ours is that long. */
static void put_json(struct session *s, enum frame_type type,
                     void (*fill)(struct json *j, const struct session *s, const char *arg),
                     const char *arg)
{
	FILE *f = fmemopen(s->out + FRAME_HEAD, FRAME_MAX, "w");
	struct json j;
	long len;

	if (!f) {
		s->gone = true;
		return;
	}
	json_init(&j, f);
	fill(&j, s, arg);
	json_end(&j);
	len = ftell(f);
	if (fclose(f) != 0 || len <= 0 || (size_t)len >= FRAME_MAX)
		s->gone = true;
	else
		put_frame(s, type, (size_t)len);
}

static void fill_notice(struct json *j, const struct session *s, const char *message)
{
	(void)s;
	json_open_object(j, NULL);
	json_string(j, "kind", "waiting");
	json_string(j, "message", message);
	json_close(j);
}

void exec_put_exit(struct json *j, const struct command *cmd)
{
	json_int(j, "exit_code", cmd->status.exit_code);
	json_int(j, "term_signal", cmd->status.term_signal);
	json_bool(j, "timed_out", cmd->status.timed_out);
	json_bool(j, "isolated", cmd->status.isolated);
	if (cmd->changes < 0)
		json_null(j, "changes");
	else
		json_int(j, "changes", cmd->changes);
	json_open_array(j, "notes");
	for (size_t i = 0; i < atoll_result_notes(cmd->res); i++)
		json_string(j, NULL, atoll_result_note(cmd->res, i)->text);
	json_close(j);
}

void exec_problem(struct problem *p, const struct command *cmd)
{
	problem_of_result(p, cmd->result, cmd->res);
	/* Nothing is wrong here: what was asked for cannot be run. */
	if (cmd->result == -ENOENT || cmd->result == -EACCES)
		p->status = MHD_HTTP_UNPROCESSABLE_CONTENT;
}

static void fill_exit(struct json *j, const struct session *s, const char *arg)
{
	(void)arg;
	json_open_object(j, NULL);
	exec_put_exit(j, s->cmd);
	json_close(j);
}

static void fill_error(struct json *j, const struct session *s, const char *arg)
{
	struct problem p;

	(void)arg;
	if (s->err.code)
		problem_of_error(&p, s->status, &s->err);
	else
		exec_problem(&p, s->cmd);
	p.instance = s->id;
	problem_write(j, &p);
}

/* A frame of what there is to tell, when the last one is away. */
static void fill_out(struct session *s)
{
	struct command *cmd = s->cmd;
	char message[COMMAND_NOTICE_MAX + 1];
	ssize_t n;

	if (s->credit >= CREDIT_MIN) {
		frame_put_u32(s->out + FRAME_HEAD, (uint32_t)s->credit);
		put_frame(s, FRAME_WINDOW_MORE, 4);
		s->credit = 0;
		return;
	}
	n = s->news ? read(cmd->notice_fd, message, COMMAND_NOTICE_MAX) : 0;
	s->news = false;
	if (n > 0) {
		message[n] = '\0';
		put_json(s, FRAME_NOTICE, fill_notice, message);
		return;
	}
	for (int i = 0; i < 2; i++) {
		int *fd = s->turn ? &cmd->err_fd : &cmd->out_fd;
		enum frame_type type = s->turn ? FRAME_STDERR : FRAME_STDOUT;

		s->turn = !s->turn;
		n = *fd == FD_NONE ? 0 : command_read(cmd, fd, s->out + FRAME_HEAD, FRAME_MAX);
		if (n > 0) {
			put_frame(s, type, (size_t)n);
			return;
		}
	}
}

/* ---- from the client ---- */

static int fail(struct session *s, int code, unsigned status, const char *what)
{
	if (!s->err.code)
		(void)error_set(&s->err, code, "%s", what);
	s->status = status;
	return code;
}

static int take_stdin(struct session *s, const struct frame *f)
{
	size_t at = (s->in_begin + s->in_len) % FRAME_WINDOW, first;

	if (f->len == 0) {
		s->no_more = true;
		return 0;
	}
	if (s->no_more)
		return fail(s, -EPROTO, 400, "input after its end");
	/* What was taken and not told is the client's only once it is told. */
	if (f->len > FRAME_WINDOW - s->in_len - s->credit)
		return fail(s, -EPROTO, 400, "more input than the window allows");
	first = f->len < FRAME_WINDOW - at ? f->len : FRAME_WINDOW - at;
	memcpy(s->in + at, f->data, first);
	memcpy(s->in, f->data + first, f->len - first);
	s->in_len += f->len;
	return 0;
}

static int start(struct session *s, const struct frame *f)
{
	int r;

	if (f->type != FRAME_REQUEST)
		return fail(s, -EPROTO, 400, "the first frame is to be the request");
	r = exec_request_read(&s->request, (const char *)f->data, f->len, &s->who, &s->err);
	if (r >= 0 && s->request.background)
		r = fail(s, -ATOLL_E_INVALID, 0,
		         "a job needs no upgraded connection: ask without Upgrade");
	return r < 0 ? r : command_start(&s->request, s->atoll, s->plan, true, &s->cmd, &s->err);
}

static int take_frame(struct session *s, const struct frame *f)
{
	if (!s->cmd)
		return start(s, f);
	if (f->type == FRAME_STDIN)
		return take_stdin(s, f);
	if (f->type == FRAME_RESIZE) {
		command_resize(s->cmd, frame_u16(f->data), frame_u16(f->data + 2));
		return 0;
	}
	if (f->type == FRAME_SIGNAL) {
		command_signal(s->cmd, f->data[0]);
		return 0;
	}
	return fail(s, -EPROTO, 400, "a frame that does not belong here");
}

static int take_frames(struct session *s)
{
	struct frame f;
	int r;

	while ((r = frame_next(&s->reader, &f)) > 0) {
		r = take_frame(s, &f);
		if (r < 0)
			return r;
	}
	return r < 0 ? fail(s, r, 400, "what was sent is no frame") : 0;
}

/* Negative: the session is over, and s->err says why unless the client is gone. */
static int receive(struct session *s)
{
	int r = 0;

	do {
		unsigned char *to;
		size_t room = frame_reader_room(&s->reader, &to);
		ssize_t n = wire_receive(&s->wire, to, room);

		if (n == -EAGAIN)
			return 0;
		if (n <= 0) {
			s->gone = true;
			return -ECONNRESET;
		}
		frame_reader_added(&s->reader, (size_t)n);
		r = take_frames(s);
	} while (r >= 0 && wire_pending(&s->wire));
	return r;
}

/* ---- to the command ---- */

static void feed(struct session *s)
{
	struct command *cmd = s->cmd;

	while (s->in_len > 0 && cmd->in_fd != FD_NONE) {
		size_t n = FRAME_WINDOW - s->in_begin;
		ssize_t done;

		n = s->in_len < n ? s->in_len : n;
		done = write(cmd->in_fd, s->in + s->in_begin, n);
		if (done < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (done < 0) { /* nobody reads it any more: as if it were read */
			close_fd(&cmd->in_fd);
			break;
		}
		s->in_begin = (s->in_begin + (size_t)done) % FRAME_WINDOW;
		s->in_len -= (size_t)done;
		s->credit += (size_t)done;
	}
	if (cmd->in_fd == FD_NONE) {
		s->credit += s->in_len;
		s->in_len = 0;
	}
	/* At a terminal the end of the input is a key. */
	if (s->in_len == 0 && s->no_more && !cmd->terminal)
		close_fd(&cmd->in_fd);
}

/* ---- the loop ---- */

enum { ON_SOCK = 0, ON_STOP, ON_DONE, ON_IN, ON_OUT, ON_ERR, ON_NOTICE, ON_END_ };

/* Nothing is read of the command while its last is not away. */
static void set_polls(const struct session *s, struct pollfd fds[ON_END_])
{
	const struct command *cmd = s->cmd;
	bool fill = may_fill(s);

	for (int i = 0; i < ON_END_; i++)
		fds[i] = (struct pollfd){ .fd = FD_NONE, .events = POLLIN };
	fds[ON_SOCK].fd = s->wire.fd;
	fds[ON_SOCK].events = (short)(POLLIN | (fill ? 0 : POLLOUT));
	fds[ON_STOP].fd = s->d->stop_fd;
	if (!s->ended)
		fds[ON_DONE].fd = cmd->done_fd;
	if (s->in_len > 0)
		fds[ON_IN] = (struct pollfd){ .fd = cmd->in_fd, .events = POLLOUT };
	if (!fill)
		return;
	fds[ON_OUT].fd = cmd->out_fd;
	fds[ON_ERR].fd = cmd->err_fd;
	if (!s->ended)
		fds[ON_NOTICE].fd = cmd->notice_fd;
}

static bool is_over(const struct session *s)
{
	return s->ended && s->cmd->out_fd == FD_NONE && s->cmd->err_fd == FD_NONE && may_fill(s);
}

static int follow(struct session *s)
{
	while (!is_over(s)) {
		struct pollfd fds[ON_END_];
		int r = 0;

		set_polls(s, fds);
		if (poll(fds, ON_END_, -1) < 0 && errno != EINTR)
			return fail(s, -errno, 0, "cannot wait for the command");
		if (fds[ON_STOP].revents)
			return fail(s, -ECANCELED, 503, "the daemon stops; the command was ended");
		if (fds[ON_DONE].revents) {
			command_join(s->cmd);
			s->ended = true;
		}
		if (fds[ON_SOCK].revents & ~POLLOUT)
			r = receive(s);
		if (r < 0)
			return r;
		s->news = fds[ON_NOTICE].revents != 0;
		feed(s);
		send_out(s);
		for (int i = 0; i < FRAMES_AT_ONCE && may_fill(s) && !s->gone; i++) {
			fill_out(s);
			send_out(s);
		}
		if (s->gone)
			return -ECONNRESET;
	}
	return 0;
}

/* The first frame, and what is behind it. */
static int await_request(struct session *s)
{
	int64_t deadline = clock_deadline(ASK_MS);
	int r = take_frames(s);

	while (r >= 0 && !s->cmd) {
		struct pollfd fds[] = {
			{ .fd = s->wire.fd, .events = POLLIN },
			{ .fd = s->d->stop_fd, .events = POLLIN },
		};
		int n = poll(fds, 2, clock_left_ms(deadline));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(s, -ATOLL_E_TIMEOUT, 408, "no request came");
		if (fds[1].revents)
			return fail(s, -ECANCELED, 503, "the daemon stops");
		r = receive(s);
	}
	return r;
}

/* The last frame, after what is on its way; a client that does not read it has had its time. */
static void send_last(struct session *s, bool well)
{
	int64_t deadline = clock_deadline(ASK_MS);
	bool put = false;

	while (!s->gone && !(put && may_fill(s))) {
		struct pollfd pfd = { .fd = s->wire.fd, .events = POLLOUT };

		if (!put && may_fill(s)) {
			put_json(s, well ? FRAME_EXIT : FRAME_ERROR, well ? fill_exit : fill_error,
			         NULL);
			put = true;
		}
		send_out(s);
		if (!may_fill(s) && poll(&pfd, 1, clock_left_ms(deadline)) == 0)
			return;
	}
}

/* With unread bytes on our side, closing first could take from the client what is still on its way. */
static void linger(struct session *s)
{
	int64_t deadline = clock_deadline(CLOSE_MS);
	struct pollfd pfd = { .fd = s->wire.fd, .events = POLLIN };
	ssize_t n = 1;

	wire_end(&s->wire);
	while (!s->gone && n > 0 && poll(&pfd, 1, clock_left_ms(deadline)) > 0)
		n = recv(s->wire.fd, s->in, sizeof(s->in), MSG_DONTWAIT);
}

static void serve(struct session *s)
{
	int r = await_request(s);

	if (r >= 0)
		r = follow(s);
	if (r < 0 && s->cmd) {
		command_end(s->cmd);
		command_join(s->cmd);
	}
	send_last(s, r >= 0 && s->cmd->result >= 0);
	linger(s);
}

/* ---- its life ---- */

static void session_free(struct session *s)
{
	command_free(s->cmd);
	exec_request_done(&s->request);
	atoll_plan_free(s->plan);
	stores_give(s->d->stores, s->atoll);
	error_done(&s->err);
	free(s);
}

/* One that vanishes without a word is found out within half a minute. */
static void keep_alive(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },          { IPPROTO_TCP, TCP_KEEPIDLE, 10 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 5 },        { IPPROTO_TCP, TCP_KEEPCNT, 4 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 30000 }, { IPPROTO_TCP, TCP_NODELAY, 1 },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
		                 sizeof(options[i].value));
}

static struct session *session_new(struct call *c, struct MHD_Connection *connection)
{
	struct session *s = xcalloc(1, sizeof(*s));

	s->d = c->d;
	wire_init(&s->wire, connection, c->peer->fd);
	s->who = c->who;
	(void)snprintf(s->id, sizeof(s->id), "%s", c->id);
	s->atoll = take_ptr(c->atoll);
	if (!c->peer->is_unix)
		keep_alive(c->peer->fd);
	frame_reader_init(&s->reader, FRAME_OF_CLIENT);
	return s;
}

/* The connection's thread is the session's: the library goes on with it when this returns. */
static void on_upgrade(void *cls, struct MHD_Connection *connection, void *context,
                       const char *extra, size_t extra_len, MHD_socket sock,
                       struct MHD_UpgradeResponseHandle *handle)
{
	struct call *c = context;
	struct session *s = session_new(c, connection);
	unsigned char *to;

	(void)cls;
	(void)sock;
	peer_enter(c->d->peers, c->peer, PEER_WORKING);
	if (atoll_plan_find(s->atoll, c->args[0], &s->plan, c->res) >= 0 &&
	    extra_len <= frame_reader_room(&s->reader, &to)) {
		memcpy(to, extra, extra_len);
		frame_reader_added(&s->reader, extra_len);
		serve(s);
	}
	session_free(s);
	(void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

int exec_stream_reply(struct call *c)
{
	struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgrade, NULL);

	if (response)
		(void)MHD_add_response_header(response, "Upgrade", FRAME_PROTOCOL);
	return reply_response(c, MHD_HTTP_SWITCHING_PROTOCOLS, response);
}
