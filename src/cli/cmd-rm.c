/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll rm, also called stop: the end of plans. What they committed stays and cannot be undone any more; what they
 * keep is removed.
 *
 * Each plan goes as a whole or stays as it is, whatever becomes of the others. What would be lost with it,
 * uncommitted changes or a command that runs in it, is asked for on a terminal; elsewhere such a plan stays
 * unless --force is given. Plans that --all, --committed or --here choose are listed and asked for together.
 */
#include "cli/cli.h"

#include "answer/remains.h"
#include "cli/decide.h"
#include "cli/interrupt.h"
#include "cli/question.h"
#include "cli/there.h"
#include "diff/change.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RUNS "atoll exec " /* a holder that runs a command */

/* A plan to be removed, as it was when it was looked at. */
struct target {
	char *id, *name;
	bool is_here; /* a resource holds the current directory */
	bool has_commits;
	bool in_doubt;   /* what its changes are is known after recovery, which the removal tries */
	int64_t changes; /* that are not committed; negative: they cannot be read */
	char *running;   /* the command that runs in it; or "" */
	pid_t pid;       /* of the process that runs it; 0: none, or not known */
	char *kept;      /* a directory of versions that are nowhere else; or NULL */
};

struct removal {
	struct cli *c;
	char *here; /* the current directory; NULL: not known */
	struct target *v;
	size_t n, cap;
	bool one;             /* the user named a single plan: the answer is about that plan */
	bool force;           /* what would be lost may be */
	struct json *j;       /* an array of plans is open; or NULL */
	struct strbuf failed; /* names */
	int worst;            /* exit status */
};

static void target_done(struct target *t)
{
	free(t->id);
	free(t->name);
	free(t->running);
	free(t->kept);
}
#define cleanup_target __attribute__((__cleanup__(target_done)))

static void removal_done(struct removal *rm)
{
	for (size_t i = 0; i < rm->n; i++)
		target_done(&rm->v[i]);
	free(rm->v);
	free(rm->here);
	strbuf_done(&rm->failed);
}
#define cleanup_removal __attribute__((__cleanup__(removal_done)))

/* ---- what would be lost ---- */

/* The one that runs the command: another may hold the plan by now, and a commit is none to be ended. */
static int note_holder(void *user, const struct atoll_lock_info *info)
{
	struct target *t = user;

	if (strcmp(info->kind, "plan") == 0 && info->ahead == 0 &&
	    strncmp(info->command, RUNS, strlen(RUNS)) == 0)
		t->pid = info->pid;
	return 0;
}

static void fill_target(const struct removal *rm, const struct atoll_plan_info *info,
                        struct target *ret)
{
	*ret = (struct target){ .id = xstrdup(info->id),
		                .name = xstrdup(info->name),
		                .has_commits =
		                        info->batches > 0 || info->state == ATOLL_PLAN_COMMITTED,
		                .in_doubt = info->in_doubt,
		                .running = xstrdup(info->running) };
	for (const char *const *root = info->roots; rm->here && *root; root++)
		ret->is_here |= path_below(rm->here, *root);
}

/* Without a lock: the removal itself looks again, under the plan's. */
static void look_at(const struct removal *rm, struct target *t)
{
	struct atoll_plan *p = NULL;

	if (atoll_plan_find(rm->c->atoll, t->id, &p, NULL) < 0)
		return; /* gone meanwhile */
	if (!t->in_doubt)
		t->changes = atoll_plan_diff(p, NULL, NULL, NULL);
	t->kept = plan_kept_versions(p);
	if (*t->running)
		(void)atoll_lock_list(rm->c->atoll, t->id, note_holder, t, NULL);
	atoll_plan_free(p);
}

/* "12 uncommitted changes, 'npm test' is running"; the caller frees. NULL: nothing that --force is for would be
 * lost. What is kept in a directory of its own is refused by the removal, in better words. */
