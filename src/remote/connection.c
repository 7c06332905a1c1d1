/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over the link, with and without waiting. */
#include "remote/connection.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS  15000
#define MESSAGE_MAX 2048
#define NS_PER_S    INT64_C(1000000000)

/* ---- what ends it ---- */

/* The peer is gone: what was not answered was not done, or is pending over there. It gives up whoever
 * says nothing for some seconds. */
static int lost(struct connection *c, int64_t r, struct error *err)
{
	int64_t suspended_s = (clock_suspended_ns() - c->suspended_ns) / NS_PER_S;
	int code;

	c->ended = true;
	code = remote_link_lost(c->link, r, err);
	if (suspended_s > 0)
		return error_prefix(err, code, "%s, and this machine was suspended for %lld s",
		                    c->doing, (long long)suspended_s);
	return error_prefix(err, code, "%s", c->doing);
}

static int broken(struct connection *c, const char *what, struct error *err)
{
	c->ended = true;
	return error_set(err, -EPROTO, "%s: the daemon sent %s", c->doing, what);
}

struct told {
	char *text;
	size_t size;
};

static int take_message(void *user, const char *key, const char *value, size_t len)
{
	struct told *t = user;

	if (strcmp(key, "message") == 0 && json_decode_string(value, len, t->text, t->size) < 0)
		t->text[0] = '\0';
	return 0;
}

static void take_notice(struct connection *c, const struct frame *f)
{
	char text[MESSAGE_MAX] = "";
	struct told t = { text, sizeof(text) };

	if (json_members((const char *)f->data, f->len, take_message, &t) == 0 && *text &&
	    c->notice) {
		cleanup_free char *harmless = escape_dup(text);

		c->notice(c->user, harmless);
	}
}

static int take_session(void *user, const char *key, const char *value, size_t len)
{
	static const char open[] = "\"open\"";
	struct connection *c = user;

	if (strcmp(key, "session") == 0)
		c->ended = len != strlen(open) || memcmp(value, open, len) != 0;
	return 0;
}

/* The problem as the daemon put it. */
static int take_error(struct connection *c, const struct frame *f, struct error *err)
{
	c->ended = c->refused = true;
	(void)json_members((const char *)f->data, f->len, take_session, c);
	return http_problem(&c->session->remote->target, 0, (const char *)f->data, f->len, err);
}

/* ---- receiving ---- */

/* Bytes into the reader: 1; 0: none now. */
static int fill(struct connection *c, struct error *err)
{
	unsigned char *to;
	size_t room;
	int64_t n;

	if (c->has_held)
		return 0;
	room = frame_reader_room(&c->reader, &to);
	n = remote_link_recv(c->link, to, room);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return lost(c, n, err);
	frame_reader_added(&c->reader, (size_t)n);
	return 1;
}

/* What is in the reader already: 1, or 0. */
static int next_read(struct connection *c, struct frame *ret, struct error *err)
{
	int r;

	if (c->has_held) {
		c->has_held = false;
		*ret = c->held;
		return 1;
	}
	r = frame_next(&c->reader, ret);
	if (r < 0)
		return broken(c, "what is no frame", err);
	return r > 0 && ret->type == FRAME_ERROR ? take_error(c, ret, err) : r;
}

int connection_try_next(struct connection *c, struct frame *ret, struct error *err)
{
	int r = next_read(c, ret, err);

	while (r == 0) {
		r = fill(c, err);
		if (r <= 0)
			return r;
		r = next_read(c, ret, err);
	}
	return r;
}

static int wait_for(struct connection *c, short events, struct error *err)
{
	struct pollfd pfd = { .fd = connection_fd(c), .events = events };

	if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
		return error_sys(err, -errno, "wait for", "the daemon");
	return 0;
}

int connection_next(struct connection *c, struct frame *ret, struct error *err)
{
	for (;;) {
		int r = connection_try_next(c, ret, err);

		if (r > 0 && ret->type == FRAME_NOTICE)
			take_notice(c, ret);
		else if (r > 0 && ret->type != FRAME_PONG)
			return 0;
		else if (r == 0)
			r = wait_for(c, POLLIN, err);
		if (r < 0)
			return r;
	}
}

