/* SPDX-License-Identifier: Apache-2.0 */
/* atoll rollback: commits are undone, work is dropped, everything is as it was. */
#include "cli/decide.h"
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct decide_flag flag_table[] = {
	{ "allow", "partial", ATOLL_ALLOW_PARTIAL },
	{ "keep-theirs", NULL, ATOLL_KEEP_THEIRS },
	{ "keep-work", NULL, ATOLL_KEEP_WORK },
	{ NULL, NULL, 0 },
};

static size_t count_restored(const struct cli *c)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_participants(c->res); i++)
		n += atoll_result_participant(c->res, i)->resource_restored == ATOLL_FACT_YES;
	return n;
}

/* Entries that an undo left as somebody else made them. */
static size_t count_left(const struct cli *c)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_notes(c->res); i++)
		n += atoll_result_note(c->res, i)->kind == ATOLL_NOTE_CONFLICT;
	return n;
}

static void say_restored(const struct cli *c, size_t restored)
{
	const char *name = atoll_plan_name(c->plan);
	const char *what = decide_noun(c, restored);
	size_t left = count_left(c);

	if (left > 0)
		cli_say(c, "rolled back %s: %zu %s %s put back but for %zu %s", name, restored,
		        what, cli_plural(restored, "was", "were"), left,
		        cli_plural(left, "entry, left as it is", "entries, left as they are"));
	else
		cli_say(c, "rolled back %s: %zu %s %s as before", name, restored, what,
		        cli_plural(restored, "is", "are"));
}

static void say_what(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);
	size_t restored = count_restored(c);
	uint64_t changes;
	size_t n = decide_count(c, ATOLL_OUTCOME_ROLLED_BACK, &changes);

	if (restored > 0)
		say_restored(c, restored);
	if (flags & ATOLL_KEEP_WORK)
		cli_say(c, "%s: %s", name,
		        restored ? "what was committed is work of the plan again"
		                 : "nothing was committed, its work is kept");
	else if (restored == 0 && n > 0)
		cli_say(c, "rolled back %s: its work is dropped, nothing had been committed", name);
	else if (restored == 0)
		cli_say(c, "%s: no changes", name);
}

static void say_next(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);

	if (flags & ATOLL_KEEP_WORK)
		cli_next(c, "atoll diff %s", name);
	else
		cli_next(c, "atoll exec %s -- COMMAND to begin again, or atoll rm %s", name, name);
}

static int undo(struct cli *c, unsigned flags)
{
	int r;

	r = atoll_plan_rollback(c->plan, flags, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, flags);
	say_what(c, flags);
	cli_notes(c);
	if (!c->remote)
		say_next(c, flags);
	return EXIT_SUCCESS;
}

/* Its commits it takes back unasked; what was never committed is gone afterwards. */
static bool may_drop(const struct cli *c)
{
	int64_t changes = atoll_plan_diff(c->plan, NULL, NULL, NULL);
	cleanup_free char *question = NULL;

	if (changes == 0)
		return true;
	question = changes < 0
	                   ? xasprintf("drop the uncommitted changes of plan %s, too?",
	                               atoll_plan_name(c->plan))
	                   : xasprintf("drop %" PRId64 " uncommitted %s of plan %s, too?", changes,
	                               cli_plural((uint64_t)changes, "change", "changes"),
	                               atoll_plan_name(c->plan));
	return cli_confirm(c, question);
}

static int rollback_run(struct cli *c)
{
	unsigned flags;
	int status = decide_flags(c, flag_table, &flags);

	if (status == 0)
		status = cli_open_plan_settled(c);
	if (status)
		return status;
	if (!(flags & ATOLL_KEEP_WORK) && !may_drop(c)) {
		cli_say(c, "nothing was changed");
		return EXIT_FAILURE;
	}
	return undo(c, flags);
}

static const struct option_row options[] = {
	{ "keep-work", NULL, "drop nothing: what was committed is uncommitted work again" },
	{ "keep-theirs", NULL, "leave alone what somebody changed since, undo the rest" },
	{ "allow", "partial", "partial: undo what can be, where some cannot" },
	{ NULL, NULL, NULL },
};

/* ---- what a session pulled last ---- */

static int find_pulled(struct cli *c, const struct remote_session *s)
{
	cleanup_free char *subject = there_subject(s);
	struct error err = ERROR_INIT;
	int r;

	if (s->row.pulled[0]) {
		r = atoll_plan_find(c->atoll, s->row.pulled, &c->plan, c->res);
		return r < 0 ? cli_fail(c, r) : 0;
	}
	(void)error_set(&err, -ATOLL_E_NOT_FOUND, "%s has pulled nothing that could be undone",
	                subject);
	error_hint(&err, "atoll --remote %s diff shows what is pending there", c->remote);
	return cli_fail_error(c, &err);
}

static int there_run(struct cli *c)
{
	cleanup_remote_session struct remote_session *s = NULL;
	unsigned flags;
	int status = decide_flags(c, flag_table, &flags);

	if (status == 0)
		status = there_open(c, true, NULL, &s);
	if (status == 0)
		status = find_pulled(c, s);
	return status ? status : undo(c, flags);
}

static const struct option_row there_options[] = {
	{ "keep-theirs", NULL, "leave alone what somebody changed since, undo the rest" },
	THERE_OPTIONS,
	{ NULL, NULL, NULL },
};

static const struct command there_rollback = {
	.name = "rollback",
	.run = there_run,
	.decides = true,
	.words = "",
	.summary = "undo here what the last command there brought",
	.options = there_options,
};

const struct command cmd_rollback = {
	.name = "rollback",
	.run = rollback_run,
	.decides = true,
	.words = "PLAN",
	.summary = "undo all commits of a plan and drop its work, in one step",
	.about =
		"For scripts: atoll undo takes commits back one by one and keeps the work. The very files\n"
		"that were there before come back. If one of them was changed since the commit, nothing is\n"
		"undone and exit 3 names it. On a terminal it asks before it drops uncommitted changes.\n"
		"What it undid cannot be done again.",
	.options = options,
	.min_words = 1,
	.max_words = 1,
	.whole_names = true,
	.there = &there_rollback,
};
