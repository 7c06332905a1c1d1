/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: list, start, show, stop; and their sandboxes. */
#include "daemon/api.h"

#include "daemon/once.h"
#include "daemon/mirror.h"
#include "daemon/reply-cache.h"
#include "daemon/start.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- list ---- */

struct listing {
	struct call *c;
	struct json *j;
	const char *only; /* plan id, or NULL: all */
	bool passing;     /* something in it changes without the registry: who lives */
};

static int list_plan(void *user, const struct atoll_plan_info *info)
{
	struct listing *l = user;

	if (l->only && strcmp(l->only, info->id) != 0)
		return 0;
	l->passing |= info->owned || info->in_doubt || info->starting;
	return answer_plan(l->j, info);
}

static int fill_list(struct json *j, void *arg)
{
	struct listing *l = arg;
	int r = call_store(l->c);

	if (r < 0)
		return r;
	l->j = j;
	answer_begin(j, j->out, "list");
	json_bytes(j, "store", stores_home(l->c->d->stores));
	json_open_array(j, "plans");
	r = atoll_plan_list(l->c->atoll, list_plan, l, l->c->res);
	json_close(j);
	json_string(j, "code", atoll_code_name(0));
	json_close(j);
	return r < 0 ? r : l->passing;
}

static int list(struct call *c)
{
	static struct reply_cache cache = { .mutex = PTHREAD_MUTEX_INITIALIZER };
	struct listing l = { .c = c, .only = *c->who.plan ? c->who.plan : NULL };

	return l.only ? reply_json(c, 200, fill_list, &l) : reply_cached(c, &cache, fill_list, &l);
}

/* ---- start ---- */

struct wanted {
	const char *root, *strategy, *parent;
	bool work_in_store;
};

static const struct body_member resource_members[] = {
	BODY_MUST(BODY_TEXT, struct wanted, root),
	BODY_MAY(BODY_TEXT, struct wanted, strategy),
	BODY_MAY(BODY_TEXT, struct wanted, parent),
	BODY_MAY(BODY_BOOL, struct wanted, work_in_store),
	BODY_END,
};

struct start {
	const char *name;
	bool or_open;
	struct body_list resources;
};

static const struct body_member start_members[] = {
	BODY_MAY(BODY_TEXT, struct start, name),
	BODY_MAY(BODY_BOOL, struct start, or_open),
	{ .name = "resources",
	  .kind = BODY_OBJECTS,
	  .offset = offsetof(struct start, resources),
	  .required = true,
	  .of = resource_members,
	  .of_size = sizeof(struct wanted) },
	BODY_END,
};

/* A relative path would be one of the daemon's. What an agent may name the library asks ceiling_resource(). */
static int check_resource(struct call *c, const char *member, const struct wanted *w)
{
	if (*w->root == '/' || strstr(w->root, "://"))
		return 0;
	(void)error_set(&c->err, -ATOLL_E_INVALID,
	                "member '%s': '%s' is no absolute path and no URL", member, w->root);
	return -ATOLL_E_INVALID;
}

static struct atoll_resource to_resource(const struct wanted *w)
{
	return (struct atoll_resource){ .root = w->root,
		                        .strategy = w->strategy,
		                        .parent = w->parent,
		                        .work_in_store = w->work_in_store };
}

static int to_resources(struct call *c, const struct body_list *list, struct atoll_resource **ret)
{
	const struct wanted *w = list->v;
	struct atoll_resource *v = xcalloc(list->n + 1, sizeof(*v));

	for (size_t i = 0; i < list->n; i++) {
		char member[64];
		int r;

		(void)snprintf(member, sizeof(member), "resources[%zu].root", i);
		r = check_resource(c, member, &w[i]);
		if (r < 0) {
			free(v);
			return r;
		}
		v[i] = to_resource(&w[i]);
	}
	*ret = v;
	return 0;
}

static int start_once(struct call *c, struct once *o, struct atoll_start *start,
                      struct atoll_plan **ret)
{
	int r;

	if (!o->given)
		return atoll_plan_start_with(c->atoll, start, ret, c->res);
	r = start_record(c, o, start->name);
	if (r != 0)
		return r < 0 ? r : 2;
	return start_recorded(c, o, start, ret);
}

static int fill_started(struct json *j, void *arg)
{
	const struct api_fill *f = arg;

	answer_begin(j, j->out, "start");
	answer_started(j, f->plan, f->opened);
	answer_notes(j, f->c->res);
	json_close(j);
	return 0;
}

static int reply_started(struct call *c, struct atoll_plan *p, bool opened)
{
	struct api_fill f = { .c = c, .plan = p, .opened = opened };
	char location[64];
	int r = opened ? 0 : start_note(c, p);

	if (r < 0)
		return r;
	(void)snprintf(location, sizeof(location), "/v1/plans/%s", atoll_plan_id(p));
	reply_header(c, "Location", location);
	return reply_json(c, opened ? 200 : 201, fill_started, &f);
}

/* The plan that an earlier try made. */
static int reply_again(struct call *c, const struct once *o)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct error err = ERROR_INIT;

	reply_header(c, "Idempotency-Replayed", "true");
	if (atoll_plan_find(c->atoll, o->row.plan, &p, c->res) >= 0)
		return reply_started(c, p, !*o->row.name);
	(void)error_set(&err, -ATOLL_E_NOT_FOUND, "plan '%s', which this request made, is gone",
	                o->row.plan);
	return reply_error_as(c, 410, &err);
}

