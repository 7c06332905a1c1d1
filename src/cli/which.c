/* SPDX-License-Identifier: Apache-2.0 */
/* Which plan a command means. See which.h. */
#include "cli/which.h"

#include "cli/plan-words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/here.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define COMMAND_MAX 48
#define NAMED_MAX   8 /* candidates in a message; the rest is counted */

/* ---- the plans of this directory ---- */

struct candidate {
	char id[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1];
	char *command;
	int64_t used_ms;
	uint64_t bytes;
	bool is_busy; /* a command runs, or an interrupted operation is not finished */
	bool has_work;
};

struct candidates {
	struct candidate *v;
	size_t n, cap;
};

static void candidates_done(struct candidates *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].command);
	free(l->v);
}
#define cleanup_candidates __attribute__((__cleanup__(candidates_done)))

static int note_candidate(void *user, const struct atoll_plan_info *info)
{
	struct candidates *l = user;
	struct candidate *one;

	if (info->starting)
		return 0;
	if (grow((void **)&l->v, &l->cap, l->n + 1, sizeof(*l->v)) < 0)
		return -ENOMEM;
	one = &l->v[l->n++];
	*one = (struct candidate){ .command =
		                           xstrdup(*info->running ? info->running : info->command),
		                   .used_ms = info->used_ms,
		                   .bytes = info->bytes,
		                   .is_busy = *info->running || info->in_doubt,
		                   .has_work = info->has_work };
	(void)snprintf(one->id, sizeof(one->id), "%s", info->id);
	(void)snprintf(one->name, sizeof(one->name), "%s", info->name);
	return 0;
}

/* HERE: the current directory; the caller frees. */
static int list_here(struct cli *c, struct candidates *l, char **ret_here)
{
	cleanup_free char *here = realpath(".", NULL);
	struct error err = ERROR_INIT;

	if (!here) {
		(void)here_failed(-errno, &err);
		error_hint(&err, "cd to a directory that is there, or name the plan: atoll %s PLAN",
		           c->command->name);
		return cli_fail_error(c, &err);
	}
	if (plan_list_at(c->atoll, here, note_candidate, l, &err) < 0)
		return cli_fail_error(c, &err);
	*ret_here = take_ptr(here);
	return 0;
}

char *which_describe(const char *command, int64_t used_ms)
{
	cleanup_free char *shown = plan_short_command(command, COMMAND_MAX);
	char age[CLI_AGE_LEN];

	cli_age(used_ms, age);
	return *command ? xasprintf("%s ago: %s", age, shown) : xasprintf("%s ago", age);
}

/* "calm-reef-12 (2 h ago: npm test, 84K), late-pier-30 (...)" */
static char *name_them(const struct candidates *l)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < l->n && i < NAMED_MAX; i++) {
		const struct candidate *one = &l->v[i];
		cleanup_free char *use = which_describe(one->command, one->used_ms);
		char size[CLI_SIZE_LEN];

		cli_size(one->bytes, size);
		strbuf_printf(&sb, "%s%s (%s, %s)", i ? ", " : "", one->name, use, size);
	}
	if (l->n > NAMED_MAX)
		strbuf_printf(&sb, " and %zu more", l->n - NAMED_MAX);
	return strbuf_take(&sb);
}

/* ---- one of them ---- */

/* "job log": what is typed before the plan. */
static char *command_words(const struct cli *c)
{
	return xasprintf("%s%s%s", c->command->name, c->verb ? " " : "", c->verb ? c->verb : "");
}

static int open_candidate(struct cli *c, const struct candidate *one)
{
	int r = atoll_plan_find(c->atoll, one->id, &c->plan, c->res);

	return r < 0 ? cli_fail(c, r) : 0;
}

static int fail_none(struct cli *c, const char *here)
{
	cleanup_free char *words = command_words(c);
	struct error err = ERROR_INIT;

	(void)error_set(&err, -ATOLL_E_NOT_FOUND, "there is no plan for '%s'", here);
	error_hint(&err,
	           "atoll run -- COMMAND makes one; atoll list shows those elsewhere, and atoll %s "
	           "PLAN takes one of them",
	           words);
	return cli_fail_error(c, &err);
}

