/* SPDX-License-Identifier: Apache-2.0 */
/* atoll shell: the user's shell in a plan. */
#include "cli/command.h"
#include "cli/there.h"

#include <stdlib.h>
#include <unistd.h>

static int shell_run(struct cli *c)
{
	struct atoll_exec_status status = { 0 };
	struct atoll_exec exec = { 0 };
	const char *name;
	int failed, r;

	failed = command_options(c, &exec);
	if (failed == 0)
		failed = cli_open_plan_settled(c);
	if (failed)
		return failed;
	name = atoll_plan_name(c->plan);
	r = command_run_shell(c, &exec, &status);
	if (r < 0)
		return cli_fail(c, r);
	cli_next(c, "atoll diff %s, then atoll commit %s or atoll discard %s", name, name, name);
	command_report(c, NULL, NULL);
	return command_end(c);
}

static const struct option_row options[] = {
	COMMAND_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command cmd_shell = {
	.name = "shell",
	.run = shell_run,
	.words = "[PLAN]",
	.summary = "open a shell in a plan",
	.about = "Runs $SHELL, else /bin/sh, as atoll exec would.",
	.options = options,
	.pick = PICK_AT_WORK,
	.max_words = 1,
	.own_exit = EXIT_OWN,
	.there = &there_shell,
};
