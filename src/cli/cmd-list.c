/* SPDX-License-Identifier: Apache-2.0 */
/* atoll list: all plans. Takes no lock and waits for nobody. */
#include "cli/cli.h"
#include "cli/there.h"

#include "plan/ask.h"
#include "util/clock.h"

#include <stdlib.h>

struct listing {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	size_t n;
	size_t in_doubt;
	struct strlist asked; /* ids of plans with an open ask */
};

static int note_ask(void *user, const struct ask_row *row)
{
	strlist_add(user, row->plan);
	return 0;
}

static void put_line(const struct atoll_plan_info *info, bool asked)
{
	char created[CLOCK_TEXT_LEN];
	char size[CLI_SIZE_LEN];

	clock_format(info->created_ms, created);
	cli_size(info->bytes, size);
	(void)printf("%-24s %-12s %9zu %8s  %s%s%s%s\n", info->name,
	             atoll_plan_state_name(info->state), info->sandboxes, size, created,
	             info->abandoned ? "  abandoned" : "",
	             info->in_doubt   ? "  in doubt"
	             : info->starting ? "  being made"
	                              : "",
	             asked ? "  asks for a commit" : "");
}

static int show_plan(void *user, const struct atoll_plan_info *info)
{
	struct listing *l = user;

	l->in_doubt += info->in_doubt;
	if (l->j) {
		(void)answer_plan(l->j, info);
	} else {
		if (l->n == 0)
			(void)printf("%-24s %-12s %9s %8s  %s\n", "PLAN", "STATE", "RESOURCES",
			             "SIZE", "CREATED");
		put_line(info, strlist_has(&l->asked, info->id));
	}
	l->n++;
	return 0;
}

static void say_next(const struct cli *c, const struct listing *l)
{
	if (l->n == 0)
		cli_say(c, "no plans");
	if (l->in_doubt > 0)
		cli_next(c, "atoll recover");
	else if (l->n == 0)
		cli_next(c, "atoll start NAME --dir PATH");
	else
		cli_next(c, "atoll show PLAN");
}

static void put_store(const struct cli *c, struct json *j)
{
	json_bytes(j, "store", atoll_home(c->atoll));
}

static int list_run(struct cli *c)
{
	struct listing l = { .c = c };
	struct json j;
	int status;

	status = cli_open(c);
	if (status)
		return status;
	/* Without them the list is as good. */
	if (!c->json)
		(void)plan_ask_list(c->atoll, NULL, true, note_ask, &l.asked, NULL);
	l.j = cli_list_begin(c, &j, "plans", put_store);
	status = cli_list_end(c, l.j, atoll_plan_list(c->atoll, show_plan, &l, c->res));
	if (status == 0 && !l.j)
		say_next(c, &l);
	strlist_done(&l.asked);
	return status;
}

const struct command cmd_list = {
	.name = "list",
	.also = "ls",
	.run = list_run,
	.words = "",
	.everyday = true,
	.summary = "list all plans",
	.reads = true,
	.pages = true,
	.there = &there_list,
};
