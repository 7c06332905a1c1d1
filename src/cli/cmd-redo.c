/* SPDX-License-Identifier: Apache-2.0 */
/* atoll redo: the commit that was undone last is brought back. */
#include "cli/decide.h"
#include "cli/undo-way.h"

#include <stdlib.h>

#include "util/cleanup.h"

static int find_redo(struct cli *c)
{
	return undo_way_find(c, UNDO_WAY_REDO);
}

static void say_redone(const struct cli *c)
{
	cleanup_free char *also = undo_way_also(c, ATOLL_OUTCOME_COMMITTED);
	uint64_t changes;
	size_t n = decide_count(c, ATOLL_OUTCOME_COMMITTED, &changes);

	cli_say(c, "redone: the last undone commit of %s, %llu %s in %zu %s%s",
	        atoll_plan_name(c->plan), (unsigned long long)changes,
	        cli_plural(changes, "change", "changes"), n, decide_noun(c, n), also);
}

static int redo_run(struct cli *c)
{
	cleanup_undo_way_sides struct undo_way_sides sides = { 0 };
	struct atoll_undo redo = { 0 };
	int r, status = undo_way_check(c);

	if (status == 0)
		status = cli_open_plan_by(c, find_redo);
	if (status == 0)
		status = undo_way_sides(c, &sides);
	if (status)
		return status;
	redo.ours = sides.our_paths;
	r = atoll_plan_redo_with(c->plan, &redo, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, 0);
	say_redone(c);
	cli_notes(c);
	cli_next(c, "atoll undo %s takes it back", atoll_plan_name(c->plan));
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "ours", "PATH", "bring the commit's version back at or below it, whatever is there now" },
	{ NULL, NULL, NULL },
};

const struct command cmd_redo = {
	.name = "redo",
	.run = redo_run,
	.decides = true,
	.words = "[PLAN] [PATH]...",
	.summary = "bring the commit back that was undone last",
	.about =
		"The same files are put in place again, as long as undo.retention says. If something was\n"
		"changed there since the undo, nothing is done and exit 3 names it. Without a PLAN: the\n"
		"commit undone last of those plans whose resources hold the current directory.\n"
		"PATHs are more of --ours, which keeps the version that is there and says where.",
	.options = options,
	.max_words = SIZE_MAX,
};
