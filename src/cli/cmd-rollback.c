/* SPDX-License-Identifier: Apache-2.0 */
/* atoll rollback: commits are undone, work is dropped, everything is as it was. */
#include "cli/decide.h"

#include <stdlib.h>

static const struct decide_flag flag_table[] = {
	{ "allow", "partial", ATOLL_ALLOW_PARTIAL },
	{ "keep-theirs", NULL, ATOLL_KEEP_THEIRS },
	{ NULL, NULL, 0 },
};

static size_t count_restored(const struct cli *c)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_participants(c->res); i++)
		n += atoll_result_participant(c->res, i)->resource_restored == ATOLL_FACT_YES;
	return n;
}

static void say_what(const struct cli *c)
{
	const char *name = atoll_plan_name(c->plan);
	size_t restored = count_restored(c);
	uint64_t changes;
	size_t n = decide_count(c, ATOLL_OUTCOME_ROLLED_BACK, &changes);

	if (restored > 0)
		cli_say(c, "rolled back %s: %zu %s as before", name, restored,
		        cli_plural(restored, "directory is", "directories are"));
	else if (n > 0)
		cli_say(c, "rolled back %s: its work is dropped, nothing had been committed", name);
	else
		cli_say(c, "%s: no changes", name);
}

static int rollback_run(struct cli *c)
{
	unsigned flags;
	int status, r;

	status = decide_flags(c, flag_table, &flags);
	if (status == 0)
		status = cli_open_plan_settled(c);
	if (status)
		return status;
	r = atoll_plan_rollback(c->plan, flags, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, flags);
	say_what(c);
	cli_notes(c);
	cli_next(c, "atoll exec %s -- COMMAND to begin again, or atoll stop %s",
	         atoll_plan_name(c->plan), atoll_plan_name(c->plan));
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "keep-theirs", NULL, "leave alone what somebody changed since, undo the rest" },
	{ "allow", "partial", "partial: undo what can be, where some cannot" },
	{ NULL, NULL, NULL },
};

const struct command cmd_rollback = {
	.name = "rollback",
	.run = rollback_run,
	.words = "PLAN",
	.summary = "undo a plan's commits and drop its work",
	.about = "The very files that were there before come back. If one of them was changed by\n"
		 "somebody since the commit, nothing is undone and exit 3 names it.",
	.options = options,
	.min_words = 1,
	.max_words = 1,
};