static char *name_loss(const struct target *t)
{
	cleanup_strbuf struct strbuf text = STRBUF_INIT;

	if (t->changes < 0)
		strbuf_puts(&text, "changes that cannot be read");
	else if (t->changes > 0)
		strbuf_printf(&text, "%" PRId64 " uncommitted %s", t->changes,
		              cli_plural((uint64_t)t->changes, "change", "changes"));
	if (*t->running)
		strbuf_printf(&text, "%s'%s' is running", text.len ? ", " : "", t->running);
	return text.len ? strbuf_take(&text) : NULL;
}

/* For a question, whose yes covers all of it. */
static char *name_all_loss(const struct target *t)
{
	cleanup_free char *what = name_loss(t);

	if (!t->kept)
		return take_ptr(what);
	return xasprintf("%s%sversions that are nowhere else in '%s'", what ? what : "",
	                 what ? ", " : "", t->kept);
}

static bool may_ask(const struct removal *rm)
{
	return !rm->force && !rm->c->yes && !rm->c->json && question_possible();
}

/* ---- one plan ---- */

/* OWN: an error that is not in c->res; it is freed. */
static void fail_target(struct removal *rm, const char *name, int code, struct error *own)
{
	struct cli *c = rm->c;
	int status = atoll_code_exit(code);

	if (rm->j) {
		json_open_object(rm->j, NULL);
		json_string(rm->j, "name", name);
		json_bool(rm->j, "removed", false);
		json_string(rm->j, "code", atoll_code_name(code));
		json_string(rm->j, "message", own ? own->msg : atoll_result_message(c->res));
		json_string(rm->j, "hint", own ? own->hint : atoll_result_hint(c->res));
		json_close(rm->j);
		if (own)
			error_done(own);
	} else {
		status = own ? cli_fail_error(c, own) : cli_fail(c, code);
	}
	rm->worst = status > rm->worst ? status : rm->worst;
	strbuf_printf(&rm->failed, "%s%s", rm->failed.len ? ", " : "", name);
}

/* True: what would be lost may be. */
static bool may_lose(struct removal *rm, const struct target *t, const char *what)
{
	cleanup_free char *question =
		xasprintf("plan %s: %s. Remove it all the same?", t->name, what);
	struct error err = ERROR_INIT;

	if (rm->force)
		return true;
	if (may_ask(rm)) {
		if (cli_confirm(rm->c, question))
			return true;
		cli_say(rm->c, "plan %s stays", t->name);
		rm->worst = rm->worst > EXIT_FAILURE ? rm->worst : EXIT_FAILURE;
		return false;
	}
	(void)error_set(&err, -ATOLL_E_STATE, "plan '%s': %s; nothing of it was removed", t->name,
	                what);
	error_hint(&err, "atoll rm --force %s%s%s%s", t->name,
	           *t->running ? " ends the command" : "", *t->running && t->changes ? " and" : "",
	           t->changes ? " drops the changes" : "");
	fail_target(rm, t->name, -ATOLL_E_STATE, &err);
	return false;
}

static int end_command(struct cli *c, const struct target *t)
{
	struct atoll_lock_broken broken;
	int r = *t->running && t->pid ? atoll_lock_break(c->plan, t->pid, &broken, c->res) : 0;

	return r == -ATOLL_E_STATE ? 0 : r; /* it ended by itself */
}

static void report_removed(struct removal *rm, const struct target *t, uint64_t freed)
{
	if (rm->j) {
		json_open_object(rm->j, NULL);
		json_string(rm->j, "name", t->name);
		json_string(rm->j, "id", t->id);
		json_bool(rm->j, "removed", true);
		json_uint(rm->j, "bytes", freed);
		json_close(rm->j);
	} else if (rm->c->json) {
		(void)decide_json(rm->c, 0);
	} else {
		cli_say(rm->c, "removed %s", t->name);
		cli_notes(rm->c);
	}
}

