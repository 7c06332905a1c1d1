/* SPDX-License-Identifier: Apache-2.0 */
/* atoll add: one more resource for a plan that is there. */
#include "cli/decide.h"
#include "cli/resources.h"

#include <stdlib.h>

static int add_run(struct cli *c)
{
	const char *name;
	int status = resources_add(c);

	if (status)
		return status;
	if (c->json)
		return decide_json(c, 0);
	name = atoll_plan_name(c->plan);
	cli_say(c, "added to %s", name);
	cli_notes(c);
	cli_next(c, "atoll exec %s -- COMMAND, then atoll diff %s", name, name);
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "dir", "DIR", "a directory, with what commands of the plan wrote there so far" },
	{ "git", "DIR", "a git repository with its working tree" },
	{ "sqlite", "FILE", "an SQLite database" },
	{ "postgres", "URL", "a PostgreSQL database: postgres://USER@HOST/DATABASE" },
	{ "strategy", "NAME", "how it is isolated (default: what fits)" },
	{ "work-in-store", NULL, "keep the work in the store; a commit then copies it" },
	{ NULL, NULL, NULL },
};

const struct command cmd_add = {
	.name = "add",
	.run = add_run,
	.words = "[PLAN]",
	.summary = "add one more resource to a plan",
	.about = "A directory of the home that was private to the plan comes with what commands\n"
		 "wrote there. What was changed outside since is a conflict.",
	.options = options,
	.pick = PICK_AT_WORK,
	.max_words = 1,
	.here_only = true,
};
