/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll run: start, exec, diff, decide, in one go. Until the decision the plan is ours: killed
 * here, it is cleaned up later, or kept as abandoned when there is work in it.
 */
#include "answer/diff-view.h"
#include "answer/summary.h"
#include "cli/changes.h"
#include "cli/command.h"
#include "cli/decide.h"
#include "cli/interrupt.h"
#include "cli/pager.h"
#include "cli/question.h"
#include "cli/resources.h"

#include "plan/plan.h"
#include "plan/private-files.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SCREEN_ROWS 24 /* where the terminal does not say */

enum decision {
	DECIDE_ASK = 0,
	DECIDE_COMMIT,
	DECIDE_ROLLBACK,
	DECIDE_KEEP,
	DECIDE_NOTHING,
	DECISION_END_
};

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

/* ---- the question ---- */

#define ANSWER_DIFF DECISION_END_

static const struct question_answer answers[] = {
	{ "c", DECIDE_COMMIT },
	{ "commit", DECIDE_COMMIT },
	{ "d", ANSWER_DIFF },
	{ "diff", ANSWER_DIFF },
	{ "k", DECIDE_KEEP },
	{ "keep", DECIDE_KEEP },
	{ "x", DECIDE_ROLLBACK },
	{ "discard", DECIDE_ROLLBACK },
	{ "r", DECIDE_ROLLBACK },
	{ "rollback", DECIDE_ROLLBACK },
	{ "roll back", DECIDE_ROLLBACK },
	{ NULL, 0 },
};

/* How the command ended, where it did not succeed. */
static void say_status(struct strbuf *sb, const struct atoll_exec_status *status)
{
	const char *name = sigabbrev_np(status->term_signal);

	if (status->timed_out)
		return; /* that was said */
	if (status->term_signal && name)
		strbuf_printf(sb, "killed by SIG%s\n", name);
	else if (status->term_signal)
		strbuf_printf(sb, "killed by signal %d\n", status->term_signal);
	else if (status->exit_code)
		strbuf_printf(sb, "exit %d\n", status->exit_code);
}

#define QUESTION "[c]ommit  [d]iff  [k]eep  [x] discard ? "

/* What there is to decide about, on half the screen together with the question. */
static char *describe(const struct cli *c, const struct changes *ch,
                      const struct atoll_exec_status *status)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_free char *here = realpath(".", NULL);
	struct winsize size = { 0 };
	struct summary_view v = { .here = here };
	size_t taken; /* lines: by the question and how the command ended */

	(void)ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
	v.width = size.ws_col ? size.ws_col : DIFF_WIDTH;
	v.lines = (size.ws_row ? size.ws_row : SCREEN_ROWS) / 2u;
	for (int i = 0; i < PAINT_END_; i++)
		v.paint[i] = cli_paint(c, stderr, (enum paint)i);
	say_status(&sb, status);
	taken = 1 + (strlen(QUESTION) - 1) / v.width + (sb.len > 0);
	v.lines = v.lines > taken ? v.lines - taken : 1;
	summary_add(&sb, &v, ch->v, ch->n);
	return strbuf_take(&sb);
}

static void show_patch(struct cli *c)
{
	struct diff_view v;
	struct pager p;

	pager_open(c, &p);
	diff_view_init(&v, c->plan, p.f);
	v.form = DIFF_PATCH;
	v.res = c->res;
	v.gives_up = v.is_seen = true;
	for (int i = 0; i < PAINT_END_; i++)
		v.paint[i] = cli_paint(c, stderr, (enum paint)i);
	if (diff_show(&v) < 0 && !ferror(p.f))
		(void)fprintf(p.f, "atoll: not all of the changes could be read: %s\n",
		              v.err.code ? v.err.msg : atoll_result_message(c->res));
	diff_view_done(&v);
	pager_close(&p);
}

static enum decision ask(struct cli *c, const char *above)
{
	struct question q = { .above = above,
		              .text = QUESTION,
		              .choices = "c: commit, d: show the diff, k: keep the plan and decide "
		                         "later, x: discard the changes",
		              .answers = answers };
	int answer;

