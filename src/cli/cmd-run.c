/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll run: start, exec, diff, decide, in one go. Until the decision the plan is ours: killed
 * here, it is cleaned up later, or kept as abandoned when there is work in it.
 */
#include "cli/changes.h"
#include "cli/command.h"
#include "cli/question.h"
#include "cli/resources.h"

#include "util/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum decision { DECIDE_ASK = 0, DECIDE_COMMIT, DECIDE_ROLLBACK, DECIDE_KEEP, DECIDE_NOTHING };

static const char *const decision_names[] = {
	[DECIDE_ASK] = "asked", [DECIDE_COMMIT] = "committed",   [DECIDE_ROLLBACK] = "rolled back",
	[DECIDE_KEEP] = "kept", [DECIDE_NOTHING] = "no changes",
};

/* ---- what shall be done ---- */

static int read_decision(struct cli *c, enum decision *ret)
{
	static const struct {
		const char *option;
		enum decision decision;
	} table[] = {
		{ "commit", DECIDE_COMMIT },
		{ "rollback", DECIDE_ROLLBACK },
		{ "keep", DECIDE_KEEP },
	};

	*ret = DECIDE_ASK;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (!args_has(&c->args, table[i].option))
			continue;
		if (*ret != DECIDE_ASK)
			return cli_fail_usage(
				c, "run: --commit, --rollback and --keep exclude each other");
		*ret = table[i].decision;
	}
	return 0;
}

static enum decision ask(const struct cli *c)
{
	char line[32];

	if (c->json || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return DECIDE_KEEP;
	for (;;) {
		if (!question_ask("[c]ommit / [r]oll back / [k]eep? ", line, sizeof(line)))
			return DECIDE_KEEP;
		switch (line[0]) {
		case 'c':
			return DECIDE_COMMIT;
		case 'r':
			return DECIDE_ROLLBACK;
		case 'k':
			return DECIDE_KEEP;
		default:
			break;
		}
	}
}

/* ---- doing it ---- */

static int keep(struct cli *c, uint64_t changes)
{
	const char *name = atoll_plan_name(c->plan);
	int r = atoll_plan_keep(c->plan, c->res);

	if (r < 0)
		return cli_fail(c, r);
	cli_say(c, "kept %" PRIu64 " %s in plan %s; nothing real has changed", changes,
	        cli_plural(changes, "change", "changes"), name);
	cli_next(c, "atoll diff %s, then atoll commit %s or atoll rollback %s", name, name, name);
	return 0;
}

/* A commit that is refused leaves the work, and so the plan. */
static int commit(struct cli *c, uint64_t changes)
{
	const char *name = atoll_plan_name(c->plan);
	int r = atoll_plan_commit(c->plan, cli_policy(c), c->res), status;

	if (r < 0) {
		status = cli_fail(c, r);
		(void)keep(c, changes);
		return status;
	}
	cli_notes(c);
	r = atoll_plan_keep(c->plan, c->res);
	if (r < 0)
		return cli_fail(c, r);
	cli_say(c, "committed %s: %" PRIu64 " %s; undo: atoll rollback %s", name, changes,
	        cli_plural(changes, "change", "changes"), name);
	cli_next(c, "atoll stop %s when it is no longer needed", name);
	return 0;
}

static int drop(struct cli *c, bool said)
{
	int r = atoll_plan_stop(c->plan, ATOLL_FORCE, c->res);

	if (r < 0)
		return cli_fail(c, r);
	if (said)
		cli_say(c, "dropped the changes; everything is as before");
	return 0;
}

static int decide(struct cli *c, enum decision *d, const struct changes *ch, int exit_code)
{
	if (ch->n == 0) {
		*d = DECIDE_NOTHING;
		return drop(c, false);
	}
	if (!c->json && isatty(STDOUT_FILENO))
		changes_print(c, ch);
	if (*d == DECIDE_ASK)
		*d = ask(c);
	else if (*d == DECIDE_COMMIT && exit_code != 0) {
		cli_say(c, "the command failed with %d, so nothing is committed", exit_code);
		*d = DECIDE_KEEP;
	}
	if (question_signal()) /* then nothing is final */
		*d = DECIDE_KEEP;
	switch (*d) {
	case DECIDE_COMMIT:
		return commit(c, ch->n);
	case DECIDE_ROLLBACK:
		return drop(c, true);
	case DECIDE_ASK:
	case DECIDE_KEEP:
	case DECIDE_NOTHING:
		break;
	}
	return keep(c, ch->n);
}

struct outcome {
	enum decision decision;
	uint64_t changes;
};

static void put_outcome(const struct cli *c, struct json *j, void *ctx)
{
	const struct outcome *o = ctx;

	(void)c;
	json_string(j, "decision", decision_names[o->decision]);
	json_uint(j, "changes", o->changes);
}

/* Where it was run is recorded: `rollback` without a name looks for it. */
static int start(struct cli *c)
{
	cleanup_free char *here = realpath(".", NULL);
	const struct atoll_start how = { .flags = ATOLL_START_OWNED, .run_dir = here };

	return resources_start(c, &how, NULL);
}

static int run_run(struct cli *c)
{
	cleanup_changes struct changes ch = CHANGES_INIT;
	struct atoll_exec_status status = { 0 };
	struct atoll_exec exec = { .timeout_ms = c->settings.v[SETTING_EXEC_TIMEOUT].number };
	struct outcome o = { 0 };
	int failed, r;

	failed = read_decision(c, &o.decision);
	if (failed == 0)
		failed = command_options(c, &exec);
	if (failed == 0)
		failed = start(c);
	if (failed)
		return failed;
	r = command_run(c, c->args.words, c->args.n_words, &exec, &status);
	question_hold_signals();
	if (r < 0) {
		failed = cli_fail(c, r);
		/* One that was ended in the middle has done something. */
		if (changes_read(c, &ch) < 0 || ch.n > 0)
			(void)keep(c, ch.n);
		else
			(void)atoll_plan_stop(c->plan, ATOLL_FORCE, NULL);
		return failed;
	}
	r = changes_read(c, &ch);
	if (r < 0) {
		failed = cli_fail(c, r);
		(void)keep(c, 0);
		return failed;
	}
	if (status.timed_out)
		cli_say(c, "atoll: the command's time was up; it was ended");
	o.changes = ch.n;
	failed = decide(c, &o.decision, &ch, status.exit_code);
	question_obey_signal();
	if (failed)
		return failed;
	command_report(c, put_outcome, &o);
	return command_end(c);
}

static const struct option_row options[] = {
	RESOURCE_OPTIONS,
	COMMAND_OPTIONS,
	{ "commit", NULL, "commit if the command succeeds, else keep the plan" },
	{ "rollback", NULL, "drop the changes" },
	{ "keep", NULL, "keep the plan, decide later" },
	{ NULL, NULL, NULL },
};

const struct command cmd_run = {
	.name = "run",
	.run = run_run,
	.words = "[--] COMMAND [ARGUMENT]...",
	.summary = "start, run one command, show what it changed, and ask what to do",
	.about =
		"Without --dir, --git or --file: the project of the current directory, and a database\n"
		"that is given comes beside it. On a terminal it asks: commit, roll back or\n"
		"keep. Elsewhere, and with no option that says, the plan is kept. The exit status is\n"
		"the command's; 125 when atoll itself failed or a commit was refused: the command's is\n"
		"then in --json and --status-file.",
	.options = options,
	.min_words = 1,
	.max_words = SIZE_MAX,
	.stop_at = 1,
	.own_exit = EXIT_OWN,
	.here_only = true,
};