/* To a plan that is there, which may be another's, an agent's key adds nothing. */
static unsigned open_flags(const struct call *c)
{
	return ATOLL_START_OR_OPEN | (c->who.scope == SCOPE_AGENT ? ATOLL_START_AS_IS : 0);
}

static int start(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	cleanup_free struct atoll_resource *resources = NULL;
	struct start want = { 0 };
	struct atoll_start how = { 0 };
	int r = body_read(c, &b, start_members, &want);

	if (r == 0)
		r = to_resources(c, &want.resources, &resources);
	if (r == 0)
		r = once_begin(c, &o, REQUEST_PLAN);
	if (r != 0)
		return r < 0 ? r : 0;
	if (o.again && o.row.made)
		return reply_again(c, &o);
	api_settle(c, NULL);
	how = (struct atoll_start){ .name = want.name,
		                    .flags = want.or_open ? open_flags(c) : 0,
		                    .resources = resources,
		                    .n_resources = want.resources.n };
	r = start_once(c, &o, &how, &p);
	if (r < 0 || r == 2)
		return r < 0 ? r : 0;
	return reply_started(c, p, r == 1);
}

/* ---- one of them ---- */

static int fill_show(struct json *j, void *arg)
{
	const struct api_fill *f = arg;
	int r;

	answer_begin(j, j->out, "show");
	r = answer_show(j, f->plan, f->c->res);
	json_close(j);
	return r;
}

/* With what FILL has to say of the plan. */
static int reply_plan(struct call *c, reply_fill_fn fill)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct api_fill f = { .c = c };
	int r = call_plan(c, 0, &p);

	f.plan = p;
	return r < 0 ? r : reply_json(c, 200, fill, &f);
}

static int show(struct call *c)
{
	return reply_plan(c, fill_show);
}

static int stop(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	bool force = false;
	int r = query_bool(c, "force", &force);

	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = atoll_plan_stop(p, force ? ATOLL_FORCE : 0, c->res);
	if (r == 0)
		r = mirror_remove(c->atoll, atoll_plan_id(p), &c->err);
	return r < 0 ? r : api_decided(c, p, "stop", 0);
}

/* ---- sandboxes ---- */

static int fill_sandboxes(struct json *j, void *arg)
{
	const struct api_fill *f = arg;
	int r;

	answer_begin(j, j->out, "sandboxes");
	answer_plan_of(j, f->plan);
	json_open_array(j, "sandboxes");
	r = atoll_plan_sandboxes(f->plan, answer_sandbox, j, f->c->res);
	json_close(j);
	json_close(j);
	return r;
}

static int sandboxes(struct call *c)
{
	return reply_plan(c, fill_sandboxes);
}

/* Is the resource in the plan already? Then an earlier try of this request added it. */
static int find_root(void *user, const struct atoll_sandbox_info *info)
{
	const char **root = user;

	if (*root && strcmp(*root, info->root) == 0)
		*root = NULL;
	return 0;
}

static int add_once(struct call *c, struct once *o, struct atoll_plan *p, const struct wanted *w)
{
	struct atoll_resource resource = to_resource(w);
	cleanup_free char *real = *w->root == '/' ? realpath(w->root, NULL) : NULL;
	const char *root = real ? real : w->root;
	int r;

	(void)snprintf(o->row.plan, sizeof(o->row.plan), "%s", atoll_plan_id(p));
	r = once_record(c, o);
	if (r != 0)
		return r;
	if (o->again)
		(void)atoll_plan_sandboxes(p, find_root, &root, NULL);
	r = root ? atoll_plan_add(p, &resource, c->res) : 0;
	if (r < 0 && r != -ATOLL_E_NEEDS_RECOVERY)
		once_failed(c, o);
	return r < 0 ? r : once_made(c, o);
}

static int add(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct wanted w = { 0 };
	struct api_fill f = { .c = c };
	int r = api_bound(c);

	if (r == 0)
		r = body_read(c, &b, resource_members, &w);
	if (r == 0)
		r = check_resource(c, "root", &w);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = once_begin(c, &o, REQUEST_SANDBOX);
	if (r == 0)
		r = o.given && o.again && o.row.made ? 0 : add_once(c, &o, p, &w);
	if (r != 0)
		return r < 0 ? r : 0;
	f.plan = p;
	return reply_json(c, 201, fill_sandboxes, &f);
}

const struct route plan_routes[] = {
	{ "GET", "/v1/plans", MAY_ALL, ROUTE_FILTERS, 0, list },
	{ "POST", "/v1/plans", MAY_AGENT, ROUTE_STORE | ROUTE_CREATES, KIB(1024), start },
	{ "GET", "/v1/plans/{plan}", MAY_ALL, ROUTE_STORE, 0, show },
	{ "DELETE", "/v1/plans/{plan}", MAY_ADMIN, ROUTE_STORE, 0, stop },
	{ "GET", "/v1/plans/{plan}/sandboxes", MAY_ALL, ROUTE_STORE, 0, sandboxes },
	{ "POST", "/v1/plans/{plan}/sandboxes", MAY_AGENT, ROUTE_STORE | ROUTE_CREATES, KIB(64),
	  add },
	{ NULL, NULL, 0, 0, 0, NULL },
};
