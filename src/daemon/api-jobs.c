/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: commands in the background, begun by POST /v1/plans/{plan}/exec (job.h). */
#include "daemon/api.h"

#include "daemon/job.h"
#include "daemon/once.h"
#include "daemon/output.h"
#include "util/cleanup.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- looking ---- */

struct listing {
	struct call *c;
	struct json *j;
	const char *plan; /* NULL: all */
	const char *name; /* NULL: all */
	size_t n;
};

static int put_job(void *user, const struct atoll_job *job)
{
	struct listing *l = user;

	if (l->name && strcmp(l->name, job->name) != 0)
		return 0;
	l->n++;
	return answer_job(l->j, job);
}

static int fill_jobs(struct json *j, void *arg)
{
	struct listing *l = arg;
	int r;

	l->j = j;
	answer_begin(j, j->out, "job");
	json_open_array(j, "jobs");
	r = atoll_job_list(l->c->atoll, l->plan, put_job, l, l->c->res);
	json_close(j);
	json_string(j, "code", atoll_code_name(r < 0 ? r : 0));
	json_close(j);
	if (r >= 0 && l->name && l->n == 0)
		r = error_set(&l->c->err, -ATOLL_E_NOT_FOUND, "plan '%s' has no job '%s'", l->plan,
		              l->name);
	return r;
}

static int list(struct call *c)
{
	struct listing l = { .c = c };

	if (c->match.n_args > 0)
		l.plan = c->args[0];
	else if (*c->who.plan)
		l.plan = c->who.plan;
	if (c->match.n_args > 1)
		l.name = c->args[1];
	return reply_json(c, 200, fill_jobs, &l);
}

static int64_t read_output(const struct output *o, atoll_output_fn fn, void *user,
                           struct atoll_result *res)
{
	return atoll_job_output(o->plan, o->job, o->offset, fn, user, res);
}

static int output(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	struct output o = { .read = read_output };
	int r = query_number(c, "offset", INT64_MAX, &o.offset);

	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r < 0)
		return r;
	(void)snprintf(o.job, sizeof(o.job), "%s", c->args[1]);
	return output_reply(c, p, &o);
}

/* ---- ending ---- */

struct state {
	struct atoll_plan *plan;
	const char *name;
	enum atoll_job_state state;
	int exit_code;
};

static int note_state(void *user, const struct atoll_job *job)
{
	struct state *s = user;

	if (strcmp(job->name, s->name) == 0) {
		s->state = job->state;
		s->exit_code = job->exit_code;
	}
	return 0;
}

static int fill_state(struct json *j, void *arg)
{
	const struct state *s = arg;

	answer_begin(j, j->out, "job");
	answer_plan_of(j, s->plan);
	answer_job_state(j, s->name, s->state, s->exit_code);
	json_close(j);
	return 0;
}

static int reply_state(struct call *c, struct atoll_plan *p, const char *name)
{
	struct state s = { .plan = p, .name = name, .state = ATOLL_JOB_LOST };
	int r = atoll_job_list(c->atoll, atoll_plan_id(p), note_state, &s, c->res);

	return r < 0 ? r : reply_json(c, 200, fill_state, &s);
}

static int stop(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = atoll_job_stop(p, c->args[1], c->res);
	return r < 0 ? r : reply_state(c, p, c->args[1]);
}

/* ---- beginning ---- */

struct since {
	const char *name;
	int64_t ms;
	bool found;
};

static int note_since(void *user, const struct atoll_job *job)
{
	struct since *s = user;

	s->found |= strcmp(job->name, s->name) == 0 && job->started_ms >= s->ms;
	return 0;
}

/* Did an earlier try of this request get as far as the job? */
static bool was_begun(struct call *c, const struct once *o, const char *name)
{
	struct since s = { name, o->row.created_ms, false };

	if (!o->given || !o->again)
		return false;
	(void)atoll_job_list(c->atoll, o->row.plan, note_since, &s, NULL);
	return s.found;
}

/* job_reply() has answered, but nothing is sent yet. */
static int begin(struct call *c, struct once *o, const char *name)
{
	int r = once_record(c, o);

	if (r == 0)
		r = job_reply(c, name, o->held_fd);
	if (r < 0 || c->status != 202) {
		once_failed(c, o);
		return r;
	}
	(void)once_made(c, o); /* the job's own row says it, too */
	return 0;
}

int jobs_begin(struct call *c, const char *name)
{
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = once_begin(c, &o, REQUEST_JOB);
	if (r != 0)
		return r < 0 ? r : 0;
	r = once_hold(c, &o);
	if (r != 0)
		return r < 0 ? r : 0;
	if (o.again && (o.row.made || was_begun(c, &o, name)))
		return job_answer(c, p, name);
	(void)snprintf(o.row.plan, sizeof(o.row.plan), "%s", atoll_plan_id(p));
	(void)snprintf(o.row.name, sizeof(o.row.name), "%s", name);
	r = begin(c, &o, name);
	return r < 0 ? r : 0;
}

const struct route job_routes[] = {
	{ "GET", "/v1/jobs", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, list },
	{ "GET", "/v1/plans/{plan}/jobs", MAY_ALL, ROUTE_STORE, 0, list },
	{ "GET", "/v1/plans/{plan}/jobs/{job}", MAY_ALL, ROUTE_STORE, 0, list },
	{ "GET", "/v1/plans/{plan}/jobs/{job}/output", MAY_ALL, ROUTE_STORE, 0, output },
	{ "DELETE", "/v1/plans/{plan}/jobs/{job}", MAY_AGENT, ROUTE_STORE | ROUTE_DATA, 0, stop },
	{ NULL, NULL, 0, 0, 0, NULL },
};
