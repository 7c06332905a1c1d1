/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll exec: a command in a plan, as if it had been called directly: its input, output, signals
 * and exit status are its own.
 */
#include "cli/background.h"
#include "cli/command.h"
#include "cli/there.h"

#include "helper/run.h"
#include "diff/change.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/process.h"

#include <stdlib.h>

static int report(struct cli *c)
{
	const char *name = atoll_plan_name(c->plan);

	command_report(c, NULL, NULL);
	if (c->ran->timed_out)
		cli_say(c, "atoll: the command's time was up; it was ended");
	cli_next(c, "atoll diff %s, then atoll commit %s or atoll discard %s", name, name, name);
	return command_end(c);
}

/* In a copy of this process. */
static int be_helper(void *ctx)
{
	const struct cli *c = ctx;

	process_rename(c->argv, "atoll-helper");
	return run_helper();
}

static int look_whether_around(void *user, const struct atoll_sandbox_info *info)
{
	const char **cwd = user;

	if (*cwd && path_below(*cwd, info->root))
		*cwd = NULL;
	return 0;
}

/* What is written there fails, or stays with the plan: said before the user waits for it. On a terminal and in the
 * object of --json; elsewhere standard error is the command's alone. */
static void warn_outside(struct cli *c, const struct atoll_exec *exec)
{
	cleanup_free char *named = store_user_dir();
	cleanup_free char *home = named ? realpath(named, NULL) : NULL;
	cleanup_free char *cwd = realpath(exec->cwd ? exec->cwd : ".", NULL);
	cleanup_free char *text = NULL;
	const char *outside = cwd;

	if (!c->json && !cli_is_terminal(c, stderr))
		return;
	if (!cwd || !home || !path_below(cwd, home) || args_has(&c->args, "at") ||
	    c->fence.fence.home != ATOLL_HOME_SCRATCH ||
	    atoll_plan_sandboxes(c->plan, look_whether_around, &outside, NULL) < 0 || !outside)
		return;
	text = xasprintf(
		"'%s' is in no resource of plan %s: what is written there is not committed", cwd,
		atoll_plan_name(c->plan));
	strlist_add(&c->ran_notes, text);
	cli_say(c, "atoll: %s", text);
}

static int exec_run(struct cli *c)
{
	struct atoll_exec_status status = { 0 };
	struct atoll_exec exec = { .timeout_ms = c->settings.v[SETTING_EXEC_TIMEOUT].number };
	int failed, r;

	if (c->args.n_before_dashes != 0 && c->args.n_words < 2)
		return cli_fail_usage(c,
		                      "exec: missing argument: where no plan is named, -- stands "
		                      "before the command: atoll exec -- %s",
		                      c->args.words[0]);
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
	warn_outside(c, &exec);

	r = command_run(c, c->args.words, c->args.n_words, &exec, &status);
	return r < 0 ? cli_fail(c, r) : report(c);
}

static const struct option_row options[] = {
	{ "background", "NAME",
	  "do not wait for the command: it becomes the job NAME (atoll job)" },
	{ "shared", NULL,
	  "join the job or command that runs in the plan, instead of waiting for it" },
	COMMAND_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command cmd_exec = {
	.name = "exec",
	.run = exec_run,
	.words = "[PLAN] [--] COMMAND [ARGUMENT]...",
	.everyday = true,
	.summary = "run a command in a plan",
	.about =
		"COMMAND finds the resources at their own paths. What it changes there stays in the\n"
		"plan until a commit. The exit status is that of COMMAND; 124: its time was up; 125:\n"
		"atoll itself failed; 126: COMMAND cannot be run; 127: COMMAND was not found; 128+N:\n"
		"signal N ended it. With --json the last line of standard output is the object.",
	.options = options,
	.min_words = 1,
	.max_words = SIZE_MAX,
	.stop_at = 2,
	.own_exit = EXIT_OWN,
	.pick = PICK_AT_WORK,
	.program_follows = true,
	.there = &there_exec,
};
