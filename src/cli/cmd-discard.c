/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll discard: the changes since the last commit are dropped. A plan of `run` was made for them and ends;
 * one of `start` goes on from what is there now, and so does one whose commits can still be undone.
 */
#include "cli/decide.h"
#include "cli/question.h"
#include "cli/there.h"
#include "cli/which.h"

#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <inttypes.h>
#include <stdlib.h>

struct facts {
	char *use;
	char *running;   /* "": nothing */
	bool ends;       /* as it seems; plan_discard() says */
	int64_t changes; /* -1: they cannot be counted */
};

static int take_info(void *user, const struct atoll_plan_info *info)
{
	struct facts *f = user;

	f->use = which_describe(info->command, info->used_ms);
	f->running = xstrdup(info->running);
	f->ends = info->from_run && info->batches == 0;
	return 0;
}

/* "12 uncommitted changes" */
static char *name_changes(const struct facts *f)
{
	if (f->changes < 0)
		return xstrdup("the uncommitted changes");
	return xasprintf("%" PRId64 " uncommitted %s", f->changes,
	                 cli_plural((uint64_t)f->changes, "change", "changes"));
}

static bool may_discard(const struct cli *c, const struct facts *f)
{
	const char *name = atoll_plan_name(c->plan);
	cleanup_free char *changes = name_changes(f), *question = NULL;

	if (*f->running)
		question = xasprintf(
			"'%s' is running in plan %s (%s): wait for its end, and drop what "
			"it changes?",
			f->running, name, f->use);
	else if (f->changes == 0 && !f->ends)
		return true;
	else if (f->changes == 0)
		question = xasprintf("end plan %s (%s), which has no uncommitted changes?", name,
		                     f->use);
	else
		question = xasprintf("drop %s of plan %s (%s)?", changes, name, f->use);
	return cli_confirm(c, question);
}

static void say_discarded(const struct cli *c, const struct facts *f)
{
	const char *name = atoll_plan_name(c->plan);
	cleanup_free char *changes = name_changes(f);

	if (f->ends) {
		cli_say(c, "discarded %s; plan %s has ended", changes, name);
		return;
	}
	cli_say(c, "discarded %s of plan %s; it goes on from what is there now", changes, name);
	cli_notes(c);
	cli_next(c, "atoll exec %s -- COMMAND", name);
}

static int discard(struct cli *c, struct facts *f)
{
	struct error err = ERROR_INIT;
	int r = atoll_plan_show(c->plan, take_info, f, c->res);

	if (r < 0)
		return cli_fail(c, r);
	f->changes = atoll_plan_diff(c->plan, NULL, NULL, NULL);
	if (!may_discard(c, f)) {
		cli_say(c, "nothing was changed");
		return EXIT_FAILURE;
	}
	if (plan_discard(c->plan, &f->ends, c->res, &err) < 0)
		return cli_fail_error(c, &err);
	if (c->json)
		return decide_json(c, 0);
	say_discarded(c, f);
	return EXIT_SUCCESS;
}

static int discard_run(struct cli *c)
{
	struct facts f = { 0 };
	int status;

	if (c->args.n_words == 0 && (c->yes || c->json || !question_possible()))
		return cli_fail_usage(c, "discard: without a question it needs the name of the "
		                         "plan: atoll discard PLAN");
	status = cli_open_plan_settled(c);
	if (status == 0)
		status = discard(c, &f);
	free(f.running);
	free(f.use);
	return status;
}

const struct command cmd_discard = {
	.name = "discard",
	.also = "reset",
	.run = discard_run,
	.decides = true,
	.object = "reset",
	.words = "[PLAN]",
	.everyday = true,
	.summary = "drop a plan's uncommitted changes",
	.about =
		"A plan of run ends with it; one of start goes on from what is there now. Commits stay.\n"
		"On a terminal it asks; elsewhere it needs the whole name of the plan. It is the way\n"
		"out of a conflict, too.",
	.max_words = 1,
	.pick = PICK_AT_WORK,
	.whole_names = true,
	.there = &there_discard,
};
