/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: commands in the background. One is begun by the command `atoll exec --background`, which
 * becomes the process that follows it: so a job outlives us, as it outlives a shell.
 */
#include "daemon/api.h"

#include "daemon/once.h"
#include "daemon/output.h"
#include "util/child.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"
#include "util/program.h"
#include "util/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAID_MAX KIB(64) /* of what the command answers */

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

static int reply_state(struct call *c, unsigned status, struct atoll_plan *p, const char *name)
{
	struct state s = { .plan = p, .name = name, .state = ATOLL_JOB_LOST };
	int r = atoll_job_list(c->atoll, atoll_plan_id(p), note_state, &s, c->res);

	return r < 0 ? r : reply_json(c, status, fill_state, &s);
}

static int stop(struct call *c)
{
	cleanup_plan struct atoll_plan *p = NULL;
	int r = call_plan(c, 0, &p);

	if (r == 0)
		r = atoll_job_stop(p, c->args[1], c->res);
	return r < 0 ? r : reply_state(c, 200, p, c->args[1]);
}

/* ---- beginning ---- */

struct wanted {
	const char *name, *cwd, *net, *memory, *cpus, *home;
	const char **argv, **env, **unset, **rw, **ro, **hide, **profiles;
	int64_t pids, timeout;
	bool strict;
};

static const struct body_member job_members[] = {
	BODY_MUST(BODY_TEXT, struct wanted, name),
	BODY_MUST(BODY_TEXTS, struct wanted, argv),
	BODY_MAY(BODY_TEXT, struct wanted, cwd),
	BODY_MAY(BODY_TEXTS, struct wanted, env),
	BODY_MAY(BODY_TEXTS, struct wanted, unset),
	BODY_MAY(BODY_TEXT, struct wanted, net),
	BODY_MAY(BODY_TEXT, struct wanted, memory),
	BODY_MAY(BODY_TEXT, struct wanted, cpus),
	BODY_MAY(BODY_NUMBER, struct wanted, pids),
	BODY_MAY(BODY_NUMBER, struct wanted, timeout),
	BODY_MAY(BODY_TEXT, struct wanted, home),
	BODY_MAY(BODY_TEXTS, struct wanted, rw),
	BODY_MAY(BODY_TEXTS, struct wanted, ro),
	BODY_MAY(BODY_TEXTS, struct wanted, hide),
	BODY_MAY(BODY_TEXTS, struct wanted, profiles),
	BODY_MAY(BODY_BOOL, struct wanted, strict),
	BODY_END,
};

static void add_option(struct strlist *v, const char *name, const char *value)
{
	cleanup_free char *text = value ? xasprintf("--%s=%s", name, value) : NULL;

	if (text)
		strlist_add(v, text);
}

static void add_options(struct strlist *v, const char *name, const char *const *values)
{
	for (; values && *values; values++)
		add_option(v, name, *values);
}

static void add_number(struct strlist *v, const char *name, int64_t n)
{
	cleanup_free char *text = xasprintf("%" PRId64, n);

	if (n > 0)
		add_option(v, name, text);
}

/* Where a command begins when nobody says: in the first resource that is a directory. */
static int note_directory(void *user, const struct atoll_sandbox_info *info)
{
	char **cwd = user;
	struct stat st;

	if (!*cwd && stat(info->root, &st) == 0 && S_ISDIR(st.st_mode))
		*cwd = xstrdup(info->root);
	return 0;
}

