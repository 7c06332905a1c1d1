/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tables, the matcher, and who may what. */
#include "daemon/route.h"

#include "util/cleanup.h"
#include "util/uri.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of docs/design/daemon.md. */
static const struct route *const tables[] = {
	core_routes, spec_routes,   auth_routes, key_routes,     plan_routes,
	diff_routes, decide_routes, log_routes,  event_routes,   job_routes,
	ask_routes,  house_routes,  exec_routes, session_routes,
};

const struct route *route_at(size_t i)
{
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const struct route *r = tables[t]; r->method; r++)
			if (i-- == 0)
				return r;
	return NULL;
}

size_t route_number(const struct route *route)
{
	const struct route *r;
	size_t i = 0;

	for (; (r = route_at(i)) && r != route; i++)
		;
	return i;
}

static size_t segment_len(const char *s)
{
	return strcspn(s, "/");
}

/* PATTERN and PATH begin with '/'. Fills ARGS with where the {..} are in PATH. */
static bool matches(const char *pattern, const char *path, const char *args[ROUTE_ARGS],
                    size_t *ret_n)
{
	size_t n = 0;

	while (*pattern == '/' && *path == '/') {
		size_t want = segment_len(++pattern), have = segment_len(++path);

		if (*pattern == '{') {
			if (have == 0 || n == ROUTE_ARGS)
				return false;
			args[n++] = path;
		} else if (want != have || memcmp(pattern, path, want) != 0) {
			return false;
		}
		pattern += want;
		path += have;
	}
	*ret_n = n;
	return *pattern == '\0' && *path == '\0';
}

static int take_args(struct route_match *m, const char *const at[ROUTE_ARGS], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		m->args[i] = uri_decode(at[i], segment_len(at[i]));
		if (!m->args[i])
			return -ATOLL_E_INVALID;
		m->n_args = i + 1;
	}
	return 0;
}

static void add_allowed(struct route_match *m, const char *method)
{
	size_t len = strlen(m->allow);

	m->known_path = true;
	(void)snprintf(m->allow + len, sizeof(m->allow) - len, "%s%s", len ? ", " : "", method);
}

int route_find(const char *method, const char *path, struct route_match *ret)
{
	const char *args[ROUTE_ARGS];
	const struct route *r;
	size_t n;

	*ret = (struct route_match){ 0 };
	for (size_t i = 0; (r = route_at(i)); i++) {
		if (!matches(r->path, path, args, &n))
			continue;
		add_allowed(ret, r->method);
		if (strcmp(r->method, method) != 0)
			continue;
		ret->route = r;
		return take_args(ret, args, n);
	}
	return -ATOLL_E_NOT_FOUND;
}

void route_match_done(struct route_match *m)
{
	for (size_t i = 0; i < m->n_args; i++)
		free(m->args[i]);
	*m = (struct route_match){ 0 };
}

int route_plan_arg(const struct route *r)
{
	int i = 0;

	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{'), i++)
		if (strncmp(p, "{plan}", 6) == 0 || strncmp(p, "{sandbox}", 9) == 0)
			return i;
	return -1;
}

/* By its whole id: anything longer could be another plan's name. */
static bool names_plan(const char *arg, const char *plan)
{
	return strcmp(arg, plan) == 0;
}

static int allow_bound(const struct route_match *m, const struct identity *who, struct error *err)
{
	int arg = route_plan_arg(m->route);

	if (arg < 0 && (m->route->flags & ROUTE_FILTERS))
		return 0;
	if (arg >= 0 && names_plan(m->args[arg], who->plan))
		return 0;
	(void)error_set(err, -ATOLL_E_DENIED, "this token is for plan %s, and nothing else",
	                who->plan);
	error_hint(err, "name the plan by its id, %s, in the path", who->plan);
	return -ATOLL_E_DENIED;
}

int route_allows(const struct route_match *m, const struct identity *who, struct error *err)
{
	const struct route *r = m->route;

	if (who->scope != SCOPE_ADMIN && !(r->scopes & (1u << who->scope)))
		return error_set(err, -ATOLL_E_DENIED, "%s %s is not for the scope '%s'", r->method,
		                 r->path, scope_name(who->scope));
	if (*who->plan)
		return allow_bound(m, who, err);
	if ((r->flags & ROUTE_DATA) && !who->by_socket) {
		(void)error_set(err, -ATOLL_E_DENIED, "%s %s needs a token of the plan", r->method,
		                r->path);
		error_hint(err, "POST /v1/sandboxes/{id}/auth answers with one");
		return -ATOLL_E_DENIED;
	}
	return 0;
}

/* ---- queries ---- */

/* Beside "wait" of those with a store; each between blanks. */
static const struct {
	const char *method, *path, *words;
} queries[] = {
	{ "GET", "/v1/plans", " wait " },
	{ "DELETE", "/v1/plans/{plan}", " force " },
	{ "GET", "/v1/plans/{plan}/diff",
	  " after conflicts context detail exclude format limit path " },
	{ "GET", "/v1/log", " limit " },
	{ "GET", "/v1/plans/{plan}/log", " limit " },
	{ "GET", "/v1/events", " after plan " },
	{ "GET", "/v1/plans/{plan}/jobs/{job}/output", " offset " },
	{ "DELETE", "/v1/plans/{plan}/lock", " pid " },
	{ "GET", "/v1/doctor", " path " },
};

static const char *words_of(const struct route *r)
{
	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++)
		if (strcmp(queries[i].method, r->method) == 0 &&
		    strcmp(queries[i].path, r->path) == 0)
			return queries[i].words;
	return "";
}

static bool is_word(const char *words, const char *name, size_t len)
{
	char want[16];

	if (len == 0 || len + 2 >= sizeof(want))
		return false;
	(void)snprintf(want, sizeof(want), " %.*s ", (int)len, name);
	return memchr(name, ' ', len) == NULL && strstr(words, want);
}

int route_knows(const struct route *r, const char *query, struct error *err)
{
	const char *words = words_of(r);

	if (r->flags & ROUTE_OPEN)
		return 0;
	for (const char *p = query; p && *p; p += *p == '&') {
		size_t len = strcspn(p, "=&");

		if (!is_word(words, p, len) &&
		    !((r->flags & ROUTE_STORE) && is_word(" wait ", p, len))) {
			(void)error_set(err, -ATOLL_E_INVALID, "the query's '%.*s' is not known",
			                len < 64 ? (int)len : 64, p);
			error_hint(err, "known are:%s%s", words,
			           r->flags & ROUTE_STORE ? " wait" : "");
			return -ATOLL_E_INVALID;
		}
		p += strcspn(p, "&");
	}
	return 0;
}
