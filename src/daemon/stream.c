/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over a connection that was upgraded. */
#include "daemon/stream.h"

#include "daemon/daemon.h"
#include "daemon/reply.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/clock.h"
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

#define SEND_MS  10000 /* for the last frames */
#define CLOSE_MS 1000  /* for the client to close first */

int stream_fail(struct stream *s, int code, unsigned status, const char *what)
{
	if (!s->err.code) {
		(void)error_set(&s->err, code, "%s", what);
		s->status = status;
	}
	return code;
}

/* ---- to the client ---- */

bool stream_is_free(const struct stream *s)
{
	return s->out_begin == s->out_end;
}

void stream_put(struct stream *s, enum frame_type type, size_t len)
{
	frame_head(s->out, type, len);
	s->out_begin = 0;
	s->out_end = FRAME_HEAD + len;
}

void stream_put_json(struct stream *s, enum frame_type type, stream_fill_fn fill, const void *arg)
{
	FILE *f = fmemopen(s->out + FRAME_HEAD, FRAME_MAX, "w");
	struct json j;
	long len;

	if (!f) {
		s->gone = true;
		return;
	}
	json_init(&j, f);
	fill(&j, arg);
	json_end(&j);
	len = ftell(f);
	if (fclose(f) != 0 || len <= 0 || (size_t)len >= FRAME_MAX)
		s->gone = true;
	else
		stream_put(s, type, (size_t)len);
}

void stream_send(struct stream *s)
{
	while (!stream_is_free(s) && !s->gone) {
		ssize_t n = wire_send(&s->wire, s->out + s->out_begin, s->out_end - s->out_begin);

		if (n == -EAGAIN)
			return;
		if (n < 0)
			s->gone = true;
		else
			s->out_begin += (size_t)n;
	}
}

void stream_flush(struct stream *s)
{
	int64_t deadline = clock_deadline(SEND_MS);

	for (stream_send(s); !stream_is_free(s) && !s->gone; stream_send(s)) {
		struct pollfd pfd = { .fd = s->wire.fd, .events = POLLOUT };

		if (poll(&pfd, 1, clock_left_ms(deadline)) == 0)
			s->gone = true;
	}
}

void stream_say(struct stream *s, enum frame_type type, stream_fill_fn fill, const void *arg)
{
	stream_flush(s);
	if (s->gone)
		return;
	if (fill)
		stream_put_json(s, type, fill, arg);
	else
		stream_put(s, type, 0);
	stream_flush(s);
}

/* ---- from the client ---- */

int stream_take(struct stream *s, const struct stream_taker *t)
{
	struct frame f;
	int r = 0;

	while ((!t->may || t->may(t->arg)) && (r = frame_next(&s->reader, &f)) > 0) {
		r = t->take(s, &f, t->arg);
		if (r < 0)
			return r;
	}
	return r < 0 ? stream_fail(s, r, 400, "what was sent is no frame") : 0;
}

int stream_receive(struct stream *s, const struct stream_taker *t)
{
	int r = 0;

	do {
		unsigned char *to;
		size_t room = frame_reader_room(&s->reader, &to);
		ssize_t n = room ? wire_receive(&s->wire, to, room) : -EAGAIN;

		if (n == -EAGAIN)
			return 0;
		if (n <= 0) {
			s->gone = true;
			return -ECONNRESET;
		}
		frame_reader_added(&s->reader, (size_t)n);
		r = stream_take(s, t);
	} while (r >= 0 && wire_pending(&s->wire));
	return r;
}

int stream_wait(struct stream *s, const struct stream_taker *t, int64_t deadline)
{
	struct pollfd fds[] = {
		{ .fd = s->wire.fd, .events = POLLIN },
		{ .fd = s->d->stop_fd, .events = POLLIN },
	};
	int n = wire_pending(&s->wire) ? 1 : poll(fds, 2, clock_left_ms(deadline));

	if (n < 0)
		return errno == EINTR ? 0 : stream_fail(s, -errno, 0, "cannot wait for the client");
	if (n == 0)
		return -ATOLL_E_TIMEOUT;
	if (fds[1].revents)
		return stream_fail(s, -ECANCELED, 503, "the daemon stops");
	return stream_receive(s, t);
}