/* c->plan is T's. */
static void remove_plan(struct removal *rm, const struct target *t)
{
	cleanup_remains struct remains m = REMAINS_INIT;
	cleanup_free char *what = may_ask(rm) ? name_all_loss(t) : name_loss(t);
	struct cli *c = rm->c;
	int r;

	if (what && !may_lose(rm, t, what))
		return;
	(void)atoll_plan_paths(c->plan, remains_note, &m, NULL);
	r = end_command(c, t);
	if (r >= 0)
		r = atoll_plan_stop(c->plan, rm->force || what ? ATOLL_FORCE : 0, c->res);
	if (r < 0)
		fail_target(rm, t->name, r, NULL);
	else
		report_removed(rm, t, remains_freed(&m));
}

static int open_plan(struct cli *c, const char *ref)
{
	atoll_plan_free(c->plan);
	c->plan = NULL;
	atoll_result_free(c->res);
	c->res = atoll_result_new();
	return atoll_plan_find(c->atoll, ref, &c->plan, c->res);
}

struct looking {
	const struct removal *rm;
	struct target *t;
};

static int take_info(void *user, const struct atoll_plan_info *info)
{
	struct looking *l = user;

	fill_target(l->rm, info, l->t);
	return 0;
}

/* The whole name or id, or "-", the only one: what is gone does not come back. */
static void remove_named(struct removal *rm, const char *name)
{
	cleanup_target struct target t = { 0 };
	struct looking l = { rm, &t };
	struct error err = ERROR_INIT;
	struct cli *c = rm->c;
	int r = open_plan(c, name);

	if (r >= 0 && strcmp(name, "-") != 0 && strcmp(name, atoll_plan_name(c->plan)) != 0 &&
	    strcmp(name, atoll_plan_id(c->plan)) != 0) {
		(void)error_set(&err, -ATOLL_E_NOT_FOUND,
		                "'%s' is not the whole name of a plan; nothing was removed", name);
		error_hint(&err, "atoll rm %s", atoll_plan_name(c->plan));
		fail_target(rm, name, -ATOLL_E_NOT_FOUND, &err);
		return;
	}
	if (r >= 0)
		r = atoll_plan_show(c->plan, take_info, &l, c->res);
	if (r < 0) {
		fail_target(rm, name, r, NULL);
		return;
	}
	look_at(rm, &t);
	remove_plan(rm, &t);
}

/* ---- those that options choose ---- */

static int add_target(void *user, const struct atoll_plan_info *info)
{
	struct removal *rm = user;

	if (grow((void **)&rm->v, &rm->cap, rm->n + 1, sizeof(*rm->v)) < 0)
		return -ENOMEM;
	fill_target(rm, info, &rm->v[rm->n++]);
	return 0;
}

static bool is_chosen(const struct removal *rm, const struct target *t)
{
	const struct args *args = &rm->c->args;

	if (args_has(args, "committed") && (!t->has_commits || t->changes != 0 || *t->running))
		return false;
	return t->is_here || !args_has(args, "here");
}

static int choose(struct removal *rm)
{
	size_t kept = 0;
	int r = atoll_plan_list(rm->c->atoll, add_target, rm, rm->c->res);

	if (r < 0)
		return cli_fail(rm->c, r);
	for (size_t i = 0; i < rm->n; i++) {
		look_at(rm, &rm->v[i]);
		if (is_chosen(rm, &rm->v[i]))
			rm->v[kept++] = rm->v[i];
		else
			target_done(&rm->v[i]);
	}
	rm->n = kept;
	return 0;
}

