/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll exec: a command in a plan, as if it had been called directly: its input, output, signals
 * and exit status are its own.
 */
#include "cli/background.h"
#include "cli/command.h"
#include "cli/there.h"

#include "helper/run.h"
#include "plan/plan.h"
#include "util/process.h"

static int report(struct cli *c)
{
	const char *name = atoll_plan_name(c->plan);

	command_report(c, NULL, NULL);
	if (c->ran->timed_out)
		cli_say(c, "atoll: the command's time was up; it was ended");
	/* Elsewhere than on a terminal standard error is the command's alone. */
	if (cli_is_terminal(c, stderr))
		cli_next(c, "atoll diff %s, then atoll commit %s or atoll rollback %s", name, name,
		         name);
	return command_end(c);
}

/* In a copy of this process. */
static int be_helper(void *ctx)
{
	const struct cli *c = ctx;

	process_rename(c->argv, "atoll-helper");
	return run_helper();
}

static int exec_run(struct cli *c)
{
	struct atoll_exec_status status = { 0 };
	struct atoll_exec exec = { .timeout_ms = c->settings.v[SETTING_EXEC_TIMEOUT].number };
	int failed, r;

	failed = command_options(c, &exec);
	if (failed)
		return failed;
	if (args_has(&c->args, "background")) {
		if (!background_go(c, &failed))
			return failed;
	} else if (!args_has(&c->args, "shared")) {
		/* It gets ready while we look for the plan. */
		plan_exec_ahead(be_helper, c);
	}
	failed = cli_open_plan_settled(c);
	if (failed)
		return failed;

	r = command_run(c, c->args.words + 1, c->args.n_words - 1, &exec, &status);
	return r < 0 ? cli_fail(c, r) : report(c);
}

static const struct option_row options[] = {
	{ "background", "NAME", "do not wait for it: it becomes a job (atoll job)" },
	{ "shared", NULL,
	  "join the job or command that runs in the plan, instead of waiting for it" },
	COMMAND_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command cmd_exec = {
	.name = "exec",
	.run = exec_run,
	.words = "PLAN [--] COMMAND [ARGUMENT]...",
	.summary = "run a command in a plan",
	.about =
		"It sees its changes at the resources' own paths; nothing real has changed. The\n"
		"exit status is the command's; 124 when its time was up, 125 when atoll itself failed,\n"
		"126 and 127 when the command cannot be run or found, 128+N when signal N ended it.\n"
		"With --json the last line of standard output is the object.",
	.options = options,
	.min_words = 2,
	.max_words = SIZE_MAX,
	.stop_at = 2,
	.own_exit = EXIT_OWN,
	.there = &there_exec,
};
