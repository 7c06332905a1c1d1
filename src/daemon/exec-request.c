/* SPDX-License-Identifier: Apache-2.0 */
/* One table of members; one that is not in it is refused, so that nothing asked for is left out. */
#include "daemon/exec-request.h"

#include "daemon/ceiling.h"
#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX     4096
#define SIZE_MAX_TTY 65535
#define TIMEOUT_MAX  1e9 /* seconds */

struct reading {
	struct exec_request *q;
	const struct settings *settings;
	struct error *err;
	const struct row *row;
	bool capped; /* who asks is an agent */
};

struct row {
	const char *name;
	int (*take)(struct reading *r, const char *value, size_t len);
	size_t where;         /* for TAKE: in the request, or the number of a list */
	enum ceiling ceiling; /* for agents */
	enum setting setting; /* that says how high it is */
};

void exec_request_done(struct exec_request *q)
{
	for (int i = 0; i < EXEC_LIST_END_; i++) {
		strlist_done(&q->lists[i]);
		free(q->ends[i]);
	}
	strlist_done(&q->option_names);
	strlist_done(&q->options);
	free(q->cwd);
	free(q->background);
	*q = EXEC_REQUEST_INIT;
}

static int wrong(const struct reading *r, const char *what)
{
	return error_set(r->err, -ATOLL_E_INVALID, "member '%s' is to be %s", r->row->name, what);
}

static void add_option(struct exec_request *q, const char *name, const char *value)
{
	strlist_add(&q->option_names, name);
	strlist_add(&q->options, value);
}

/* ---- values ---- */

static char *text_of(const char *value, size_t len)
{
	char *text = malloc(len + 1);

	if (text && json_decode_string(value, len, text, len + 1) == 0)
		return text;
	free(text);
	return NULL;
}

static int take_text(struct reading *r, const char *value, size_t len)
{
	char **to = (char **)(void *)((char *)r->q + r->row->where);

	*to = text_of(value, len);
	return *to && **to ? 0 : wrong(r, "a text, not empty, without a NUL in it");
}

static int take_bool(struct reading *r, const char *value, size_t len)
{
	bool *to = (bool *)(void *)((char *)r->q + r->row->where);

	return json_decode_bool(value, len, to) < 0 ? wrong(r, "true or false") : 0;
}

static int take_size(struct reading *r, const char *value, size_t len)
{
	int64_t *to = (int64_t *)(void *)((char *)r->q + r->row->where);

	if (json_decode_int(value, len, to) < 0 || *to < 1 || *to > SIZE_MAX_TTY)
		return wrong(r, "a number from 1 to 65535");
	return 0;
}

static bool is_number(const char *value, size_t len)
{
	return len > 0 && (value[0] == '-' || (value[0] >= '0' && value[0] <= '9'));
}

/* A text, or the digits of a number: the library looks at what they say. */
static int take_option(struct reading *r, const char *value, size_t len)
{
	cleanup_free char *text =
		is_number(value, len) ? xstrndup(value, len) : text_of(value, len);

	if (!text)
		return wrong(r, "a text or a number");
	add_option(r->q, r->row->name, text);
	return 0;
}

static int take_transcript(struct reading *r, const char *value, size_t len)
{
	bool wanted;

	if (json_decode_bool(value, len, &wanted) < 0)
		return take_option(r, value, len);
	if (wanted)
		add_option(r->q, r->row->name, r->settings->v[SETTING_EXEC_TRANSCRIPT_MAX].text);
	return 0;
}

static int take_timeout(struct reading *r, const char *value, size_t len)
{
	cleanup_free char *text = xstrndup(value, len);
	char *end;
	double s;

	if (!is_number(value, len))
		return wrong(r, "a number of seconds");
	s = strtod(text, &end);
	if (*end || !(s >= 0 && s <= TIMEOUT_MAX))
		return wrong(r, "a number of seconds");
	r->q->exec.timeout_ms = (int64_t)(s * 1000 + 0.999);
	return 0;
}

static int take_home(struct reading *r, const char *value, size_t len)
{
	static const char *const homes[ATOLL_HOME_END_] = {
		[ATOLL_HOME_SCRATCH] = "scratch",
		[ATOLL_HOME_REAL] = "real",
		[ATOLL_HOME_NONE] = "none",
	};
	cleanup_free char *text = text_of(value, len);

	for (int i = 0; text && i < ATOLL_HOME_END_; i++) {
		if (strcmp(text, homes[i]) != 0)
			continue;
		r->q->fence.home = (enum atoll_home)i;
		return 0;
	}
	return wrong(r, "one of: scratch, real, none");
}