static void make_command(struct strlist *v, const struct wanted *w, struct atoll_plan *p,
                         const char *wait)
{
	cleanup_free char *cwd = w->cwd ? xstrdup(w->cwd) : NULL;

	if (!cwd)
		(void)atoll_plan_sandboxes(p, note_directory, &cwd, NULL);
	strlist_add(v, "atoll");
	strlist_add(v, "exec");
	strlist_add(v, "--json");
	add_option(v, "wait", wait);
	add_option(v, "background", w->name);
	add_option(v, "cwd", cwd);
	add_options(v, "env", w->env);
	add_options(v, "unset", w->unset);
	add_option(v, "net", w->net);
	add_option(v, "memory", w->memory);
	add_option(v, "cpus", w->cpus);
	add_number(v, "pids", w->pids);
	add_number(v, "timeout", w->timeout);
	add_option(v, "home", w->home);
	add_options(v, "rw", w->rw);
	add_options(v, "ro", w->ro);
	add_options(v, "hide", w->hide);
	add_options(v, "profile", w->profiles);
	if (w->strict)
		strlist_add(v, "--strict");
	strlist_add(v, atoll_plan_id(p));
	strlist_add(v, "--");
	for (size_t i = 0; w->argv[i]; i++)
		strlist_add(v, w->argv[i]);
}

/* ---- what the command says ---- */

struct said {
	char code[32], message[2048], hint[512];
};

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct said *s = user;

	if (strcmp(key, "code") == 0)
		(void)json_decode_string(value, len, s->code, sizeof(s->code));
	else if (strcmp(key, "message") == 0)
		(void)json_decode_string(value, len, s->message, sizeof(s->message));
	else if (strcmp(key, "hint") == 0)
		(void)json_decode_string(value, len, s->hint, sizeof(s->hint));
	return 0;
}

static int code_named(const char *name)
{
	for (int code = ATOLL_E_INVALID; code < ATOLL_E_END_; code++)
		if (strcmp(atoll_code_name(-code), name) == 0)
			return -code;
	for (int code = 1; code < 200; code++)
		if (strcmp(atoll_code_name(-code), name) == 0)
			return -code;
	return -EIO;
}

/* Its failure is ours, in its own words. */
static int pass_on(struct call *c, const char *text, size_t len)
{
	struct said s = { .message = "the job could not be begun" };
	int code;

	(void)json_members(text, len, take_member, &s);
	code = code_named(s.code);
	(void)error_set(&c->err, code, "%s", s.message);
	if (*s.hint)
		error_hint(&c->err, "%s", s.hint);
	return code;
}

/* Its own descriptors and its place in systemd's world are none of its business. */
static const char **make_env(struct call *c, struct strlist *hold)
{
	static const char *const left_out[] = { "ATOLL_HOME=", "LISTEN_",   "NOTIFY_SOCKET=",
		                                "MAINPID=",    "WATCHDOG_", NULL };
	cleanup_free char *home = xasprintf("ATOLL_HOME=%s", stores_home(c->d->stores));
	const char **v;
	size_t n = 0;

	strlist_add(hold, home);
	for (char **e = environ; *e; e++) {
		size_t i = 0;

		while (left_out[i] && strncmp(*e, left_out[i], strlen(left_out[i])) != 0)
			i++;
		if (!left_out[i])
			strlist_add(hold, *e);
	}
	v = xcalloc(hold->n + 1, sizeof(*v));
	for (; n < hold->n; n++)
		v[n] = hold->v[n];
	return v;
}

static int run_command(struct call *c, const struct strlist *words, int64_t wait_ms)
{
	static const struct program command = { .name = "atoll",
		                                .folder = "src/cli",
		                                .variable = "ATOLL_COMMAND",
		                                .is_command = true };
	cleanup_free char *file = program_path(&command);
	cleanup_strlist struct strlist vars = STRLIST_INIT;
	cleanup_strbuf struct strbuf out = STRBUF_INIT, err = STRBUF_INIT;
	cleanup_free const char **argv = xcalloc(words->n + 1, sizeof(*argv));
	cleanup_free const char **envp = make_env(c, &vars);
	struct run how = { .file = file,
		           .argv = argv,
		           .envp = envp,
		           .cwd = "/",
		           .in_fd = FD_NONE,
		           .out_fd = FD_NONE,
		           .held_fd = FD_NONE,
		           .max = SAID_MAX,
		           .deadline = clock_deadline(wait_ms) };
	int status = 0, r;

	for (size_t i = 0; i < words->n; i++)
		argv[i] = words->v[i];
	r = run_program(&how, &out, &err, &status);
	if (r < 0)
		return error_sys(&c->err, r, "run", file);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0
	               ? 0
	               : pass_on(c, strbuf_str(&out), out.len);
}

