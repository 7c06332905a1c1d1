/* SPDX-License-Identifier: Apache-2.0 */
/* atoll status: one plan, its resources and its history. Takes no lock. */
#include "cli/cli.h"
#include "cli/plan-words.h"

#include "plan/ask.h"
#include "plan/plan-undo.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct view {
	const struct cli *c;
	enum atoll_plan_state state;
	int64_t changes; /* -1: they cannot be counted */
	bool in_doubt;
	bool is_running;
	bool undoable;
	bool redoable;
};

static void put_pending(const struct view *v, const struct atoll_plan_info *info)
{
	if (info->in_doubt && !*info->holder)
		(void)puts("pending  an interrupted operation: in doubt");
	else if (v->changes < 0)
		(void)puts("pending  changes that cannot be counted now");
	else if (v->changes == 0)
		(void)puts("pending  nothing");
	else
		(void)printf("pending  %" PRId64 " %s\n", v->changes,
		             cli_plural((uint64_t)v->changes, "change", "changes"));
}

static void put_commit(const char *verb, const struct batch_row *row)
{
	char at[PLAN_UNTIL_LEN], until[PLAN_UNTIL_LEN];

	plan_until_words(row->created_ms, at);
	plan_until_words(row->retain_until_ms, until);
	if (row->retain_until_ms)
		(void)printf("%s     the commit of %s, until %s\n", verb, at, until);
	else
		(void)printf("%s     the commit of %s, while the plan is there\n", verb, at);
}

static int put_undoable(void *user, const struct batch_row *row)
{
	(void)user;
	put_commit("undo", row);
	return 0;
}

static int put_redoable(void *user, const struct batch_row *row)
{
	struct view *v = user;

	v->redoable = true;
	put_commit("redo", row);
	return 0;
}

/* Nothing in TEXT can harm a terminal: see redact_command(). */
static void put_line(const char *key, const char *text)
{
	if (*text)
		(void)printf("%s%s\n", key, text);
}

static void put_plan(struct view *v, const struct atoll_plan_info *info)
{
	char created[CLOCK_TEXT_LEN], size[CLI_SIZE_LEN], age[CLI_AGE_LEN];

	(void)printf("plan     %s%s%s%s\n", info->name, info->from_run ? ", of run" : "",
	             info->owned ? ", owned" : "", info->abandoned ? ", abandoned" : "");
	put_pending(v, info);
	put_line("running  ", info->running);
	if (!*info->running)
		put_line("at work  ", info->holder);
	put_line("last     ", info->command);
	(void)plan_undoable(v->c->plan, put_undoable, NULL, NULL);
	(void)plan_undo_list(v->c->plan, UNDO_WAY_REDO, put_redoable, v, NULL);
	if (info->batches == 0 && info->state == ATOLL_PLAN_COMMITTED)
		(void)puts("commits  cannot be undone any more");
	cli_age(info->used_ms, age);
	cli_time(v->c, info->created_ms, created);
	cli_size(info->bytes, size);
	(void)printf("used     %s ago\nsize     %s\ncreated  %s\nid       %s\nstate    %s\n", age,
	             size, created, info->id, atoll_plan_state_name(info->state));
}

static int show_plan(void *user, const struct atoll_plan_info *info)
{
	struct view *v = user;

	v->state = info->state;
	v->in_doubt = info->in_doubt && !*info->holder;
	v->is_running = *info->running != '\0';
	v->undoable = info->batches > 0;
	v->changes = info->has_work ? atoll_plan_diff(v->c->plan, NULL, NULL, NULL) : 0;
	put_plan(v, info);
	return 0;
}

