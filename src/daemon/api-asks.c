/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for a commit: by whoever works in a plan, for whoever may decide. */
#include "daemon/api.h"

#include "daemon/once.h"
#include "plan/ask.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 4096

static void put_time(struct json *j, const char *key, int64_t ms)
{
	char text[CLOCK_TEXT_LEN];

	clock_format(ms, text);
	json_string(j, key, ms ? text : NULL);
}

static void put_ask(struct json *j, const struct ask_row *row, const char *plan_name)
{
	json_int(j, "id", row->id);
	answer_plan_ref(j, row->plan, plan_name);
	json_string(j, "by", row->who);
	json_string(j, "message", row->message);
	json_string(j, "digest", row->digest);
	json_string(j, "state", ask_state_name(row->state));
	put_time(j, "at", row->at_ms);
	put_time(j, "ended", row->ended_ms);
	json_string(j, "ended_by", *row->ended_by ? row->ended_by : NULL);
}

/* ---- what is open is looked at again ---- */

struct open_asks {
	struct atoll *a;
	const char *plan; /* NULL: of all */
	struct ask_row *v;
	size_t n, cap;
};

static int note_open(void *ctx, const struct ask_row *row)
{
	struct open_asks *l = ctx;

	if (grow((void **)&l->v, &l->cap, l->n + 1, sizeof(*l->v)) < 0)
		return -ENOMEM;
	l->v[l->n] = *row;
	l->v[l->n++].message = NULL; /* the list's */
	return 0;
}

/* One whose digest is not the plan's any more is over. What cannot be told, as somebody is writing just
 * now, stays. */
static void check_open(struct call *c, const struct ask_row *row)
{
	cleanup_plan struct atoll_plan *p = NULL;
	char digest[ATOLL_DIGEST_LEN];

	if (atoll_plan_find(c->atoll, row->plan, &p, NULL) < 0 ||
	    atoll_plan_digest(p, digest, NULL) < 0 || strcmp(digest, row->digest) == 0)
		return;
	(void)plan_ask_end(p, row->id, ASK_CHANGED, "", NULL);
}

static int settle_asks(struct call *c, const char *plan)
{
	struct open_asks l = { .a = c->atoll, .plan = plan };
	int r = plan_ask_list(c->atoll, plan, true, note_open, &l, &c->err);

	for (size_t i = 0; r >= 0 && i < l.n; i++)
		check_open(c, &l.v[i]);
	free(l.v);
	return r;
}

/* ---- list ---- */

struct listing {
	struct call *c;
	struct json *j;
	const char *plan; /* id; NULL: of all */
	bool open_only;
};

static int list_ask(void *ctx, const struct ask_row *row)
{
	struct listing *l = ctx;
	struct plan_row plan;

	if (registry_plan_get(l->c->atoll->reg, row->plan, &plan, NULL) < 0)
		return 0; /* stopped since */
	json_open_object(l->j, NULL);
	put_ask(l->j, row, plan.name);
	json_close(l->j);
	return 0;
}

static int fill_list(struct json *j, void *arg)
{
	struct listing *l = arg;
	int r;

	l->j = j;
	answer_begin(j, j->out, "asks");
	json_open_array(j, "asks");
	r = plan_ask_list(l->c->atoll, l->plan, l->open_only, list_ask, l, &l->c->err);
	json_close(j);
	json_close(j);
	return r;
}

/* Of one plan all of them, of all plans those that are open. */
static int list(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct listing l = { .c = c, .open_only = c->match.n_args == 0 };
	int r = c->match.n_args > 0 ? call_plan(c, 0, &p) : 0;

	if (r < 0)
		return r;
	l.plan = p ? atoll_plan_id(p) : *c->who.plan ? c->who.plan : NULL;
	r = settle_asks(c, l.plan);
	return r < 0 ? r : reply_json(c, 200, fill_list, &l);
}

/* ---- ask ---- */

struct wanted {
	const char *message, *digest;
};

static const struct body_member ask_members[] = {
	BODY_MUST(BODY_TEXT, struct wanted, message),
	BODY_MUST(BODY_TEXT, struct wanted, digest),
	BODY_END,
};

