/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping house: locks, recovery, clean-up, what works here, which version. */
#include "daemon/api.h"

#include "answer/recovery.h"
#include "answer/remains.h"
#include "util/cleanup.h"

#include <limits.h>
#include <string.h>

/* ---- locks ---- */

struct locks {
	struct call *c;
	const char *plan; /* NULL: all */
};

static int fill_locks(struct json *j, void *arg)
{
	const struct locks *l = arg;
	int r;

	answer_begin(j, j->out, "lock");
	json_open_array(j, "locks");
	r = atoll_lock_list(l->c->atoll, l->plan, answer_lock, j, l->c->res);
	json_close(j);
	json_string(j, "code", atoll_code_name(r < 0 ? r : 0));
	json_close(j);
	return r;
}

static int locks(struct call *c)
{
	struct locks l = { .c = c };

	if (c->match.n_args > 0)
		l.plan = c->args[0];
	else if (*c->who.plan)
		l.plan = c->who.plan;
	return reply_json(c, 200, fill_locks, &l);
}

struct broken {
	struct atoll_plan *plan;
	const struct atoll_lock_broken *how; /* NULL: nobody held it */
};

static int fill_broken(struct json *j, void *arg)
{
	const struct broken *b = arg;

	answer_begin(j, j->out, "lock");
	answer_plan_of(j, b->plan);
	answer_lock_broken(j, b->how);
	json_close(j);
	return 0;
}

/* With a pid: only if it is that one's, as it was seen before. */
static int break_lock(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct atoll_lock_broken how;
	struct broken b = { 0 };
	uint64_t pid = 0;
	int r = query_number(c, "pid", INT_MAX, &pid);

	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = atoll_lock_break(p, (pid_t)pid, &how, c->res);
	if (r < 0)
		return r;
	b.plan = p;
	b.how = r > 0 ? &how : NULL;
	return reply_json(c, 200, fill_broken, &b);
}

/* ---- recovery ---- */

struct recovered {
	struct call *c;
	struct recovery v;
};

static int fill_recovered(struct json *j, void *arg)
{
	const struct recovered *f = arg;

	answer_begin(j, j->out, "recover");
	recovery_answer(j, &f->v, f->c->res);
	json_close(j);
	return 0;
}

static const struct body_member recover_members[] = {
	{ .name = "accept", .kind = BODY_BOOL },
	BODY_END,
};

static int recover(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct recovered f = { .c = c };
	bool accept = false;
	int r = body_read(c, &b, recover_members, &accept);

	if (r == 0 && c->match.n_args > 0)
		r = call_plan(c, 0, &p);
	if (r != 0)
		return r < 0 ? r : 0;
	r = recovery_run(&f.v, c->atoll, p, accept, c->res);
	if (r >= 0)
		r = reply_json(c, 200, fill_recovered, &f);
	recovery_done(&f.v);
	return r;
}

/* ---- clean-up ---- */

struct clean {
	bool dry_run, force;
};

static const struct body_member clean_members[] = {
	BODY_MAY(BODY_BOOL, struct clean, dry_run),
	BODY_MAY(BODY_BOOL, struct clean, force),
	BODY_END,
};

struct cleaned {
	struct call *c;
	struct json *j;
	struct remains remains;
	int plans;
};

static int put_path(void *user, const char *plan_id, const char *path)
{
	struct cleaned *f = user;
	int r = remains_note(&f->remains, plan_id, path);

	if (r == 0)
		remains_answer(f->j, &f->remains, plan_id, path);
	return r;
}

static int fill_scan(struct json *j, void *arg)
{
	struct cleaned *f = arg;
	int r;

	f->j = j;
	answer_begin(j, j->out, "clean");
	json_bool(j, "dry_run", true);
	json_open_array(j, "paths");
	r = atoll_scan(f->c->atoll, put_path, f, f->c->res);
	json_close(j);
	json_string(j, "code", atoll_code_name(r < 0 ? r : 0));
	json_close(j);
	return r;
}

static int fill_cleaned(struct json *j, void *arg)
{
	const struct cleaned *f = arg;

	answer_begin(j, j->out, "clean");
	json_int(j, "plans_removed", f->plans);
	json_uint(j, "bytes_freed", remains_freed(&f->remains));
	remains_answer_plans(j, &f->remains, f->c->atoll);
	answer_result(j, f->c->res);
	json_close(j);
	return 0;
}

static int clean(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	struct cleaned f = { .c = c };
	struct clean want = { 0 };
	int r = body_read(c, &b, clean_members, &want);

	if (r != 0)
		return r < 0 ? r : 0;
	if (want.dry_run) {
		r = reply_json(c, 200, fill_scan, &f);
	} else {
		api_settle(c, NULL);
		remains_look(&f.remains, c->atoll, want.force);
		r = f.plans = atoll_purge(c->atoll, want.force ? ATOLL_FORCE : 0, c->res);
		if (r >= 0)
			r = reply_json(c, 200, fill_cleaned, &f);
	}
	remains_done(&f.remains);
	return r;
}

/* ---- what works here ---- */

struct examined {
	struct json *j;
	char *path;
	bool bad;
};

static void put_finding(void *user, const struct doctor_finding *finding)
{
	struct examined *f = user;

	f->bad |= finding->level == DOCTOR_BAD;
	answer_finding(f->j, finding);
}

static int fill_doctor(struct json *j, void *arg)
{
	struct examined *f = arg;

	f->j = j;
	answer_begin(j, j->out, "doctor");
	json_open_array(j, "findings");
	doctor_examine(f->path, put_finding, f);
	json_close(j);
	json_bool(j, "healthy", !f->bad);
	json_close(j);
	return 0;
}

static int doctor(struct call *c)
{
	cleanup_free char *path = NULL;
	struct examined f = { 0 };
	int r = call_query(c, "path", &path);

	if (r < 0)
		return r;
	if (path && *path != '/' && !strstr(path, "://"))
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "'path' is to be an absolute path, or a URL");
	f.path = path;
	return reply_json(c, 200, fill_doctor, &f);
}

static int fill_version(struct json *j, void *arg)
{
	(void)arg;
	answer_begin(j, j->out, "version");
	json_string(j, "version", atoll_version());
	json_close(j);
	return 0;
}

static int version(struct call *c)
{
	return reply_json(c, 200, fill_version, NULL);
}

const struct route house_routes[] = {
	{ "GET", "/v1/locks", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, locks },
	{ "GET", "/v1/plans/{plan}/lock", MAY_ALL, ROUTE_STORE, 0, locks },
	{ "DELETE", "/v1/plans/{plan}/lock", MAY_ADMIN, ROUTE_STORE, 0, break_lock },
	{ "POST", "/v1/recover", MAY_ADMIN, ROUTE_STORE, KIB(16), recover },
	{ "POST", "/v1/plans/{plan}/recover", MAY_ADMIN, ROUTE_STORE, KIB(16), recover },
	{ "POST", "/v1/clean", MAY_ADMIN, ROUTE_STORE, KIB(16), clean },
	{ "GET", "/v1/doctor", MAY_ADMIN, ROUTE_STORE, 0, doctor },
	{ "GET", "/v1/version", MAY_ALL, ROUTE_FILTERS, 0, version },
	{ NULL, NULL, 0, 0, 0, NULL },
};