static int pick_latest(struct cli *c, const struct candidates *l)
{
	const struct candidate *latest = &l->v[0];
	cleanup_free char *use = NULL;

	for (size_t i = 1; i < l->n; i++)
		if (l->v[i].used_ms >= latest->used_ms)
			latest = &l->v[i];
	use = which_describe(latest->command, latest->used_ms);
	if (l->n > 1)
		cli_say(c, "plan %s, the last used of %zu here (%s)", latest->name, l->n, use);
	else
		cli_say(c, "plan %s (%s)", latest->name, use);
	return open_candidate(c, latest);
}

/* Looked at more closely only where a command or a tool was let in. */
static bool is_at_work(struct cli *c, const struct candidate *one)
{
	struct atoll_plan *p = NULL;
	bool has_changes;

	if (one->is_busy || !one->has_work)
		return one->is_busy;
	if (atoll_plan_find(c->atoll, one->id, &p, NULL) < 0)
		return false;
	has_changes = plan_has_changes(p);
	atoll_plan_free(p);
	return has_changes;
}

/* A command that decides about changes has nothing to decide about in a plan that is named, either. */
static const char *hint_without_work(const char *command)
{
	static const struct {
		const char *command, *hint;
	} hints[] = {
		{ "commit", "atoll run -- COMMAND, or atoll exec PLAN -- COMMAND, makes changes; "
		            "atoll redo brings back what was undone" },
		{ "discard", "what was committed is taken back with atoll undo; atoll rm PLAN "
		             "ends a plan" },
	};

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (strcmp(hints[i].command, command) == 0)
			return hints[i].hint;
	return NULL;
}

static int fail_pick(struct cli *c, const struct candidates *all, size_t n_at_work)
{
	cleanup_free char *names = name_them(all), *words = command_words(c);
	const char *hint;
	struct error err = ERROR_INIT;

	if (n_at_work == 0)
		(void)error_set(&err, -ATOLL_E_AMBIGUOUS,
		                "no plan here has uncommitted changes or a running command: %s",
		                names);
	else
		(void)error_set(&err, -ATOLL_E_AMBIGUOUS,
		                "several plans here have uncommitted changes or a running "
		                "command: %s",
		                names);
	hint = n_at_work == 0 ? hint_without_work(c->command->name) : NULL;
	if (hint)
		error_hint(&err, "%s", hint);
	else
		error_hint(&err, "name the plan: atoll %s %s%s", words, all->v[all->n - 1].name,
		           c->command->own_exit && strstr(c->command->words, "--") ? " -- COMMAND"
		                                                                   : "");
	return cli_fail_error(c, &err);
}

static int pick_at_work(struct cli *c, const struct candidates *l)
{
	struct candidates at_work = { 0 };
	int status;

	at_work.v = xcalloc(l->n, sizeof(*at_work.v));
	for (size_t i = 0; i < l->n; i++)
		if (is_at_work(c, &l->v[i]))
			at_work.v[at_work.n++] = l->v[i];
	if (at_work.n == 1)
		status = open_candidate(c, &at_work.v[0]);
	else
		status = fail_pick(c, at_work.n ? &at_work : l, at_work.n);
	free(at_work.v); /* the strings are L's */
	return status;
}

static int pick_here(struct cli *c, enum pick pick)
{
	cleanup_candidates struct candidates l = { 0 };
	cleanup_free char *here = NULL;
	int status = list_here(c, &l, &here);

	if (status)
		return status;
	if (l.n == 0)
		return fail_none(c, here);
	c->is_picked = true;
	return pick == PICK_LATEST ? pick_latest(c, &l) : pick_at_work(c, &l);
}

int which_plan_here(struct cli *c)
{
	cleanup_candidates struct candidates l = { 0 };
	cleanup_free char *here = NULL;
	int status = list_here(c, &l, &here);

	return status || l.n == 0 ? status : pick_latest(c, &l);
}

/* ---- the one that is named ---- */

char *which_take_word(struct args *a)
{
	char *word = a->words[0];

	memmove(a->words, a->words + 1, a->n_words * sizeof(*a->words)); /* with the NULL */
	a->n_words--;
	return word;
}

