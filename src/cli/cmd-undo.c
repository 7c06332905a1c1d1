/* SPDX-License-Identifier: Apache-2.0 */
/* atoll undo: the last commit is taken back. */
#include "cli/decide.h"
#include "cli/undo-way.h"

#include <stdlib.h>

#include "util/cleanup.h"

static int find_undo(struct cli *c)
{
	return undo_way_find(c, UNDO_WAY_UNDO);
}

/* Entries that an undo left as others made them. */
static size_t count_left(const struct cli *c)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_notes(c->res); i++)
		n += atoll_result_note(c->res, i)->kind == ATOLL_NOTE_CONFLICT;
	return n;
}

static void say_undone(const struct cli *c)
{
	cleanup_free char *also = undo_way_also(c, ATOLL_OUTCOME_ROLLED_BACK);
	uint64_t changes;
	size_t n = decide_count(c, ATOLL_OUTCOME_ROLLED_BACK, &changes), left = count_left(c);

	cli_say(c, "undone: the last commit of %s, %llu %s in %zu %s%s", atoll_plan_name(c->plan),
	        (unsigned long long)changes, cli_plural(changes, "change", "changes"), n,
	        decide_noun(c, n), also);
	if (left > 0)
		cli_say(c, "%zu %s", left,
		        cli_plural(left, "entry was left as it is",
		                   "entries were left as they are"));
}

static const struct decide_flag flag_table[] = {
	{ "allow", "partial", ATOLL_ALLOW_PARTIAL },
	{ "keep-theirs", NULL, ATOLL_KEEP_THEIRS },
	{ NULL, NULL, 0 },
};

static int undo_run(struct cli *c)
{
	cleanup_undo_way_sides struct undo_way_sides sides = { 0 };
	struct atoll_undo undo = { 0 };
	unsigned flags;
	int r, status = decide_flags(c, flag_table, &flags);

	if (status == 0)
		status = undo_way_check(c);
	if (status == 0)
		status = cli_open_plan_by(c, find_undo);
	if (status == 0)
		status = undo_way_sides(c, &sides);
	if (status)
		return status;
	undo.flags = flags & ~(sides.theirs.n ? ATOLL_KEEP_THEIRS : 0);
	undo.ours = sides.our_paths;
	undo.theirs = sides.their_paths;
	r = atoll_plan_undo_with(c->plan, &undo, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, flags);
	say_undone(c);
	cli_notes(c);
	cli_next(c, "atoll redo %s brings it back", atoll_plan_name(c->plan));
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "ours", "PATH",
	  "put back what was there before at or below it, whatever was changed since" },
	{ "keep-theirs", NULL,
	  "leave what was changed since, at the PATHs or anywhere; undo the rest" },
	{ "allow", "partial", "partial: undo what can be, where some cannot" },
	{ NULL, NULL, NULL },
};

const struct command cmd_undo = {
	.name = "undo",
	.run = undo_run,
	.decides = true,
	.words = "[PLAN] [PATH]...",
	.everyday = true,
	.summary = "take the last commit back",
	.about =
		"The very files that were there before come back; uncommitted changes of any plan stay\n"
		"as they are. Again, it takes the commit before that one. Without a PLAN: the last commit\n"
		"of those plans whose resources hold the current directory.\n"
		"If something that was committed was changed since, nothing is undone and exit 3 names it;\n"
		"where another plan committed on top of it, that plan is named. PATHs say what --keep-theirs\n"
		"is about, else more of --ours, which keeps the version that is there and says where.",
	.options = options,
	.max_words = SIZE_MAX,
};