static int begin(struct call *c, const struct wanted *w, struct atoll_plan *p)
{
	cleanup_strlist struct strlist words = STRLIST_INIT;
	int64_t wait_ms = c->atoll->wait_ms; /* the request's */
	cleanup_free char *wait =
		xasprintf("%" PRId64 ".%03d", wait_ms / 1000, (int)(wait_ms % 1000));

	make_command(&words, w, p, wait);
	/* Time to begin, on top of the time to wait. */
	return run_command(c, &words, wait_ms + INT64_C(30000));
}

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

static int begin_once(struct call *c, struct once *o, const struct wanted *w, struct atoll_plan *p)
{
	int r;

	(void)snprintf(o->row.plan, sizeof(o->row.plan), "%s", atoll_plan_id(p));
	(void)snprintf(o->row.name, sizeof(o->row.name), "%s", w->name);
	r = once_record(c, o);
	if (r != 0)
		return r;
	r = was_begun(c, o, w->name) ? 0 : begin(c, w, p);
	if (r < 0)
		once_failed(c, o);
	return r < 0 ? r : once_made(c, o);
}

/* What an agent does is reviewed before it is anybody else's: so it stays in the plan. */
static int check_fence(struct call *c, const struct wanted *w)
{
	const struct {
		const char *name;
		bool given;
	} rows[] = {
		{ "rw", w->rw && *w->rw },
		{ "ro", w->ro && *w->ro },
		{ "profiles", w->profiles && *w->profiles },
		{ "home", w->home && strcmp(w->home, "real") == 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].given && c->who.scope == SCOPE_AGENT)
			return error_set(&c->err, -ATOLL_E_DENIED,
			                 "member '%s' reaches outside of the plan: not for agents",
			                 rows[i].name);
	return 0;
}

static int start(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_once struct once o = ONCE_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct wanted w = { 0 };
	int r = body_read(c, &b, job_members, &w);

	if (r == 0 && !*w.argv)
		r = error_set(&c->err, -ATOLL_E_INVALID, "member 'argv' is empty");
	if (r == 0 && !plan_name_valid(w.name))
		r = error_set(&c->err, -ATOLL_E_INVALID,
		              "member 'name': 1 to %d of A-Z a-z 0-9 . _ -, not beginning with . "
		              "or -",
		              LIMIT_NAME);
	if (r == 0)
		r = check_fence(c, &w);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r == 0)
		r = once_begin(c, &o, REQUEST_JOB);
	if (r == 0)
		r = o.again && o.row.made ? 0 : begin_once(c, &o, &w, p);
	if (r != 0)
		return r < 0 ? r : 0;
	return reply_state(c, 201, p, w.name);
}

const struct route job_routes[] = {
	{ "GET", "/v1/jobs", MAY_ALL, ROUTE_STORE | ROUTE_FILTERS, 0, list },
	{ "GET", "/v1/plans/{plan}/jobs", MAY_ALL, ROUTE_STORE, 0, list },
	{ "POST", "/v1/plans/{plan}/jobs", MAY_AGENT, ROUTE_STORE | ROUTE_DATA | ROUTE_CREATES,
	  KIB(1024), start },
	{ "GET", "/v1/plans/{plan}/jobs/{job}", MAY_ALL, ROUTE_STORE, 0, list },
	{ "GET", "/v1/plans/{plan}/jobs/{job}/output", MAY_ALL, ROUTE_STORE, 0, output },
	{ "DELETE", "/v1/plans/{plan}/jobs/{job}", MAY_AGENT, ROUTE_STORE | ROUTE_DATA, 0, stop },
	{ NULL, NULL, 0, 0, 0, NULL },
};