static int check_wanted(struct call *c, const struct wanted *w)
{
	if (strlen(w->message) > MESSAGE_MAX)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "member 'message' is longer than %d bytes", MESSAGE_MAX);
	if (strlen(w->digest) != ATOLL_DIGEST_LEN - 1 ||
	    strspn(w->digest, "0123456789abcdef") != ATOLL_DIGEST_LEN - 1)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "member 'digest' is to be what the diff's ETag says");
	return 0;
}

struct asked {
	const struct ask_row *row;
	const char *plan_name;
};

static int fill_asked(struct json *j, void *arg)
{
	const struct asked *f = arg;

	answer_begin(j, j->out, "ask");
	put_ask(j, f->row, f->plan_name);
	json_close(j);
	return 0;
}

/* The work is still what was looked at. */
static int check_digest(struct call *c, struct atoll_plan *p, const char *wanted)
{
	char digest[ATOLL_DIGEST_LEN];
	int r = atoll_plan_digest(p, digest, c->res);

	if (r < 0 || strcmp(digest, wanted) == 0)
		return r;
	(void)error_set(&c->err, -ATOLL_E_STALE, "the work of plan '%s' is not of that digest",
	                atoll_plan_name(p));
	error_hint(&c->err, "GET /v1/plans/%s/diff says what it is now", atoll_plan_id(p));
	return -ATOLL_E_STALE;
}

static int find_ask(void *ctx, const struct ask_row *row)
{
	struct ask_row *want = ctx;

	if (row->id != want->id)
		return 0;
	free(want->message);
	*want = *row;
	want->message = xstrdup(row->message);
	return 0;
}

static int make_ask(struct call *c, struct once *o, struct atoll_plan *p, const struct wanted *w,
                    struct ask_row *row)
{
	int r;

	if (o->given && o->again) {
		row->id = strtoll(o->row.name, NULL, 10);
		return plan_ask_list(c->atoll, atoll_plan_id(p), false, find_ask, row, &c->err);
	}
	r = check_digest(c, p, w->digest);
	if (r < 0)
		return r;
	(void)snprintf(row->who, sizeof(row->who), "%s", c->who.name);
	(void)snprintf(row->digest, sizeof(row->digest), "%s", w->digest);
	(void)snprintf(o->row.plan, sizeof(o->row.plan), "%s", atoll_plan_id(p));
	o->row.created_ms = clock_real_ms();
	row->message = xstrdup(w->message);
	return plan_ask(p, row, o->given ? &o->row : NULL, &c->err);
}

static int ask(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct ask_row row = { 0 };
	struct asked f = { .row = &row };
	struct wanted w = { 0 };
	int r = api_bound(c);

	if (r == 0)
		r = body_read(c, &b, ask_members, &w);
	if (r == 0)
		r = check_wanted(c, &w);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = once_begin(c, &o, REQUEST_ASK);
	if (r == 0)
		r = make_ask(c, &o, p, &w, &row);
	if (r == 0) {
		f.plan_name = atoll_plan_name(p);
		r = reply_json(c, 201, fill_asked, &f);
	}
	free(row.message);
	return r < 0 ? r : 0;
}

/* ---- withdraw, or decline ---- */

static int end(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	bool reviews = c->who.scope == SCOPE_REVIEW;
	char *rest;
	int64_t id = strtoll(c->args[1], &rest, 10);
	int r = api_bound(c);

	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = *rest || id <= 0 ? 0
		                     : plan_ask_end(p, id, reviews ? ASK_DECLINED : ASK_WITHDRAWN,
		                                    c->who.name, &c->err);
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(&c->err, -ATOLL_E_NOT_FOUND, "plan '%s' has no open ask '%s'",
		                 atoll_plan_name(p), c->args[1]);
	return reply_empty(c, 204);
}

const struct route ask_routes[] = {
	{ "GET", "/v1/asks", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, list },
	{ "GET", "/v1/plans/{plan}/asks", MAY_ALL, ROUTE_STORE, 0, list },
	{ "POST", "/v1/plans/{plan}/asks", MAY_AGENT, ROUTE_STORE | ROUTE_CREATES, KIB(16), ask },
	{ "DELETE", "/v1/plans/{plan}/asks/{ask}", MAY_AGENT | MAY_REVIEW, ROUTE_STORE, 0, end },
	{ NULL, NULL, 0, 0, 0, NULL },
};
