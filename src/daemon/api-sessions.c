/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of remote clients: plans over a mirror (mirror.h). */
#include "daemon/api.h"

#include "daemon/mirror.h"
#include "daemon/once.h"
#include "daemon/start.h"
#include "daemon/sync-stream.h"
#include "registry/credential.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_MAX 1024

/* ---- what is told of one ---- */

struct telling {
	struct call *c;
	struct json *j;
	const char *only; /* plan id, or NULL: all */
};

static int take_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	char **id = user;

	if (!*id)
		*id = xstrdup(info->id);
	return 0;
}

static int put_session(struct call *c, struct json *j, const struct mirror *m)
{
	cleanup_plan struct atoll_plan *p = NULL;
	cleanup_free char *sandbox = NULL;
	uint64_t generation = 0;
	int r = atoll_plan_find(c->atoll, m->plan, &p, c->res);

	if (r >= 0)
		r = atoll_plan_sandboxes(p, take_sandbox, &sandbox, c->res);
	if (r >= 0)
		r = mirror_generation(c->atoll, m, &generation, &c->err);
	if (r < 0)
		return r;
	answer_plan_of(j, p);
	json_string(j, "sandbox", sandbox);
	json_bytes(j, "root", m->root);
	json_string(j, "label", m->label);
	json_uint(j, "generation", generation);
	json_uint(j, "run", m->run);
	return 0;
}

static int fill_one(struct json *j, void *arg)
{
	const struct telling *t = arg;
	cleanup_mirror struct mirror m = MIRROR_INIT;
	int r = mirror_load(t->c->atoll, t->only, &m, &t->c->err);

	answer_begin(j, j->out, "session");
	if (r == 0)
		r = put_session(t->c, j, &m);
	json_close(j);
	return r;
}

static int list_one(void *user, const struct mirror *m)
{
	const struct telling *t = user;
	int r;

	if (t->only && strcmp(t->only, m->plan) != 0)
		return 0;
	json_open_object(t->j, NULL);
	r = put_session(t->c, t->j, m);
	json_close(t->j);
	return r;
}

static int fill_list(struct json *j, void *arg)
{
	struct telling *t = arg;
	int r;

	t->j = j;
	answer_begin(j, j->out, "sessions");
	json_open_array(j, "sessions");
	r = mirrors_list(t->c->atoll, list_one, t, &t->c->err);
	json_close(j);
	json_close(j);
	return r;
}

static int list(struct call *c)
{
	struct telling t = { .c = c, .only = *c->who.plan ? c->who.plan : NULL };

	return reply_json(c, 200, fill_list, &t);
}

static int show(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct telling t = { .c = c };
	int r = call_plan(c, 0, &p);

	if (r < 0)
		return r;
	t.only = atoll_plan_id(p);
	return reply_json(c, 200, fill_one, &t);
}

/* ---- making one ---- */

struct wanted {
	const char *label, *name;
};

static const struct body_member members[] = {
	BODY_MUST(BODY_TEXT, struct wanted, label),
	BODY_MAY(BODY_TEXT, struct wanted, name),
	BODY_END,
};

static int reply_made(struct call *c, struct atoll_plan *p)
{
	struct telling t = { .c = c, .only = atoll_plan_id(p) };
	cleanup_free char *location = xasprintf("/v1/sessions/%s", t.only);

	reply_header(c, "Location", location);
	return reply_json(c, 201, fill_one, &t);
}

static int reply_again(struct call *c, const struct once *o)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct error err = ERROR_INIT;

	reply_header(c, "Idempotency-Replayed", "true");
	if (atoll_plan_find(c->atoll, o->row.plan, &p, c->res) >= 0)
		return reply_made(c, p);
	(void)error_set(&err, -ATOLL_E_NOT_FOUND, "session '%s', which this request made, is gone",
	                o->row.plan);
	return reply_error_as(c, 410, &err);
}

/* For the mirror's record, which outlives the request's. */
static char *request_text(const struct once *o)
{
	return o->given ? xasprintf("%s %s", o->row.sender, o->row.key) : xstrdup("");
}

/* A request is forgotten after a day, and a clock that is set ahead makes it one; its session is not. 1: answered. */
static int find_made(struct call *c, struct once *o)
{
	cleanup_free char *request = request_text(o);
	int r = o->again ? 0 : mirror_made_by(c->atoll, request, o->row.plan, &c->err);

	if (r <= 0)
		return r;
	r = reply_again(c, o);
	return r < 0 ? r : 1;
}

