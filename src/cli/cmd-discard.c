/* SPDX-License-Identifier: Apache-2.0 */
/* atoll reset: the work since the last commit is dropped, the plan goes on. */
#include "cli/decide.h"
#include "cli/there.h"

#include <stdlib.h>

static int reset_run(struct cli *c)
{
	const char *name;
	int status, r;

	status = cli_open_plan_settled(c);
	if (status)
		return status;
	name = atoll_plan_name(c->plan);
	r = atoll_plan_reset(c->plan, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, 0);
	cli_say(c, "reset %s: its work is dropped, it begins from what is there now", name);
	cli_notes(c);
	cli_next(c, "atoll exec %s -- COMMAND", name);
	return EXIT_SUCCESS;
}

const struct command cmd_reset = {
	.name = "reset",
	.run = reset_run,
	.decides = true,
	.words = "PLAN",
	.summary = "drop a plan's uncommitted work and begin again from what is there now",
	.about = "Commits of the plan stay. It is the way out of a conflict, too.",
	.min_words = 1,
	.max_words = 1,
	.there = &there_reset,
};