static int find_named(struct cli *c)
{
	const char *word = c->args.words[0];
	struct error err = ERROR_INIT;

	if (plan_open(c->atoll, word, &c->plan, &err) < 0) {
		if (c->command->program_follows && err.hint && strcmp(err.hint, "atoll list") == 0)
			error_hint(&err, "a command without a plan is behind --: atoll %s -- %s",
			           c->command->name, word);
		return cli_fail_error(c, &err);
	}
	(void)which_take_word(&c->args);
	return 0;
}

static int find_whole(struct cli *c)
{
	const char *word = c->args.words[0];
	struct error err = ERROR_INIT;
	int r = strcmp(word, "-") == 0 ? 0 : plan_open_whole(c->atoll, word, &c->plan, &err);

	if (r < 0)
		return cli_fail_error(c, &err);
	if (r > 0) {
		(void)which_take_word(&c->args);
		return 0;
	}
	if (strcmp(word, "-") == 0)
		return find_named(c);
	if (plan_open(c->atoll, word, &c->plan, &err) < 0)
		return cli_fail_error(c, &err);
	(void)error_set(&err, -ATOLL_E_NOT_FOUND,
	                "'%s' is not the whole name of a plan; nothing was changed", word);
	error_hint(&err, "atoll %s %s, if that is the one", c->command->name,
	           atoll_plan_name(c->plan));
	return cli_fail_error(c, &err);
}

/* The first word names a plan, and a path that a plan of this directory could hold. */
static int fail_both(struct cli *c, const char *word)
{
	struct error err = ERROR_INIT;

	(void)error_set(&err, -ATOLL_E_AMBIGUOUS, "'%s' is a plan and a path", word);
	error_hint(&err, "atoll %s ./%s for the path, atoll %s %s for the plan", c->command->name,
	           word, c->command->name, atoll_plan_id(c->plan));
	return cli_fail_error(c, &err);
}

int which_plan_word(struct cli *c)
{
	const char *word = c->args.words[0];
	cleanup_candidates struct candidates l = { 0 };
	cleanup_free char *here = NULL;
	struct error err = ERROR_INIT;
	struct stat st;
	int status, r;

	if (strcmp(word, "-") == 0)
		return find_named(c);
	r = plan_open_whole(c->atoll, word, &c->plan, &err);
	if (r <= 0)
		return r < 0 ? cli_fail_error(c, &err) : 0;
	/* The plans of this directory are listed only where they matter. */
	if (strcmp(word, atoll_plan_id(c->plan)) != 0 && lstat(word, &st) == 0) {
		status = list_here(c, &l, &here);
		if (status || l.n > 0)
			return status ? status : fail_both(c, word);
	}
	(void)which_take_word(&c->args);
	return 0;
}

/* The next word is not the whole name of a plan. Where no plan is meant without a name, it can only be one. */
static int pick_here_or_named(struct cli *c, enum pick pick)
{
	cleanup_candidates struct candidates l = { 0 };
	cleanup_free char *here = NULL;
	int status = list_here(c, &l, &here);

	if (status)
		return status;
	return l.n > 0 ? pick_here(c, pick) : find_named(c);
}

static int find_named_or_path(struct cli *c)
{
	int status = which_plan_word(c);

	return status || c->plan ? status : pick_here_or_named(c, c->command->pick);
}

int which_plan_or_word(struct cli *c, enum pick pick)
{
	struct error err = ERROR_INIT;
	int r;

	if (c->args.n_words == 0)
		return pick_here(c, pick);
	if (strcmp(c->args.words[0], "-") == 0)
		return find_named(c);
	r = plan_open_whole(c->atoll, c->args.words[0], &c->plan, &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	if (r == 0)
		return pick_here_or_named(c, pick);
	(void)which_take_word(&c->args);
	return 0;
}

int which_plan(struct cli *c)
{
	const struct command *cmd = c->command;

	/* "exec -- make": what follows is a command. */
	if (c->args.n_words == 0 || c->args.n_before_dashes == 0)
		return pick_here(c, cmd->pick);
	if (cmd->paths_follow)
		return find_named_or_path(c);
	return cmd->whole_names ? find_whole(c) : find_named(c);
}