/* ---- lists ---- */

static int take_element(void *user, size_t i, const char *value, size_t len)
{
	struct reading *r = user;
	cleanup_free char *text = text_of(value, len);

	(void)i;
	if (!text)
		return wrong(r, "a list of texts, without a NUL in them");
	strlist_add(&r->q->lists[r->row->where], text);
	return 0;
}

static int take_env_element(void *user, size_t i, const char *value, size_t len)
{
	struct reading *r = user;
	cleanup_free char *text = text_of(value, len);

	(void)i;
	if (!text)
		return wrong(r, "a list of texts, without a NUL in them");
	/* A bare name would hand on what the daemon itself has there. */
	if (strcmp(r->row->name, "env") == 0 && !strchr(text, '='))
		return wrong(r, "a list of texts of the form NAME=value");
	add_option(r->q, r->row->name, text);
	return 0;
}

static int take_elements(struct reading *r, const char *value, size_t len, json_element_fn fn)
{
	int e = json_elements(value, len, LIST_MAX, fn, r);

	return e < 0 && !r->err->code ? wrong(r, "a list of texts, of 4096 at most") : e;
}

static int take_list(struct reading *r, const char *value, size_t len)
{
	return take_elements(r, value, len, take_element);
}

static int take_env(struct reading *r, const char *value, size_t len)
{
	return take_elements(r, value, len, take_env_element);
}

/* ---- the object ---- */

static const struct row rows[] = {
	{ "argv", take_list, EXEC_LIST_ARGV, CEILING_NONE, 0 },
	{ "at", take_option, 0, CEILING_NONE, 0 },
	{ "background", take_text, offsetof(struct exec_request, background), CEILING_NONE, 0 },
	{ "columns", take_size, offsetof(struct exec_request, columns), CEILING_NONE, 0 },
	{ "cpus", take_option, 0, CEILING_AMOUNT, SETTING_EXEC_CPUS },
	{ "cwd", take_text, offsetof(struct exec_request, cwd), CEILING_NONE, 0 },
	{ "env", take_env, 0, CEILING_NONE, 0 },
	{ "hide", take_list, EXEC_LIST_HIDE, CEILING_NONE, 0 },
	{ "home", take_home, 0, CEILING_ADMIN, 0 },
	{ "memory", take_option, 0, CEILING_AMOUNT, SETTING_EXEC_MEMORY },
	{ "net", take_option, 0, CEILING_CHOICE, SETTING_EXEC_NET },
	{ "pids", take_option, 0, CEILING_AMOUNT, SETTING_EXEC_PIDS },
	{ "profile", take_list, EXEC_LIST_PROFILE, CEILING_ADMIN, 0 },
	{ "ro", take_list, EXEC_LIST_RO, CEILING_ADMIN, 0 },
	{ "rows", take_size, offsetof(struct exec_request, rows), CEILING_NONE, 0 },
	{ "rw", take_list, EXEC_LIST_RW, CEILING_ADMIN, 0 },
	{ "shared", take_bool, offsetof(struct exec_request, shared), CEILING_SWITCH,
	  SETTING_AGENT_SHARED },
	{ "strict", take_bool, offsetof(struct exec_request, fence.strict), CEILING_NONE, 0 },
	{ "terminal", take_bool, offsetof(struct exec_request, terminal), CEILING_NONE, 0 },
	{ "timeout", take_timeout, 0, CEILING_AMOUNT, SETTING_EXEC_TIMEOUT },
	{ "transcript", take_transcript, 0, CEILING_AMOUNT, SETTING_EXEC_TRANSCRIPT_MAX },
	{ "unfenced", take_bool, offsetof(struct exec_request, unfenced), CEILING_ADMIN, 0 },
	{ "unset", take_env, 0, CEILING_NONE, 0 },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* What asks for nothing: false, an empty list, a home that is not the real one. */
static bool is_idle(const struct reading *r, const char *value, size_t len)
{
	bool is = true;

	if (r->row->take == take_list)
		return r->q->lists[r->row->where].n == 0;
	if (r->row->take == take_home)
		return r->q->fence.home != ATOLL_HOME_REAL;
	return json_decode_bool(value, len, &is) == 0 && !is;
}

static int check_ceiling(const struct reading *r, const char *value, size_t len)
{
	cleanup_free char *text = NULL;

	if (!r->capped || is_idle(r, value, len))
		return 0;
	text = text_of(value, len);
	if (!text)
		text = xstrndup(value, len);
	/* "true" is the usual amount, which is the ceiling itself. */
	if (r->row->ceiling == CEILING_AMOUNT && strcmp(text, "true") == 0)
		return 0;
	return ceiling_member(r->row->ceiling, r->settings, r->row->setting, r->row->name, text,
	                      r->err);
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct reading *r = user;
	int e;

	for (size_t i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, key) != 0)
			continue;
		r->row = &rows[i];
		e = rows[i].take(r, value, len);
		return e < 0 ? e : check_ceiling(r, value, len);
	}
	return error_set(r->err, -ATOLL_E_INVALID, "a command has no member '%s'", key);
}

