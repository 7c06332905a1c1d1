/* SPDX-License-Identifier: Apache-2.0 */
/* atoll stop: a plan's end. What it committed stays; what it kept is removed. */
#include "cli/decide.h"
#include "cli/there.h"

#include <stdlib.h>

static const struct decide_flag flag_table[] = {
	{ "force", NULL, ATOLL_FORCE },
	{ NULL, NULL, 0 },
};

static int stop_run(struct cli *c)
{
	unsigned flags;
	int status, r;

	status = decide_flags(c, flag_table, &flags);
	if (status == 0)
		status = cli_open_plan_settled(c);
	if (status)
		return status;
	if (flags & ATOLL_FORCE && !cli_confirm(c, "drop its uncommitted work?")) {
		cli_say(c, "nothing was done");
		return EXIT_FAILURE;
	}
	r = atoll_plan_stop(c->plan, flags, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, 0);
	cli_say(c, "stopped %s", atoll_plan_name(c->plan));
	cli_notes(c);
	cli_next(c, "atoll list shows what is left");
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "force", NULL, "also with uncommitted work, which is lost" },
	{ NULL, NULL, NULL },
};

const struct command cmd_stop = {
	.name = "stop",
	.run = stop_run,
	.decides = true,
	.words = "PLAN",
	.everyday = true,
	.summary = "end a plan and remove what it keeps; its commits stay and become final",
	.options = options,
	.min_words = 1,
	.max_words = 1,
	.there = &there_stop,
};