/* One question about all; an exit status. */
static int confirm_chosen(struct removal *rm)
{
	struct cli *c = rm->c;
	cleanup_free char *question = NULL;
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < rm->n; i++) {
		cleanup_free char *what = name_all_loss(&rm->v[i]);

		cli_say(c, "  %-24s  %s", rm->v[i].name,
		        what                   ? what
		        : rm->v[i].has_commits ? "committed"
		                               : "no changes");
	}
	if (rm->force || c->yes)
		return 0;
	if (c->json || !question_possible()) {
		(void)error_set(&err, -ATOLL_E_STATE,
		                "without a question it needs --yes; nothing was removed");
		error_hint(&err, "the same with --yes, or with --force also what is not committed");
		return cli_fail_error(c, &err);
	}
	question = xasprintf("remove %zu %s? What is not committed is lost, and no commit of them "
	                     "can be undone any more",
	                     rm->n, cli_plural(rm->n, "plan", "plans"));
	rm->force = cli_confirm(c, question);
	if (rm->force)
		return 0;
	cli_say(c, "nothing was removed");
	return EXIT_FAILURE;
}

static void remove_chosen(struct removal *rm)
{
	for (size_t i = 0; i < rm->n && !interrupt_signal(); i++) {
		int r = open_plan(rm->c, rm->v[i].id);

		/* One that is gone meanwhile went by itself. */
		if (r >= 0)
			remove_plan(rm, &rm->v[i]);
		else if (r != -ATOLL_E_NOT_FOUND)
			fail_target(rm, rm->v[i].name, r, NULL);
	}
}

/* ---- the command ---- */

static int remove_all(struct removal *rm, bool chosen)
{
	struct cli *c = rm->c;
	struct json j;

	if (c->json && !rm->one) {
		cli_json_begin(c, &j);
		json_open_array(&j, "plans");
		rm->j = &j;
	}
	if (chosen)
		remove_chosen(rm);
	for (size_t i = 0; i < c->args.n_words && !interrupt_signal(); i++)
		remove_named(rm, c->args.words[i]);
	if (rm->j) {
		json_close(&j);
		cli_json_end(&j);
	}
	if (rm->failed.len && !rm->one)
		cli_say(c, "not removed: %s", strbuf_str(&rm->failed));
	interrupt_obey();
	if (rm->worst == 0)
		cli_next(c, "atoll list shows what is left");
	return rm->worst;
}

static int rm_run(struct cli *c)
{
	cleanup_removal struct removal rm = { .c = c,
		                              .here = realpath(".", NULL),
		                              .one = c->args.n_words == 1,
		                              .force = args_has(&c->args, "force"),
		                              .failed = STRBUF_INIT };
	bool chosen = args_has(&c->args, "all") || args_has(&c->args, "committed") ||
	              args_has(&c->args, "here");
	int status;

	if (chosen && c->args.n_words > 0)
		return cli_fail_usage(c, "rm: either names, or --all, --committed, --here");
	if (!chosen && c->args.n_words == 0)
		return cli_fail_usage(c, "rm: missing argument: atoll rm PLAN...");
	status = cli_open_settled(c);
	if (status == 0 && chosen)
		status = choose(&rm);
	if (status)
		return status;
	if (chosen && rm.n == 0)
		cli_say(c, "no such plans");
	else if (chosen)
		status = confirm_chosen(&rm);
	return status ? status : remove_all(&rm, chosen);
}

static const struct option_row options[] = {
	{ "force", NULL,
	  "also with uncommitted changes, which are lost, or a running command, which\n"
	  "is ended" },
	{ "all", NULL, "all plans" },
	{ "committed", NULL, "those with commits, no uncommitted changes, and no running command" },
	{ "here", NULL, "those with a resource that holds the current directory" },
	{ NULL, NULL, NULL },
};

const struct command cmd_rm = {
	.name = "rm",
	.also = "stop",
	.object = "stop",
	.run = rm_run,
	.decides = true,
	.words = "[PLAN]...",
	.everyday = true,
	.summary = "end plans and free what they keep; their commits stay and become final",
	.about =
		"It takes whole names. Each plan goes as a whole or stays as it is; the exit status of\n"
		"several is the worst. With uncommitted changes or a running command it asks on a\n"
		"terminal; elsewhere it refuses without --force. --all, --committed and --here, alone or\n"
		"together, list what they choose and ask once; in a script they need --yes, or --force.",
	.options = options,
	.max_words = SIZE_MAX,
	.there = &there_stop,
};