/* The mirror, and the plan over it. What is left when the second fails nobody needs. */
static int make(struct call *c, struct once *o, const char *label, struct atoll_plan **ret)
{
	cleanup_close int making_fd = FD_NONE;
	cleanup_mirror struct mirror m = MIRROR_INIT, wish = MIRROR_INIT;
	struct atoll_resource resource = { 0 };
	struct atoll_start start = { .resources = &resource, .n_resources = 1 };
	int r;

	(void)snprintf(wish.plan, sizeof(wish.plan), "%s", o->row.plan);
	wish.label = xstrdup(label);
	wish.request = request_text(o);
	r = mirror_make(c->atoll, c->d->mirrors, &wish, &m, &making_fd, &c->err);
	if (r < 0) {
		once_failed(c, o);
		return r;
	}
	resource.root = m.root;
	store_set_resource(c->atoll, NULL, NULL); /* it is ours, and not what the client named */
	r = start_recorded(c, o, &start, ret);
	if (r < 0 && r != -ATOLL_E_NEEDS_RECOVERY)
		(void)mirror_remove(c->atoll, o->row.plan, NULL);
	return r;
}

static int make_once(struct call *c, struct once *o, const struct wanted *w,
                     struct atoll_plan **ret)
{
	int r = start_record(c, o, w->name);

	return r != 0 ? r : make(c, o, w->label, ret);
}

static int check(struct call *c, const struct wanted *w)
{
	if (strlen(w->label) > LABEL_MAX)
		return error_set(&c->err, -ATOLL_E_INVALID, "member 'label' has %d bytes at most",
		                 LABEL_MAX);
	if (c->d->mirrors)
		return 0;
	(void)error_set(&c->err, -ATOLL_E_UNSUPPORTED,
	                "the daemon cannot tell where mirrors go: it has no home directory");
	error_hint(&c->err, "start it with --mirrors DIRECTORY");
	return -ATOLL_E_UNSUPPORTED;
}

static int create(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct wanted w = { 0 };
	int r = body_read(c, &b, members, &w);

	if (r == 0)
		r = check(c, &w);
	if (r == 0)
		r = once_begin(c, &o, REQUEST_PLAN);
	if (r != 0)
		return r < 0 ? r : 0;
	if (o.again && o.row.made)
		return reply_again(c, &o);
	api_settle(c, NULL);
	r = find_made(c, &o);
	if (r == 0)
		r = make_once(c, &o, &w, &p);
	if (r != 0)
		return r < 0 ? r : 0;
	r = start_note(c, p);
	return r < 0 ? r : reply_made(c, p);
}

/* ---- ending one ---- */

/* Who made it may end it: nothing of it is anywhere else. */
static int check_maker(struct call *c, const struct atoll_plan *p)
{
	int r = 1;

	if (c->who.scope == SCOPE_ADMIN)
		return 0;
	if (*c->who.plan == '\0')
		r = registry_plan_started_by(c->atoll->reg, atoll_plan_id(p), c->who.credential.id,
		                             &c->err);
	if (r < 0 || (r > 0 && *c->who.plan == '\0'))
		return r < 0 ? r : 0;
	return error_set(&c->err, -ATOLL_E_DENIED,
	                 "session '%s' is ended by an admin, or with the key that made it",
	                 atoll_plan_name(p));
}

static int end(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	cleanup_mirror struct mirror m = MIRROR_INIT;
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = mirror_load(c->atoll, atoll_plan_id(p), &m, &c->err);
	if (r == 0)
		r = check_maker(c, p);
	if (r == 0)
		r = plan_mirror_stop(p, m.root, c->res, &c->err);
	if (r == 0)
		r = mirror_remove(c->atoll, m.plan, &c->err);
	return r < 0 ? r : api_decided(c, p, "stop", 0);
}

/* ---- working in one ---- */

static int sync_upgrade(struct call *c)
{
	return stream_upgrade(c, &sync_stream);
}

const struct route session_routes[] = {
	{ "GET", "/v1/sessions", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, list },
	{ "POST", "/v1/sessions", MAY_AGENT, ROUTE_STORE | ROUTE_CREATES, KIB(16), create },
	{ "GET", "/v1/sessions/{plan}", MAY_ALL, ROUTE_STORE, 0, show },
	{ "DELETE", "/v1/sessions/{plan}", MAY_AGENT, ROUTE_STORE, 0, end },
	{ "POST", "/v1/plans/{plan}/sync", MAY_AGENT, ROUTE_DATA | ROUTE_STORE, 0, sync_upgrade },
	{ NULL, NULL, 0, 0, 0, NULL },
};
