/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events: GET /v1/events. Each event of the store is one of the stream, `id` is its number, so
 * that a client that comes back with Last-Event-ID goes on where it was, also to another daemon of the
 * store, or after its end. Without that, or ?after=, it begins now.
 *
 * A bearer bound to a plan is told of this plan only. Every HEARTBEAT_MS without an event a comment goes
 * out, with the number up to which nothing was of interest. The stream ends when the daemon stops, and
 * when the credential is revoked or over.
 */
#include "daemon/api.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define HEARTBEAT_MS 15000
#define RETRY_MS     1000 /* after which a client comes back */
#define AT_ONCE      64   /* events read from the store for a stream that is behind */
#define BUFFER_BYTES (16u << 10)

struct stream {
	struct daemon *d;
	struct identity who;
	int peer_fd, stop_fd;
	struct watcher *watcher;
	struct watch_place place;
	char plan[PLAN_ID_LEN + 1];
	struct strbuf out; /* from `sent` on it is to be sent */
	size_t sent;
	int64_t heartbeat; /* deadline */
};

/* ---- reading ---- */

static int take_event(void *user, const struct atoll_news *n)
{
	struct stream *s = user;

	watch_append(&s->place, n, &s->out);
	return 0;
}

/* 1: there may be more in the store. */
static int read_store(struct stream *s)
{
	cleanup_error struct error err = ERROR_INIT;
	struct atoll *a = NULL;
	int64_t before = s->place.at, r;

	r = stores_take(s->d->stores, 0, &a, &err);
	if (r < 0)
		return (int)r;
	r = atoll_events(a, before, AT_ONCE, take_event, s, NULL);
	stores_give(s->d->stores, a);
	return r < 0 ? (int)r : s->place.at != before;
}

/* Fills `out` with whatever there is. */
static int refill(struct stream *s)
{
	int r = 1;

	strbuf_truncate(&s->out, 0);
	s->sent = 0;
	while (r > 0 && s->out.len == 0) {
		if (watch_take(s->d->watch, s->watcher, &s->place, BUFFER_BYTES, &s->out) > 0)
			return 0;
		r = read_store(s);
	}
	return r;
}

enum happened { HAPPENED_SOMETHING = 0, HAPPENED_NOTHING, HAPPENED_END, HAPPENED_GONE };

static enum happened wait_for_more(const struct stream *s)
{
	struct pollfd fds[] = { { .fd = watcher_fd(s->watcher), .events = POLLIN },
		                { .fd = s->peer_fd, .events = POLLRDHUP },
		                { .fd = s->stop_fd, .events = POLLIN } };
	int n = poll(fds, 3, clock_left_ms(s->heartbeat));

	if (fds[2].revents)
		return HAPPENED_END;
	if (fds[1].revents)
		return HAPPENED_GONE;
	return n == 0 ? HAPPENED_NOTHING : HAPPENED_SOMETHING;
}

/* Until there is something to send. 0; 1: the stream ends; negative: it breaks off. */
static int gather(struct stream *s)
{
	enum happened now = HAPPENED_SOMETHING;
	int r;

	for (;;) {
		if (!auth_holds(s->d->auth, &s->who))
			return 1;
		r = refill(s);
		if (r < 0)
			return r;
		if (s->out.len == 0 && now == HAPPENED_NOTHING)
			strbuf_printf(&s->out, "id: %lld\n: still here\n\n",
			              (long long)s->place.at);
		if (s->out.len > 0)
			break;
		now = wait_for_more(s);
		if (now == HAPPENED_END || now == HAPPENED_GONE)
			return now == HAPPENED_END ? 1 : -EPIPE;
	}
	s->heartbeat = clock_deadline(HEARTBEAT_MS);
	return 0;
}

static ssize_t read_stream(void *arg, char *buf, size_t size)
{
	struct stream *s = arg;
	size_t n;
	int r = s->sent == s->out.len ? gather(s) : 0;

	if (r != 0)
		return r < 0 ? -1 : 0;
	n = s->out.len - s->sent;
	n = n < size ? n : size;
	memcpy(buf, s->out.buf + s->sent, n);
	s->sent += n;
	return (ssize_t)n;
}

static void stream_free(void *arg)
{
	struct stream *s = arg;

	if (s->watcher)
		watch_leave(s->d->watch, s->watcher);
	strbuf_done(&s->out);
	free(s);
}

/* ---- asking ---- */

/* The plan of which alone is to be told. */
static int read_plan(struct call *c, struct atoll *a, struct stream *s)
{
	cleanup_free char *ref = NULL;
	cleanup_plan struct atoll_plan *p = NULL;
	int r = call_query(c, "plan", &ref);

	if (r >= 0 && ref)
		r = plan_open(a, ref, &p, &c->err);
	if (r < 0)
		return r;
	if (*c->who.plan && p && strcmp(c->who.plan, atoll_plan_id(p)) != 0)
		return error_set(&c->err, -ATOLL_E_DENIED,
		                 "this token is for plan %s, and nothing else", c->who.plan);
	(void)snprintf(s->plan, sizeof(s->plan), "%s", p ? atoll_plan_id(p) : c->who.plan);
	s->place.plan = s->plan;
	return 0;
}

static int read_number(struct call *c, const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "'after' and Last-Event-ID are numbers of events");
	return 0;
}

/* A client that comes back says the same words as at first, and Last-Event-ID besides. */
static int read_place(struct call *c, struct atoll *a, struct stream *s)
{
	cleanup_free char *after = NULL;
	const char *last = call_header(c, "Last-Event-ID");
	int64_t newest;
	int r = call_query(c, "after", &after);

	if (r < 0)
		return r;
	if (last || after)
		return read_number(c, last ? last : after, &s->place.at);
	newest = atoll_events(a, -1, 0, NULL, NULL, NULL);
	if (newest < 0)
		return error_set(&c->err, (int)newest, "the events cannot be read");
	s->place.at = newest;
	return 0;
}

static int open_stream(struct call *c, struct stream *s)
{
	struct atoll *a = NULL;
	int r = stores_take(c->d->stores, 0, &a, &c->err);

	if (r < 0)
		return r;
	r = read_plan(c, a, s);
	if (r >= 0)
		r = watch_join(c->d->watch, &s->watcher, &c->err);
	if (r >= 0)
		r = read_place(c, a, s);
	stores_give(c->d->stores, a);
	return r;
}

static int events(struct call *c)
{
	struct stream *s = xcalloc(1, sizeof(*s));
	int r;

	*s = (struct stream){ .d = c->d,
		              .who = c->who,
		              .peer_fd = call_fd(c),
		              .stop_fd = call_stop_fd(c),
		              .heartbeat = clock_deadline(HEARTBEAT_MS) };
	r = open_stream(c, s);
	if (r < 0) {
		stream_free(s);
		return r;
	}
	/* Something goes out at once: the client knows that it is heard. */
	strbuf_printf(&s->out, "retry: %d\nid: %lld\n: from here on\n\n", RETRY_MS,
	              (long long)s->place.at);
	return reply_stream(c, 200,
	                    &(struct reply_stream){ .type = "text/event-stream",
	                                            .read = read_stream,
	                                            .done = stream_free,
	                                            .arg = s });
}

const struct route event_routes[] = {
	{ "GET", "/v1/events", MAY_ALL, ROUTE_STREAM | ROUTE_FILTERS, 0, events },
	{ NULL, NULL, 0, 0, 0, NULL },
};
