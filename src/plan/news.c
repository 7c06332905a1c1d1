/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/news.h"

#include <errno.h>
#include <poll.h>

#include "registry/news.h"
#include "util/cleanup.h"
#include "util/clock.h"

/* Whatever wakes nobody is noticed then: somebody who writes to the registry and knows no locks. */
#define LOOK_EVERY_MS 10000

/* ---- telling ---- */

struct telling {
	atoll_news_fn fn;
	void *user;
	int64_t last;
};

static int tell(void *ctx, const struct news_row *row)
{
	struct telling *t = ctx;
	const struct atoll_news n = { .seq = row->seq,
		                      .at_ms = row->at_ms,
		                      .plan_id = row->plan,
		                      .plan_name = row->name,
		                      .what = row->what,
		                      .code = row->code,
		                      .message = row->message,
		                      .state = row->state,
		                      .sandbox = row->sandbox,
		                      .sandbox_state = row->sandbox_state };
	int r = t->fn(t->user, &n);

	if (r >= 0)
		t->last = row->seq;
	return r;
}

/* Nobody knows what there was up to SEQ. */
static int tell_gap(struct telling *t, int64_t seq)
{
	const struct atoll_news n = { .seq = seq,
		                      .at_ms = clock_real_ms(),
		                      .plan_id = "",
		                      .plan_name = "",
		                      .what = "gap",
		                      .message =
		                              "what happened before is not kept any more: look at "
		                              "the plans anew",
		                      .sandbox = "" };
	int r = t->fn(t->user, &n);

	if (r >= 0)
		t->last = seq;
	return r;
}

struct held {
	struct telling *t;
	const struct news_bounds *bounds;
	int64_t after;
	bool told;
};

/* The gap before the first row, if there is one. */
static int tell_held(void *ctx, const struct news_row *row)
{
	struct held *h = ctx;
	int r = 0;

	if (!h->told && h->bounds->let_go > h->after)
		r = tell_gap(h->t, h->bounds->let_go);
	h->told = true;
	return r < 0 ? r : tell(h->t, row);
}

int64_t news_tell(struct atoll *a, int64_t after, size_t limit, atoll_news_fn fn, void *user,
                  struct error *err)
{
	struct telling t = { .fn = fn, .user = user, .last = after };
	struct news_bounds bounds = { 0 };
	struct held h = { .t = &t, .bounds = &bounds, .after = after };
	int64_t most = limit == 0 || limit > INT64_MAX ? INT64_MAX : (int64_t)limit;
	int r;

	if (after < 0) {
		r = registry_news_newest(a->reg, &t.last, err);
		return r < 0 ? r : t.last;
	}
	r = registry_news_list(a->reg, after, most, tell_held, &h, &bounds, err);
	if (r < 0 || bounds.newest >= after)
		return r < 0 ? r : t.last;
	/* A number from before the machine went down, or of another store. */
	r = tell_gap(&t, 0);
	h = (struct held){ .t = &t, .bounds = &bounds, .told = true };
	if (r >= 0)
		r = registry_news_list(a->reg, 0, most, tell_held, &h, &bounds, err);
	return r < 0 ? r : t.last;
}

/* ---- waiting ---- */

int news_fd(struct atoll *a, struct error *err)
{
	int fd, r = 0;

	pthread_mutex_lock(&a->mutex);
	if (a->news_fd < 0)
		r = registry_news_watch(a->reg, &a->news_fd, err);
	fd = a->news_fd;
	pthread_mutex_unlock(&a->mutex);
	return r < 0 ? r : fd;
}

int news_wait(struct atoll *a, int64_t after, int64_t timeout_ms, struct error *err)
{
	int64_t deadline = clock_deadline(timeout_ms);
	int fd = news_fd(a, err);

	if (fd < 0)
		return fd;
	for (;;) {
		struct pollfd pfd = { .fd = fd, .events = POLLIN };
		int64_t newest = 0;
		int left, r;

		registry_news_seen(fd);
		r = registry_news_newest(a->reg, &newest, err);
		if (r < 0 || newest != after)
			return r < 0 ? r : 1;
		left = clock_left_ms(deadline);
		if (left == 0)
			return 0;
		(void)poll(&pfd, 1, left < 0 || left > LOOK_EVERY_MS ? LOOK_EVERY_MS : left);
	}
}

/* ---- as JSON ---- */

void news_json(struct json *j, const struct atoll_news *n)
{
	char at[CLOCK_TEXT_LEN];

	clock_format(n->at_ms, at);
	json_open_object(j, NULL);
	json_string(j, "format", "atoll.event/1");
	json_int(j, "seq", n->seq);
	json_string(j, "at", at);
	json_string(j, "what", n->what);
	if (*n->plan_id) {
		json_open_object(j, "plan");
		json_string(j, "id", n->plan_id);
		json_string(j, "name", *n->plan_name ? n->plan_name : NULL);
		json_string(j, "state", atoll_plan_state_name(n->state));
		json_close(j);
	} else {
		json_null(j, "plan");
	}
	if (*n->sandbox) {
		json_open_object(j, "sandbox");
		json_string(j, "id", n->sandbox);
		json_string(j, "state", atoll_sandbox_state_name(n->sandbox_state));
		json_close(j);
	} else {
		json_null(j, "sandbox");
	}
	json_string(j, "code", atoll_code_name(n->code));
	json_string(j, "message", n->message);
	json_close(j);
}
