/* SPDX-License-Identifier: Apache-2.0 */
/* atoll refresh: what changed outside comes into the plan. */
#include "cli/decide.h"

#include <inttypes.h>
#include <stdlib.h>

static size_t count_conflicts(const struct cli *c)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_notes(c->res); i++)
		n += atoll_result_note(c->res, i)->kind == ATOLL_NOTE_CONFLICT;
	return n;
}

static int refresh_run(struct cli *c)
{
	const char *name;
	uint64_t taken;
	size_t left;
	int status, r;

	status = cli_open_plan_settled(c);
	if (status)
		return status;
	name = atoll_plan_name(c->plan);
	r = atoll_plan_refresh(c->plan, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, 0);
	(void)decide_count(c, ATOLL_OUTCOME_UNCHANGED, &taken);
	left = count_conflicts(c);
	if (taken > 0)
		cli_say(c, "refreshed %s: %" PRIu64 " %s from outside came in", name, taken,
		        cli_plural(taken, "change", "changes"));
	else
		cli_say(c, "refreshed %s", name);
	if (left > 0)
		cli_say(c, "%zu %s", left,
		        cli_plural(left, "conflict is left", "conflicts are left"));
	cli_notes(c);
	if (left > 0)
		cli_next(c, "atoll commit %s --ours PATH, or --theirs PATH", name);
	else
		cli_next(c, "atoll diff %s", name);
	return EXIT_SUCCESS;
}

const struct command cmd_refresh = {
	.name = "refresh",
	.run = refresh_run,
	.decides = true,
	.words = "[PLAN]",
	.summary = "bring into a plan what changed outside",
	.about =
		"Only where the plan changed nothing: what both changed is named and stays a conflict.\n"
		"No work is lost.",
	.pick = PICK_AT_WORK,
	.max_words = 1,
	.here_only = true,
};