	while ((answer = question_ask(&q)) == ANSWER_DIFF) {
		show_patch(c);
		q.above = NULL;
	}
	return answer < 0 ? DECIDE_ASK : (enum decision)answer;
}

/* ---- doing it ---- */

static void say_kept(const struct cli *c, uint64_t changes)
{
	const char *name = atoll_plan_name(c->plan);

	cli_say(c, "kept %" PRIu64 " %s in plan %s; nothing real has changed", changes,
	        cli_plural(changes, "change", "changes"), name);
	cli_next(c, "atoll diff %s, then atoll commit %s or atoll discard %s", name, name, name);
}

static int keep(struct cli *c, uint64_t changes)
{
	int r = atoll_plan_keep(c->plan, c->res);

	if (r < 0)
		return cli_fail(c, r);
	say_kept(c, changes);
	return 0;
}

/* A commit that is refused leaves the work, and so the plan; one that is left unfinished, too. So it is
 * kept first. */
static int commit(struct cli *c, uint64_t changes)
{
	cleanup_free char *undo = NULL;
	const char *name = atoll_plan_name(c->plan);
	int r = atoll_plan_keep(c->plan, c->res), status;

	if (r < 0)
		return cli_fail(c, r);
	r = atoll_plan_commit(c->plan, cli_policy(c), c->res);
	if (r < 0) {
		status = cli_fail(c, r);
		if (r != -ATOLL_E_NEEDS_RECOVERY)
			say_kept(c, changes);
		return status;
	}
	cli_notes(c);
	undo = decide_undo_words(c, 0);
	cli_say(c, "committed %s: %" PRIu64 " %s; %s", name, changes,
	        cli_plural(changes, "change", "changes"), undo);
	cli_next(c, "atoll rm %s when it is no longer needed", name);
	return 0;
}

/* The plan stays: another command used it meanwhile. */
static int leave_to_others(struct cli *c, const char *what)
{
	const char *name = atoll_plan_name(c->plan);
	int r = atoll_plan_keep(c->plan, c->res);

	if (r < 0)
		return cli_fail(c, r);
	cli_say(c, "%s; plan %s stays, since another command changed or committed something in it",
	        what, name);
	cli_next(c, "atoll status %s", name);
	return 0;
}

static int drop(struct cli *c, bool said)
{
	struct error err = ERROR_INIT;
	bool ended = false;

	if (plan_discard(c->plan, &ended, c->res, &err) < 0)
		return cli_fail_error(c, &err);
	if (!ended)
		return leave_to_others(c, "dropped what was not committed");
	if (said)
		cli_say(c, "dropped the changes; everything is as before");
	return 0;
}

static int end_unchanged(struct cli *c)
{
	struct error err = ERROR_INIT;
	bool ended = false;

	if (plan_end_unchanged(c->plan, &ended, c->res, &err) < 0)
		return cli_fail_error(c, &err);
	return ended ? 0 : leave_to_others(c, "the command changed nothing");
}

/* Of the home. What cannot be read may be some. */
static bool has_private_files(const struct cli *c)
{
	cleanup_private_files struct private_files files = PRIVATE_FILES_INIT;
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *home = NULL;

	return plan_private_files(c->plan, &home, &files, &err) < 0 || files.n > 0 || files.cut;
}

/* They were named after the command, and would go with the plan. */
static int keep_private_files(struct cli *c)
{
	const char *name = atoll_plan_name(c->plan);
	int r = atoll_plan_keep(c->plan, c->res);

	if (r < 0)
		return cli_fail(c, r);
	cli_say(c, "kept plan %s for what is private to it; nothing real has changed", name);
	cli_next(c, "atoll diff %s --home, then atoll add %s --dir DIR or atoll rm %s", name, name,
	         name);
	return 0;
}

/* A touch is a change (rule DER-22), and not worth a question: it is committed where that was asked for. */
static int drop_times(struct cli *c, size_t files, size_t entries)
{
	cli_say(c, "only times changed (%zu %s)", files ? files : entries,
	        files ? cli_plural(files, "file", "files")
	              : cli_plural(entries, "directory", "directories"));
	return drop(c, false);
}