/* Before what is given, which is read after it and wins. */
static void take_settings(struct exec_request *q, const struct settings *s)
{
	static const struct {
		const char *name;
		enum setting setting;
	} options[] = {
		{ "net", SETTING_EXEC_NET },          { "memory", SETTING_EXEC_MEMORY },
		{ "cpus", SETTING_EXEC_CPUS },        { "pids", SETTING_EXEC_PIDS },
		{ "private", SETTING_FENCE_PRIVATE },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		add_option(q, options[i].name, s->v[options[i].setting].text);
	q->exec.timeout_ms = s->v[SETTING_EXEC_TIMEOUT].number;
	q->min_free = s->v[SETTING_EXEC_MIN_FREE].number;
}

static int check_whole(const struct exec_request *q, struct error *err)
{
	if (q->lists[EXEC_LIST_ARGV].n == 0 || !*q->lists[EXEC_LIST_ARGV].v[0])
		return error_set(err, -ATOLL_E_INVALID, "member 'argv' is missing: what to run?");
	if (q->cwd && *q->cwd != '/')
		return error_set(err, -ATOLL_E_INVALID, "member 'cwd' is to be an absolute path");
	if ((q->rows || q->columns) && !q->terminal)
		return error_set(err, -ATOLL_E_INVALID,
		                 "members 'rows' and 'columns' are for a 'terminal'");
	if (q->background && q->terminal)
		return error_set(err, -ATOLL_E_INVALID, "a job has no terminal");
	return 0;
}

static void close_lists(struct exec_request *q)
{
	for (int i = 0; i < EXEC_LIST_END_; i++) {
		q->ends[i] = xcalloc(q->lists[i].n + 1, sizeof(*q->ends[i]));
		for (size_t k = 0; k < q->lists[i].n; k++)
			q->ends[i][k] = q->lists[i].v[k];
	}
	q->fence.rw = q->ends[EXEC_LIST_RW];
	q->fence.ro = q->ends[EXEC_LIST_RO];
	q->fence.hide = q->ends[EXEC_LIST_HIDE];
	q->fence.profiles = q->ends[EXEC_LIST_PROFILE];
	q->exec.argv = q->ends[EXEC_LIST_ARGV];
	q->exec.cwd = q->cwd;
	q->exec.fence = &q->fence;
}

void exec_request_of(struct exec_request *q, const char *const *argv, const char *cwd)
{
	for (; *argv; argv++)
		strlist_add(&q->lists[EXEC_LIST_ARGV], *argv);
	q->cwd = xstrdup(cwd);
	q->min_free = -1;
	close_lists(q);
}

int exec_request_read(struct exec_request *q, const char *text, size_t len,
                      const struct identity *who, struct error *err)
{
	cleanup_settings struct settings settings = SETTINGS_INIT;
	struct reading r = { .q = q,
		             .settings = &settings,
		             .err = err,
		             .capped = who->scope != SCOPE_ADMIN };
	int e = settings_load(&settings, err);

	/* A line that cannot be understood may be one that forbids something. */
	if (e < 0)
		return e;
	take_settings(q, &settings);
	e = json_members(text, len, take_member, &r);
	if (e < 0 && !err->code)
		return error_set(err, -ATOLL_E_INVALID,
		                 "the request is to be one JSON object, with each member once");
	q->fence.strict |= settings.v[SETTING_EXEC_STRICT].number != 0;
	if (e >= 0)
		e = check_whole(q, err);
	if (e >= 0 && (q->unfenced || !settings.v[SETTING_FENCE_REQUIRED].number))
		add_option(q, "unfenced", "1");
	if (e >= 0 && q->shared)
		add_option(q, "shared", "1");
	if (e >= 0 && q->background)
		add_option(q, "background", q->background);
	if (e >= 0)
		close_lists(q);
	return e;
}