void stream_linger(struct stream *s)
{
	int64_t deadline = clock_deadline(CLOSE_MS);
	struct pollfd pfd = { .fd = s->wire.fd, .events = POLLIN };
	ssize_t n = 1;

	wire_end(&s->wire);
	while (!s->gone && n > 0 && poll(&pfd, 1, clock_left_ms(deadline)) > 0)
		n = recv(s->wire.fd, s->out, sizeof(s->out), MSG_DONTWAIT);
}

/* ---- its life ---- */

static void stream_free(struct stream *s)
{
	atoll_plan_free(s->plan);
	atoll_result_free(s->res);
	stores_give(s->d->stores, s->atoll);
	error_done(&s->err);
	free(s);
}

/* One that vanishes without a word is found out. */
static void keep_alive(int fd, bool patient)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, patient ? 10 : 2 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, patient ? 5 : 1 },
		{ IPPROTO_TCP, TCP_KEEPCNT, patient ? 4 : 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, patient ? 30000 : 4000 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
		                 sizeof(options[i].value));
}

static struct stream *stream_new(struct call *c, struct MHD_Connection *connection,
                                 const struct stream_protocol *protocol)
{
	struct stream *s = xcalloc(1, sizeof(*s));

	s->d = c->d;
	wire_init(&s->wire, connection, c->peer->fd);
	s->who = c->who;
	(void)snprintf(s->id, sizeof(s->id), "%s", c->id);
	s->atoll = take_ptr(c->atoll);
	s->res = atoll_result_new();
	if (!c->peer->is_unix)
		keep_alive(c->peer->fd, protocol->patient);
	frame_reader_init(&s->reader, protocol->from);
	return s;
}

/* The connection's thread is the session's: the library goes on with it when this returns. */
static void on_upgrade(void *cls, struct MHD_Connection *connection, void *context,
                       const char *extra, size_t extra_len, MHD_socket sock,
                       struct MHD_UpgradeResponseHandle *handle)
{
	const struct stream_protocol *protocol = cls;
	struct call *c = context;
	struct stream *s = stream_new(c, connection, protocol);
	unsigned char *to;

	(void)sock;
	peer_enter(c->d->peers, c->peer, PEER_WORKING);
	/* Whole, as in call_plan(): where that one is gone by now, no other takes its place. */
	if (plan_open_whole(s->atoll, c->args[0], &s->plan, &s->err) > 0 &&
	    extra_len <= frame_reader_room(&s->reader, &to)) {
		memcpy(to, extra, extra_len);
		frame_reader_added(&s->reader, extra_len);
		protocol->serve(s);
	}
	stream_free(s);
	(void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

/* What the library takes as an argument is not const. */
static void *as_argument(const struct stream_protocol *protocol)
{
	union {
		const void *in;
		void *out;
	} u = { .in = protocol };

	return u.out;
}

int stream_reply(struct call *c, const struct stream_protocol *protocol)
{
	struct MHD_Response *response =
		MHD_create_response_for_upgrade(on_upgrade, as_argument(protocol));

	if (response)
		(void)MHD_add_response_header(response, "Upgrade", protocol->name);
	return reply_response(c, MHD_HTTP_SWITCHING_PROTOCOLS, response);
}

int stream_upgrade(struct call *c, const struct stream_protocol *protocol)
{
	const char *wanted = call_header(c, "Upgrade");
	struct atoll_plan *p = NULL;
	int r = call_plan(c, 0, &p);

	/* What is found out now is an ordinary answer. */
	if (r < 0)
		return r;
	atoll_plan_free(p);
	if (!wanted || strcmp(wanted, protocol->name) != 0) {
		reply_header(c, "Upgrade", protocol->name);
		(void)error_set(&c->err, -ATOLL_E_INVALID,
		                "'Upgrade' can be to %s, and nothing else", protocol->name);
		return reply_error_as(c, 426, &c->err);
	}
	if (c->body_len > 0)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "with 'Upgrade' the request is the first frame, not the body");
	return stream_reply(c, protocol);
}
