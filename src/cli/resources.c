/* SPDX-License-Identifier: Apache-2.0 */
/* Resources from the command line and from a file: a new plan over them, whole or not at all. */
#include "cli/resources.h"

#include "cli/plan-file.h"
#include "cli/plan-words.h"
#include "plan/here.h"
#include "plan/plan.h"
#include "plan/project-root.h"
#include "util/cleanup.h"
#include "util/escape.h"
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
	bool work_in_store;
};

/* What is being started. */
struct start {
	struct cli *c;
	struct plan_file file; /* empty without one */
	struct wanted *v;
	size_t n;
};

static void start_done(struct start *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].root);
		free(s->v[i].parent);
	}
	free(s->v);
	plan_file_done(&s->file);
}

#define cleanup_start __attribute__((__cleanup__(start_done)))

/* ---- what is wanted ---- */

/* The options that name a resource. */
static const struct kind {
	const char *option;
	const char *strategy; /* NULL: as --strategy says */
	bool is_path;
	bool is_beside; /* run: it comes beside the project, and does not take its place */
} kinds[] = {
	{ "dir", NULL, true, false },
	{ "sqlite", "sqlite", true, true },
	{ "git", "git", true, false },
	{ "none", "none", true, false },
	{ "postgres", "postgres", false, true },
};

static const struct kind *find_kind(const char *option)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].option, option) == 0)
			return &kinds[i];
	return NULL;
}

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

/* A repository has two strategies, and one that was asked for is the directories' if it is neither. */
static bool is_for_git(const char *strategy)
{
	return strategy && (strcmp(strategy, "git") == 0 || strcmp(strategy, "worktree") == 0);
}

static const char *settle_strategy(const struct start *s, const struct kind *kind,
                                   const char *strategy)
{
	if (strcmp(kind->option, "git") == 0 && is_for_git(strategy))
		return strategy;
	if (!kind->strategy && is_for_git(strategy) && args_has(&s->c->args, "git"))
		return NULL;
	return kind->strategy ? kind->strategy : strategy;
}

static void want(struct start *s, const struct kind *kind, const char *given, const char *strategy)
{
	s->v[s->n++] = (struct wanted){
		.root = kind->is_path ? absolute(given) : xstrdup(given),
		.strategy = settle_strategy(s, kind, strategy),
	};
}

static int read_file(struct start *s)
{
	struct error err = ERROR_INIT;
	const char *file = args_value(&s->c->args, "file");
	int r = file ? plan_file_read(file, &s->file, &err) : 0;

	return r < 0 ? cli_fail_error(s->c, &err) : 0;
}

/* As given, as set, or NULL: as it works best. */
static const char *strategy_of(const struct cli *c)
{
	const char *given = args_value(&c->args, "strategy");
	const char *set = c->settings.v[SETTING_START_STRATEGY].text;

	return given || !*set ? given : set;
}

/* For what options and file name, and the project. */
static void make_room(struct start *s)
{
	s->v = xcalloc(s->c->args.n_given + s->file.n + 1, sizeof(*s->v));
}

