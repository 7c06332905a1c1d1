/* SPDX-License-Identifier: Apache-2.0 */
/* atoll show: one plan, its resources and its history. Takes no lock. */
#include "cli/cli.h"

#include "util/clock.h"

#include <stdlib.h>

struct view {
	const struct cli *c;
	struct json *j; /* NULL: lines */
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
	if (!v->j) {
		put_plan(info, created);
		return 0;
	}
	json_string(v->j, "state", atoll_plan_state_name(info->state));
	json_bool(v->j, "owned", info->owned);
	json_bool(v->j, "abandoned", info->abandoned);
	json_bool(v->j, "in_doubt", info->in_doubt);
	json_string(v->j, "created", created);
	json_uint(v->j, "undoable_commits", info->batches);
	json_uint(v->j, "bytes", info->bytes);
	return 0;
}

static void put_sandbox(const struct atoll_sandbox_info *info)
{
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
}

static int show_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	struct view *v = user;

	if (!v->j) {
		put_sandbox(info);
		return 0;
	}
	json_open_object(v->j, NULL);
	json_string(v->j, "id", info->id);
	json_bytes(v->j, "root", info->root);
	json_string(v->j, "strategy", info->strategy);
	json_string(v->j, "state", atoll_sandbox_state_name(info->state));
	json_bytes(v->j, "area", info->area);
	json_string(v->j, "parent", info->parent);
	json_string(v->j, "error", info->error);
	json_uint(v->j, "bytes", info->bytes);
	json_close(v->j);
	return 0;
}

static int show_event(void *user, const struct atoll_event *event)
{
	char at[CLOCK_TEXT_LEN];
	struct view *v = user;

	clock_format(event->at_ms, at);
	if (v->j) {
		json_open_object(v->j, NULL);
		json_string(v->j, "at", at);
		json_string(v->j, "what", event->what);
		json_string(v->j, "code", atoll_code_name(event->code));
		json_string(v->j, "message", event->message);
		json_close(v->j);
		return 0;
	}
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

	if (v->j)
		json_open_array(v->j, "sandboxes");
	if (r >= 0)
		r = atoll_plan_sandboxes(c->plan, show_sandbox, v, c->res);
	if (v->j) {
		json_close(v->j);
		json_open_array(v->j, "history");
	} else if (r >= 0) {
		(void)puts("\nhistory");
	}
	if (r >= 0)
		r = atoll_plan_history(c->plan, show_event, v, c->res);
	if (v->j)
		json_close(v->j);
	return r;
}

static void say_next(const struct view *v)
{
	const char *name = atoll_plan_name(v->c->plan);

	if (v->in_doubt)
		cli_next(v->c, "atoll recover %s", name);
	else if (v->state == ATOLL_PLAN_COMMITTED && v->undoable)
		cli_next(v->c, "atoll rollback %s undoes it; atoll stop %s makes it final", name,
		         name);
	else if (v->state == ATOLL_PLAN_COMMITTED)
		cli_next(v->c, "atoll stop %s when it is no longer needed", name);
	else
		cli_next(v->c, "atoll diff %s", name);
}

static int show_run(struct cli *c)
{
	struct view v = { .c = c };
	struct json j;
	int status, r;

	status = cli_open_plan(c);
	if (status)
		return status;
	if (c->json) {
		v.j = &j;
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
	}
	r = show_all(&v);
	if (c->json) {
		json_string(&j, "code", atoll_code_name(r < 0 ? r : 0));
		cli_json_end(&j);
		return r < 0 ? atoll_code_exit(r) : EXIT_SUCCESS;
	}
	if (r < 0)
		return cli_fail(c, r);
	say_next(&v);
	return EXIT_SUCCESS;
}

const struct command cmd_show = {
	.name = "show",
	.run = show_run,
	.words = "PLAN",
	.summary = "show a plan, its resources and its history",
	.min_words = 1,
	.max_words = 1,
	.pages = true,
};