/* One line of what somebody waits for, and whether it still is what he saw. */
static int show_ask(void *user, const struct ask_row *row)
{
	char at[CLOCK_TEXT_LEN], digest[ATOLL_DIGEST_LEN];
	struct view *v = user;

	cli_time(v->c, row->at_ms, at);
	(void)printf("asked    %s  %s: ", at, row->who);
	cli_put_path(stdout, row->message);
	if (atoll_plan_digest(v->c->plan, digest, NULL) >= 0 && strcmp(digest, row->digest) != 0)
		(void)fputs("  (the work has changed since)", stdout);
	(void)putchar('\n');
	return 0;
}

static int show_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	(void)user;
	(void)fputs("\nresource ", stdout);
	cli_put_path(stdout, info->root);
	(void)printf("\n  sandbox  %s\n  strategy %s\n  state    %s\n  area     ", info->id,
	             info->strategy, atoll_sandbox_state_name(info->state));
	cli_put_path(stdout, info->area);
	(void)putchar('\n');
	if (*info->parent)
		(void)printf("  parent   %s\n", info->parent);
	if (*info->error) {
		(void)fputs("  error    ", stdout);
		cli_put_path(stdout, info->error);
		(void)putchar('\n');
	}
	return 0;
}

static int show_event(void *user, const struct atoll_event *event)
{
	const struct view *v = user;
	char at[CLOCK_TEXT_LEN];

	cli_time(v->c, event->at_ms, at);
	(void)printf("  %s  %s", at, event->what);
	if (event->code < 0)
		(void)printf(" [%s]", atoll_code_name(event->code));
	if (*event->message) {
		(void)fputs(": ", stdout);
		cli_put_path(stdout, event->message);
	}
	(void)putchar('\n');
	return 0;
}

static int show_all(struct view *v)
{
	const struct cli *c = v->c;
	int r = atoll_plan_show(c->plan, show_plan, v, c->res);

	/* Without it the rest is as good. */
	if (r >= 0)
		(void)plan_ask_list(c->atoll, atoll_plan_id(c->plan), true, show_ask, v, NULL);
	if (r >= 0)
		r = atoll_plan_sandboxes(c->plan, show_sandbox, v, c->res);
	if (r >= 0) {
		(void)puts("\nhistory");
		r = atoll_plan_history(c->plan, show_event, v, c->res);
	}
	return r;
}

static void say_next(const struct view *v)
{
	const char *name = atoll_plan_name(v->c->plan);

	if (v->in_doubt)
		cli_next(v->c, "atoll recover %s", name);
	else if (v->is_running)
		cli_next(v->c, "atoll diff %s shows what it changed so far", name);
	else if (v->changes != 0)
		cli_next(v->c, "atoll diff %s, then atoll commit %s or atoll discard %s", name,
		         name, name);
	else if (v->undoable)
		cli_next(v->c, "atoll undo %s undoes it; atoll rm %s makes it final", name, name);
	else if (v->redoable)
		cli_next(v->c, "atoll redo %s brings it back", name);
	else if (v->state == ATOLL_PLAN_COMMITTED)
		cli_next(v->c, "atoll rm %s when it is no longer needed", name);
	else
		cli_next(v->c, "atoll exec %s -- COMMAND", name);
}

static int status_run(struct cli *c)
{
	struct view v = { .c = c };
	struct json j;
	int status, r;

	status = cli_open_plan(c);
	if (status)
		return status;
	if (c->json) {
		cli_json_begin(c, &j);
		r = answer_show(&j, c->plan, c->res);
		cli_json_end(&j);
		return r < 0 ? atoll_code_exit(r) : EXIT_SUCCESS;
	}
	r = show_all(&v);
	if (r < 0)
		return cli_fail(c, r);
	say_next(&v);
	return EXIT_SUCCESS;
}

const struct command cmd_status = {
	.name = "status",
	.also = "show",
	.object = "show",
	.run = status_run,
	.words = "[PLAN]",
	.everyday = true,
	.summary = "show what is pending in a plan, what runs, what can be undone, what to type",
	.pick = PICK_LATEST,
	.max_words = 1,
	.reads = true,
	.pages = true,
	.here_only = true,
};
