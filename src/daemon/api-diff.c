/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The diff: as JSON, as a patch or as a list with counts. It is written as it is found, so its length
 * does not matter. Its digest, which is the ETag, is made before: what is shown may be newer, and a
 * commit of that digest is refused then.
 */
#include "daemon/api.h"

#include "answer/diff-view.h"
#include "daemon/feed.h"
#include "diff/change.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/uri.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_MAX 1000000

/* A plan's work is whatever its commands made: neither its contents nor their number say how long an answer takes, and
 * how much memory. */
static const struct diff_limits limits = {
	.file = 4u << 20,
	.lines = 64u << 10,
	.bytes = 64u << 20,
	.ms = 10000,
};

/* A diff on its way, with a store of its own: it outlives its request. */
struct showing {
	struct stores *stores;
	struct atoll *atoll;
	struct atoll_plan *plan;
	struct atoll_result *res;
	struct diff_view view;
	char *after;
	int code;
};

/* ---- what is asked for ---- */

static const struct {
	const char *word;
	enum diff_form form;
	const char *type; /* NULL: JSON */
} formats[] = {
	{ "json", DIFF_NAMES, NULL },
	{ "patch", DIFF_PATCH, "text/x-diff; charset=utf-8" },
	{ "stat", DIFF_STAT, "text/plain; charset=utf-8" },
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

static int read_format(struct call *c, size_t *ret)
{
	cleanup_free char *text = NULL;
	int r = call_query(c, "format", &text);

	*ret = 0;
	if (r < 0 || !text)
		return r;
	while (*ret < N_FORMATS && strcmp(formats[*ret].word, text) != 0)
		(*ret)++;
	return *ret < N_FORMATS
	               ? 0
	               : error_set(&c->err, -ATOLL_E_INVALID, "'format' is json, patch or stat");
}

/* Of JSON: what is compared, and so said of each change. */
static int read_detail(struct call *c, struct diff_view *v)
{
	cleanup_free char *text = NULL;
	int r = call_query(c, "detail", &text);

	if (r < 0 || !text)
		return r;
	if (!v->as_json)
		return error_set(&c->err, -ATOLL_E_INVALID, "'detail' is for JSON");
	if (strcmp(text, "lines") == 0)
		v->form = DIFF_STAT;
	else if (strcmp(text, "patch") == 0)
		v->form = DIFF_PATCH;
	else if (strcmp(text, "none") != 0)
		return error_set(&c->err, -ATOLL_E_INVALID, "'detail' is none, lines or patch");
	return 0;
}

/* Every NAME of the query, decoded. */
static int each_query(struct call *c, const char *name,
                      int (*fn)(struct call *c, struct diff_select *s, const char *value),
                      struct diff_select *s)
{
	size_t name_len = strlen(name);

	for (const char *p = c->query; p && *p; p += *p == '&') {
		size_t len = strcspn(p, "&");
		cleanup_free char *value = NULL;
		int r;

		if (len > name_len && p[name_len] == '=' && memcmp(p, name, name_len) == 0) {
			value = uri_decode(p + name_len + 1, len - name_len - 1);
			if (!value)
				return error_set(&c->err, -ATOLL_E_INVALID,
				                 "the value of '%s' is not well encoded", name);
			r = fn(c, s, value);
			if (r < 0)
				return r;
		}
		p += len;
	}
	return 0;
}

static int add_path(struct call *c, struct diff_select *s, const char *path)
{
	if (*path != '/')
		return error_set(&c->err, -ATOLL_E_INVALID, "'path' is to be an absolute path");
	strlist_add(&s->paths, path);
	s->is_narrowed = true;
	return 0;
}

static int add_exclude(struct call *c, struct diff_select *s, const char *pattern)
{
	return diff_select_exclude(s, pattern, &c->err);
}

static int read_view(struct call *c, struct showing *s)
{
	struct diff_view *v = &s->view;
	uint64_t context = DIFF_CONTEXT;
	int r = read_detail(c, v);

	if (r == 0)
		r = query_number(c, "context", CONTEXT_MAX, &context);
	if (r == 0)
		r = query_number(c, "limit", INT64_MAX, &v->limit);
	if (r == 0)
		r = call_query(c, "after", &s->after);
	if (r == 0)
		r = query_bool(c, "conflicts", &v->select.conflicts_only);
	if (r == 0)
		r = each_query(c, "path", add_path, &v->select);
	if (r == 0)
		r = each_query(c, "exclude", add_exclude, &v->select);
	if (r == 0 && (v->limit || s->after) && !v->as_json)
		r = error_set(&c->err, -ATOLL_E_INVALID, "'limit' and 'after' are for JSON");
	v->context = (unsigned)context;
	v->after = s->after;
	return r;
}

/* ---- showing ---- */

static void showing_done(void *arg)
{
	struct showing *s = arg;

	diff_view_done(&s->view);
	atoll_plan_free(s->plan);
	atoll_result_free(s->res);
	if (s->atoll)
		stores_give(s->stores, s->atoll);
	free(s->after);
	free(s);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* Once JSON has begun its end says what became of it. */
static int end_json(struct showing *s, int code)
{
	struct diff_view *v = &s->view;
	bool ours = v->err.code != 0;

	if (code < 0 && !v->json_begun)
		return code;
	diff_json_end(v, code, ours ? v->err.msg : atoll_result_message(s->res),
	              or_empty(ours ? v->err.hint : atoll_result_hint(s->res)));
	return 0;
}

static int write_diff(void *arg, FILE *out)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct showing *s = arg;
	int64_t n;

	s->view.out = out;
	n = diff_show(&s->view);
	if (s->view.as_json)
		return end_json(s, n < 0 ? (int)n : 0);
	if (n >= 0 && s->view.form == DIFF_STAT && s->view.totals.all > 0) {
		diff_summary(&sb, &s->view.totals);
		(void)fprintf(out, "%s\n", strbuf_str(&sb));
	}
	return n < 0 ? (int)n : 0;
}

static void diff_failed(void *arg, struct call *c)
{
	struct showing *s = arg;
	struct atoll_result *res = c->res;

	if (s->view.err.code) {
		error_move(&c->err, &s->view.err);
		return;
	}
	c->res = s->res;
	s->res = res;
}

static int start_showing(struct call *c, struct showing *s)
{
	cleanup_plan struct atoll_plan *p = NULL;
	char digest[ATOLL_DIGEST_LEN], etag[ATOLL_DIGEST_LEN + 2];
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = stores_take(c->d->stores, c->d->options.wait_ms, &s->atoll, &c->err);
	if (r == 0)
		r = atoll_plan_find(s->atoll, atoll_plan_id(p), &s->plan, c->res);
	if (r < 0)
		return r;
	/* Without one where it is written to right now: then it can be looked at, not committed. */
	if (atoll_plan_digest(p, digest, NULL) >= 0) {
		(void)snprintf(etag, sizeof(etag), "\"%s\"", digest);
		reply_header(c, "ETag", etag);
		(void)snprintf(s->view.digest, sizeof(s->view.digest), "%s", digest);
	}
	s->view.plan = s->plan;
	return 0;
}

static int diff(struct call *c)
{
	struct showing *s = xcalloc(1, sizeof(*s));
	struct feed_source source = { .write = write_diff,
		                      .failed = diff_failed,
		                      .done = showing_done,
		                      .arg = s };
	size_t format;
	int r = read_format(c, &format);

	s->stores = c->d->stores;
	s->res = atoll_result_new();
	diff_view_init(&s->view, NULL, NULL);
	s->view.res = s->res;
	s->view.gives_up = true;
	s->view.limits = limits;
	if (r == 0) {
		s->view.as_json = !formats[format].type;
		s->view.form = formats[format].form;
		r = read_view(c, s);
	}
	if (r == 0)
		r = start_showing(c, s);
	if (r < 0) {
		showing_done(s);
		return r;
	}
	source.type = formats[format].type ? formats[format].type : "application/json";
	return feed_reply(c, &source);
}

const struct route diff_routes[] = {
	{ "GET", "/v1/plans/{plan}/diff", MAY_ALL, ROUTE_STORE, 0, diff },
	{ NULL, NULL, 0, 0, 0, NULL },
};
