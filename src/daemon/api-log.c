/* SPDX-License-Identifier: Apache-2.0 */
/* What happened, and what commands printed. */
#include "daemon/api.h"

#include "daemon/output.h"
#include "util/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_USUAL 100
#define LIMIT_MAX   20000

struct listing {
	struct call *c;
	struct json *j;
	const char *plan; /* NULL: all */
	uint64_t limit;
};

static int put_entry(void *user, const struct atoll_log_entry *e)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "format", "atoll.log/1");
	answer_log_members(j, e);
	json_close(j);
	return 0;
}

static int fill_log(struct json *j, void *arg)
{
	struct listing *l = arg;
	int r;

	answer_begin(j, j->out, "log-list");
	json_open_array(j, "entries");
	r = atoll_log(l->c->atoll, l->plan, l->limit, put_entry, j, l->c->res);
	json_close(j);
	json_close(j);
	return r;
}

/* Newest first. */
static int list(struct call *c)
{
	struct listing l = { .c = c, .limit = LIMIT_USUAL };
	int r = query_number(c, "limit", LIMIT_MAX, &l.limit);

	if (r < 0)
		return r;
	if (l.limit == 0)
		return error_set(&c->err, -ATOLL_E_INVALID, "'limit' is 1 at least");
	if (c->match.n_args > 0)
		l.plan = c->args[0];
	else if (*c->who.plan)
		l.plan = c->who.plan;
	return reply_json(c, 200, fill_log, &l);
}

/* Of a command of that plan, and of no other one. */
static int read_entry(struct call *c, const struct atoll_plan *p, int64_t *ret)
{
	char plan[PLAN_ID_LEN + 1], name[REGISTRY_OUTPUT_LEN];
	char *end;
	int r;

	*ret = strtoll(c->args[1], &end, 10);
	r = *end || *ret <= 0 ? 0 : registry_log_output(c->atoll->reg, *ret, plan, name, &c->err);
	if (r < 0)
		return r;
	if (r == 0 || strcmp(plan, atoll_plan_id(p)) != 0)
		return error_set(&c->err, -ATOLL_E_NOT_FOUND,
		                 "plan '%s' has no command '%s' in its log", atoll_plan_name(p),
		                 c->args[1]);
	return 0;
}

static int64_t read_output(const struct output *o, atoll_output_fn fn, void *user,
                           struct atoll_result *res)
{
	return atoll_log_output(o->atoll, o->entry, fn, user, res);
}

static int output(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct output o = { .read = read_output };
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = read_entry(c, p, &o.entry);
	return r < 0 ? r : output_reply(c, p, &o);
}

const struct route log_routes[] = {
	{ "GET", "/v1/log", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, list },
	{ "GET", "/v1/plans/{plan}/log", MAY_ALL, ROUTE_STORE, 0, list },
	{ "GET", "/v1/plans/{plan}/log/{entry}/output", MAY_ALL, ROUTE_STORE, 0, output },
	{ NULL, NULL, 0, 0, 0, NULL },
};
