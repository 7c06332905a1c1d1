/* SPDX-License-Identifier: Apache-2.0 */
/* atoll status: one plan, its resources and its history. Takes no lock. */
#include "cli/cli.h"

#include "plan/ask.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>

struct view {
	const struct cli *c;
	enum atoll_plan_state state;
	bool in_doubt;
	bool undoable;
};

static void put_plan(const struct atoll_plan_info *info, const char *created)
{
	char size[CLI_SIZE_LEN];

	(void)printf("plan     %s\nid       %s\nstate    %s%s%s%s\ncreated  %s\n", info->name,
	             info->id, atoll_plan_state_name(info->state), info->owned ? ", owned" : "",
	             info->abandoned ? ", abandoned" : "", info->in_doubt ? ", in doubt" : "",
	             created);
	cli_size(info->bytes, size);
	(void)printf("size     %s\n", size);
	if (info->batches > 0)
		(void)printf("undo     %zu %s can be undone\n", info->batches,
		             cli_plural(info->batches, "commit", "commits"));
}

static int show_plan(void *user, const struct atoll_plan_info *info)
{
	char created[CLOCK_TEXT_LEN];
	struct view *v = user;

	v->state = info->state;
	v->in_doubt = info->in_doubt;
	v->undoable = info->batches > 0;
	clock_format(info->created_ms, created);
	put_plan(info, created);
	return 0;
}

/* One line of what somebody waits for, and whether it still is what he saw. */
static int show_ask(void *user, const struct ask_row *row)
{
	char at[CLOCK_TEXT_LEN], digest[ATOLL_DIGEST_LEN];
	struct view *v = user;

	clock_format(row->at_ms, at);
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
	char at[CLOCK_TEXT_LEN];

	(void)user;
	clock_format(event->at_ms, at);
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
	else if (v->state == ATOLL_PLAN_COMMITTED && v->undoable)
		cli_next(v->c, "atoll rollback %s undoes it; atoll rm %s makes it final", name,
		         name);
	else if (v->state == ATOLL_PLAN_COMMITTED)
		cli_next(v->c, "atoll rm %s when it is no longer needed", name);
	else
		cli_next(v->c, "atoll diff %s", name);
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
	.summary = "show a plan, its resources and its history",
	.pick = PICK_LATEST,
	.max_words = 1,
	.reads = true,
	.pages = true,
	.here_only = true,
};