/* The user has not decided: the plan is kept, and the last line says so. */
static int leave_undecided(struct cli *c, uint64_t changes)
{
	int status = keep(c, changes);

	if (status == 0)
		cli_say(c, "NOT committed: atoll commit %s", atoll_plan_name(c->plan));
	return status;
}

/* A command that had the terminal itself could have arranged for the answer: reports that the terminal types, a
 * descriptor in the hands of another process. */
static bool may_ask(const struct cli *c)
{
	if (c->yes || !question_possible())
		return false;
	if (plan_exec_was_relayed() || sabotage("own-terminal"))
		return true;
	cli_say(c,
	        "atoll: not asked: the command could not be given a terminal of its own, and might answer");
	return false;
}

static int decide(struct cli *c, enum decision *d, const struct changes *ch,
                  const struct atoll_exec_status *status)
{
	cleanup_free char *summary = NULL;
	bool undecided = *d == DECIDE_ASK;
	bool only_times;
	size_t files;

	only_times = *d == DECIDE_ASK && ch->n > 0 && summary_only_times(ch->v, ch->n, &files);
	if ((ch->n == 0 || only_times) && *d != DECIDE_ROLLBACK && has_private_files(c)) {
		*d = DECIDE_KEEP;
		return keep_private_files(c);
	}
	if (ch->n == 0) {
		*d = DECIDE_NOTHING;
		return end_unchanged(c);
	}
	if (only_times) {
		*d = DECIDE_ROLLBACK;
		return drop_times(c, files, ch->n);
	}
	if (!c->json && cli_is_terminal(c, stderr))
		summary = describe(c, ch, status);
	if (undecided && summary && may_ask(c))
		*d = ask(c, summary);
	else if (summary)
		(void)fputs(summary, stderr);
	if (!undecided && *d == DECIDE_COMMIT && status->exit_code != 0) {
		cli_say(c, "the command failed with %d, so nothing is committed",
		        status->exit_code);
		*d = DECIDE_KEEP;
	}
	undecided &= *d == DECIDE_ASK;
	if (undecided || interrupt_signal()) /* then nothing is final */
		*d = DECIDE_KEEP;
	switch (*d) {
	case DECIDE_COMMIT:
		return commit(c, ch->n);
	case DECIDE_ROLLBACK:
		return drop(c, true);
	case DECIDE_ASK:
	case DECIDE_KEEP:
	case DECIDE_NOTHING:
	case DECISION_END_:
		break;
	}
	return undecided ? leave_undecided(c, ch->n) : keep(c, ch->n);
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
	struct interrupt_held held;
	struct outcome o = { 0 };
	int failed, r;

	failed = read_decision(c, &o.decision);
	if (failed == 0)
		failed = command_options(c, &exec);
	if (failed == 0)
		failed = start(c);
	if (failed)
		return failed;
	question_remember_terminal();
	r = c->args.n_words ? command_run(c, c->args.words, c->args.n_words, &exec, &status)
	                    : command_run_shell(c, &exec, &status);
	interrupt_watch(c);
	interrupt_hold(&held);
	interrupt_remember(command_late_signal());
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
	failed = decide(c, &o.decision, &ch, &status);
	interrupt_obey();
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
	.words = "[--] [COMMAND] [ARGUMENT]...",
	.everyday = true,
	.summary = "start, run a command or a shell, show what changed, and ask what to do",
	.about =
		"Without COMMAND: $SHELL, else /bin/sh. Without --dir, --git or --file: the project of the current directory, and a database\n"
		"that is given comes beside it. On a terminal it asks: commit, show the diff, keep or\n"
		"discard. Elsewhere, and with no option that says, the plan is kept. The exit status is\n"
		"the command's; 125 when atoll itself failed or a commit was refused: the command's is\n"
		"then in --json and --status-file.",
	.options = options,
	.max_words = SIZE_MAX,
	.stop_at = 1,
	.own_exit = EXIT_OWN,
	.here_only = true,
};
