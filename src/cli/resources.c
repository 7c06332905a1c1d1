/* SPDX-License-Identifier: Apache-2.0 */
/* Resources from the command line: a new plan over them, whole or not at all. */
#include "cli/resources.h"

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/list.h"
#include "util/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wanted {
	char *root; /* absolute where it exists, else as given */
	const char *strategy;
	char *parent; /* root of another, or NULL */
	bool added;
};

/* What is being started. */
struct start {
	struct cli *c;
	struct wanted *v;
	size_t n;
	bool opened;          /* the plan was there before */
	struct strlist there; /* roots it had then */
};

static void start_done(struct start *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].root);
		free(s->v[i].parent);
	}
	free(s->v);
	strlist_done(&s->there);
}

#define cleanup_start __attribute__((__cleanup__(start_done)))

/* ---- what is wanted ---- */

static char *absolute(const char *path)
{
	char *full = realpath(path, NULL);

	return full ? full : xstrdup(path);
}

static struct wanted *find_wanted(struct start *s, const char *path)
{
	cleanup_free char *full = absolute(path);

	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].root, full) == 0)
			return &s->v[i];
	return NULL;
}

static void want(struct start *s, const char *path, const char *strategy)
{
	s->v[s->n++] = (struct wanted){ .root = absolute(path), .strategy = strategy };
}

static void read_resources(struct start *s)
{
	const struct args *a = &s->c->args;
	const char *strategy = args_value(a, "strategy");

	s->v = xcalloc(a->n_given + 1, sizeof(*s->v));
	for (size_t i = 0; i < a->n_given; i++) {
		if (strcmp(a->given[i].row->name, "dir") == 0)
			want(s, a->given[i].value, strategy);
		if (strcmp(a->given[i].row->name, "none") == 0)
			want(s, a->given[i].value, "none");
	}
}

static int read_parents(struct start *s)
{
	const char *relation;
	size_t at = 0;

	while ((relation = args_next(&s->c->args, "parent", &at))) {
		const char *equals = strchr(relation, '=');
		cleanup_free char *child = NULL;
		struct wanted *w;

		if (!equals || equals == relation || !equals[1])
			return cli_fail_usage(s->c, "--parent: '%s' is not CHILD=PARENT", relation);
		child = xstrndup(relation, (size_t)(equals - relation));
		w = find_wanted(s, child);
		if (!w)
			return cli_fail_usage(s->c, "--parent: '%s' is not given as a resource",
			                      child);
		free(w->parent);
		w->parent = absolute(equals + 1);
	}
	return 0;
}

/* A resource inside another is its child without being told. */
static void find_parents(struct start *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct wanted *w = &s->v[i];
		const char *nearest = NULL;

		for (size_t k = 0; k < s->n; k++) {
			const char *outer = s->v[k].root;

			if (k != i && strcmp(outer, w->root) != 0 && path_below(w->root, outer) &&
			    (!nearest || strlen(outer) > strlen(nearest)))
				nearest = outer;
		}
		if (!nearest || w->parent)
			continue;
		w->parent = xstrdup(nearest);
		cli_say(s->c, "%s lies in %s and is committed before it", w->root, nearest);
	}
}

/* ---- making it ---- */

static bool parent_is_there(const struct start *s, const struct wanted *w)
{
	if (!w->parent)
		return true;
	for (size_t i = 0; i < s->n; i++)
		if (!s->v[i].added && &s->v[i] != w && strcmp(s->v[i].root, w->parent) == 0)
			return false;
	return true;
}

/* The next one in the order given whose parent is there; in a circle, the library has the word. */
static struct wanted *next_wanted(struct start *s)
{
	struct wanted *first = NULL;

	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i].added)
			continue;
		if (parent_is_there(s, &s->v[i]))
			return &s->v[i];
		first = first ? first : &s->v[i];
	}
	return first;
}

static int add_one(struct start *s, struct wanted *w)
{
	const struct atoll_resource resource = {
		.root = w->root,
		.strategy = w->strategy,
		.parent = w->parent,
		.work_in_store = args_has(&s->c->args, "work-in-store"),
	};
	bool or_open = args_has(&s->c->args, "or-open");
	int r;

	w->added = true;
	if (or_open && strlist_has(&s->there, w->root))
		return 0;
	r = atoll_plan_add(s->c->plan, &resource, s->c->res);
	/* Somebody who opened the same plan at the same time was quicker: that is what we want. */
	if (r == -ATOLL_E_EXISTS && or_open)
		return 0;
	if (r == 0)
		cli_notes(s->c);
	return r;
}

/* Nothing is left of a plan that could not be made whole. */
static int give_up(struct start *s, int r)
{
	struct atoll_result *res = atoll_result_new();
	int status = cli_fail(s->c, r);

	if (!s->opened && atoll_plan_stop(s->c->plan, ATOLL_FORCE, res) < 0)
		cli_say(s->c, "atoll: and plan %s could not be removed again: %s",
		        atoll_plan_name(s->c->plan), atoll_result_message(res));
	atoll_result_free(res);
	return status;
}

static int note_root(void *user, const struct atoll_sandbox_info *info)
{
	strlist_add(user, info->root);
	return 0;
}

static int open_plan(struct start *s, const char *name, unsigned flags)
{
	struct cli *c = s->c;
	int r = atoll_plan_start(c->atoll, name, flags, &c->plan, c->res);

	if (r == -ATOLL_E_EXISTS && args_has(&c->args, "or-open")) {
		s->opened = true;
		r = atoll_plan_start(c->atoll, name, ATOLL_START_OR_OPEN, &c->plan, c->res);
		if (r == 0)
			r = atoll_plan_sandboxes(c->plan, note_root, &s->there, c->res);
	}
	return r;
}

int resources_start(struct cli *c, const char *name, unsigned flags, bool *ret_opened)
{
	cleanup_start struct start s = { .c = c };
	struct wanted *w;
	int status, r;

	read_resources(&s);
	status = read_parents(&s);
	if (status == 0)
		status = cli_open_settled(c);
	if (status)
		return status;
	r = open_plan(&s, name, flags);
	if (r < 0)
		return cli_fail(c, r);
	if (s.n == 0 && !s.opened)
		want(&s, ".", args_value(&c->args, "strategy"));
	find_parents(&s);
	while ((w = next_wanted(&s))) {
		r = add_one(&s, w);
		if (r < 0)
			return give_up(&s, r);
	}
	if (ret_opened)
		*ret_opened = s.opened;
	return 0;
}