/* ---- sending ---- */

bool connection_is_idle(const struct connection *c)
{
	return c->out_begin == c->out_end;
}

unsigned char *connection_room(struct connection *c)
{
	return c->out + FRAME_HEAD;
}

void connection_put(struct connection *c, enum frame_type type, size_t len)
{
	frame_head(c->out, type, len);
	c->out_begin = 0;
	c->out_end = FRAME_HEAD + len;
}

/* Why it is gone is perhaps on its way to us. */
static int send_failed(struct connection *c, int64_t why, struct error *err)
{
	struct error end = ERROR_INIT;
	struct frame f;
	int r;

	do {
		r = connection_try_next(c, &f, &end);
	} while (r > 0);
	if (c->refused) {
		error_move(err, &end);
		c->ended = true;
		return r;
	}
	error_done(&end);
	return lost(c, why, err);
}

int connection_flush(struct connection *c, struct error *err)
{
	while (!connection_is_idle(c)) {
		int64_t n =
			remote_link_send(c->link, c->out + c->out_begin, c->out_end - c->out_begin);

		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return send_failed(c, n, err);
		c->out_begin += (size_t)n;
	}
	return 0;
}

/* A daemon that gives a step up says so while we still send. */
static int look_back(struct connection *c, struct error *err)
{
	struct frame f;
	int r = 0;

	while (!c->has_held && (r = connection_try_next(c, &f, err)) > 0) {
		if (f.type == FRAME_NOTICE) {
			take_notice(c, &f);
		} else if (f.type != FRAME_PONG) {
			c->held = f;
			c->has_held = true;
		}
	}
	return r < 0 ? r : 0;
}

int connection_drain(struct connection *c, struct error *err)
{
	for (;;) {
		int r = connection_flush(c, err);

		if (r == 0)
			r = look_back(c, err);
		if (r < 0 || connection_is_idle(c))
			return r;
		r = wait_for(c, (short)(POLLOUT | (c->has_held ? 0 : POLLIN)), err);
		if (r < 0)
			return r;
	}
}

int connection_send(struct connection *c, enum frame_type type, const void *data, size_t len,
                    struct error *err)
{
	if (len > 0 && data != connection_room(c))
		memcpy(connection_room(c), data, len);
	connection_put(c, type, len);
	return connection_drain(c, err);
}

int connection_ask(struct connection *c, enum frame_type type, const char *text,
                   enum frame_type answer, struct strbuf *ret, struct error *err)
{
	struct frame f;
	int r = connection_send(c, type, text, strlen(text), err);

	if (r == 0)
		r = connection_next(c, &f, err);
	if (r < 0)
		return r;
	if (f.type != answer)
		return broken(c, "an answer to something else", err);
	if (ret)
		strbuf_add(ret, f.data, f.len);
	return 0;
}

int connection_fd(const struct connection *c)
{
	return remote_link_fd(c->link);
}

/* ---- its life ---- */

int connection_open(struct remote_session *s, void (*notice)(void *user, const char *message),
                    void *user, struct connection **ret, struct error *err)
{
	cleanup_free char *path = xasprintf("/v1/plans/%s/sync", s->row.plan);
	const struct remote_upgrade u = { .path = path,
		                          .protocol = FRAME_SYNC_PROTOCOL,
		                          .deadline = clock_deadline(CONNECT_MS) };
	struct connection *c = xcalloc(1, sizeof(*c));
	int r;

	c->session = s;
	c->suspended_ns = clock_suspended_ns();
	c->doing = "while connecting";
	c->notice = notice;
	c->user = user;
	frame_reader_init(&c->reader, FRAME_OF_SYNC_SERVER);
	r = remote_connect(s->remote, s->row.sandbox, &u, &c->link, err);
	if (r < 0) {
		connection_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void connection_free(struct connection *c)
{
	if (!c)
		return;
	remote_link_close(c->link);
	free(c);
}

void connection_freep(struct connection **c)
{
	connection_free(*c);
}