static void read_resources(struct start *s)
{
	const struct args *a = &s->c->args;
	const char *strategy = strategy_of(s->c);

	for (size_t i = 0; i < s->file.n; i++) {
		const struct plan_file_resource *res = &s->file.v[i];

		s->v[s->n++] = (struct wanted){
			.root = xstrdup(res->path),
			.strategy = res->strategy ? res->strategy : strategy,
			.parent = xstrdup(plan_file_parent(&s->file, res)),
			.work_in_store = res->work_in_store,
		};
	}
	for (size_t i = 0; i < a->n_given; i++) {
		const struct kind *kind = find_kind(a->given[i].row->name);

		if (kind)
			want(s, kind, a->given[i].value, strategy);
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

/* ---- making it ---- */

static void to_resources(const struct start *s, struct atoll_resource *ret)
{
	for (size_t i = 0; i < s->n; i++)
		ret[i] = (struct atoll_resource){
			.root = s->v[i].root,
			.strategy = s->v[i].strategy,
			.parent = s->v[i].parent,
			.work_in_store =
				s->v[i].work_in_store || args_has(&s->c->args, "work-in-store"),
		};
}

static unsigned start_flags(const struct start *s, unsigned flags)
{
	if (args_has(&s->c->args, "or-open"))
		flags |= ATOLL_START_OR_OPEN;
	return flags;
}

/* ---- nothing was named: the project of the current directory ---- */

/* RUN: databases do not count. */
static bool is_named(const struct start *s, bool run)
{
	for (size_t i = 0; i < s->c->args.n_given; i++) {
		const struct kind *kind = find_kind(s->c->args.given[i].row->name);

		if (kind && !(run && kind->is_beside))
			return true;
	}
	return s->file.n > 0;
}

static void say_project(const struct cli *c, const struct project_root *root, const char *here)
{
	cleanup_free char *path = plan_short_path(root->path);
	cleanup_free char *shown = escape_dup(path);
	cleanup_free char *below = escape_dup(here + strlen(root->path) + 1);

	if (args_has(&c->args, "cwd"))
		cli_say(c, "project %s (%s)", shown, root->kind);
	else
		cli_say(c, "project %s (%s), in %s", shown, root->kind, below);
}

/* A repository is taken for one, unless a strategy was asked for. */
static int want_project(struct start *s, bool *ret_guessed)
{
	const char *strategy = strategy_of(s->c);
	enum project_scope scope =
		args_has(&s->c->args, "here")
			? PROJECT_HERE
			: (enum project_scope)s->c->settings.v[SETTING_RUN_ROOT].number;
	cleanup_free char *here = realpath(".", NULL);
	struct error err = ERROR_INIT;
	struct project_root root;
	int r = here ? project_root_find(here, scope, &root) : -errno;

	if (r < 0) {
		(void)here_failed(r, &err);
		return cli_fail_error(s->c, &err);
	}
	r = project_root_check(&root, &err);
	if (r == 0 && strcmp(root.path, here) != 0)
		say_project(s->c, &root, here);
	*ret_guessed = root.is_git && !strategy;
	want(s, find_kind(*ret_guessed ? "git" : "dir"), root.path, strategy);
	free(root.path);
	return r < 0 ? cli_fail_error(s->c, &err) : 0;
}

/* What cannot be worked with as a repository is a directory still. */
static int start_as_dir(struct cli *c, const struct atoll_start *start,
                        struct atoll_resource *resource)
{
	cli_say(c, "as a directory: %s", atoll_result_message(c->res));
	resource->strategy = NULL;
	return atoll_plan_start_with(c->atoll, start, &c->plan, c->res);
}

int resources_start(struct cli *c, const struct atoll_start *how, bool *ret_opened)
{
	cleanup_start struct start s = { .c = c };
	cleanup_free struct atoll_resource *resources = NULL;
	struct atoll_start start = *how;
	bool guessed = false, named;
	int status, r;

	status = read_file(&s);
	if (status)
		return status;
	if (!start.name && !(start.flags & ATOLL_START_OWNED))
		start.name = s.file.name;
	named = is_named(&s, how->run_dir != NULL);
	if (named && args_has(&c->args, "here"))
		return cli_fail_usage(c, "--here is for when no other directory is named");
	make_room(&s);
	status = named ? 0 : want_project(&s, &guessed);
	if (status)
		return status;
	read_resources(&s);
	status = read_parents(&s);
	if (status == 0)
		status = cli_open_settled(c);
	if (status)
		return status;
	start.flags = start_flags(&s, start.flags);
	if (!named)
		start.flags |= ATOLL_START_AS_IS;
	resources = xcalloc(s.n, sizeof(*resources));
	to_resources(&s, resources);
	start.resources = resources;
	start.n_resources = s.n;
	r = atoll_plan_start_with(c->atoll, &start, &c->plan, c->res);
	if (r == -ATOLL_E_UNSUPPORTED && guessed)
		r = start_as_dir(c, &start, resources);
	if (r < 0) {
		status = cli_fail(c, r);
		cli_say(c, "no plan was made");
		return status;
	}
	cli_notes(c);
	if (ret_opened)
		*ret_opened = r > 0;
	return 0;
}

int resources_add(struct cli *c)
{
	cleanup_start struct start s = { .c = c };
	struct atoll_resource resource;
	int status, r;

	make_room(&s);
	read_resources(&s);
	if (s.n != 1)
		return cli_fail_usage(
			c, "add: give one resource: --dir, --git, --sqlite or --postgres");
	status = cli_open_plan_settled(c);
	if (status)
		return status;
	to_resources(&s, &resource);
	r = atoll_plan_add(c->plan, &resource, c->res);
	return r < 0 ? cli_fail(c, r) : 0;
}
