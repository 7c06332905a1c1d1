/* SPDX-License-Identifier: Apache-2.0 */
/* atoll commit: every resource of the plan gets its changes, or none does. */
#include "cli/decide.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct decide_flag flag_table[] = {
	{ "allow", "special", ATOLL_ALLOW_SPECIAL },
	{ "allow", "setuid", ATOLL_ALLOW_SETUID },
	{ "allow", "partial", ATOLL_ALLOW_PARTIAL },
	{ "deny", "escaping-links", ATOLL_DENY_ESCAPING_LINKS },
	{ "no-undo", NULL, ATOLL_NO_UNDO },
	{ "dry-run", NULL, ATOLL_DRY_RUN },
	{ NULL, NULL, 0 },
};

/* Changes of participants that were ready, which a dry run then let go. */
static size_t count_ready(const struct cli *c, uint64_t *ret_changes)
{
	size_t n = 0;

	*ret_changes = 0;
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		*ret_changes += p->changes;
		n += p->changes > 0;
	}
	return n;
}

static void say_what(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);
	bool dry = flags & ATOLL_DRY_RUN;
	uint64_t changes;
	size_t n =
		dry ? count_ready(c, &changes) : decide_count(c, ATOLL_OUTCOME_COMMITTED, &changes);
	const char *files = cli_plural(changes, "file", "files");
	const char *dirs = cli_plural(n, "directory", "directories");

	if (n == 0)
		cli_say(c, "%s: no changes", name);
	else if (dry)
		cli_say(c, "%s can be committed: %" PRIu64 " %s would change in %zu %s", name,
		        changes, files, n, dirs);
	else if (flags & ATOLL_NO_UNDO)
		cli_say(c, "committed %s: %" PRIu64 " %s changed in %zu %s; for good", name,
		        changes, files, n, dirs);
	else
		cli_say(c,
		        "committed %s: %" PRIu64 " %s changed in %zu %s; undo: atoll rollback %s",
		        name, changes, files, n, dirs, name);
	if (atoll_result_atomicity(c->res) == ATOLL_ATOMICITY_NONE)
		cli_say(c, "not every part of it could have been taken back (--allow partial)");
}

static void say_next(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);

	if (flags & ATOLL_DRY_RUN)
		cli_next(c, "atoll commit %s", name);
	else
		cli_next(c, "atoll stop %s when it is no longer needed", name);
}

static int commit_run(struct cli *c)
{
	unsigned flags;
	int status, r;

	status = decide_flags(c, flag_table, &flags);
	if (status == 0)
		status = cli_open_plan_settled(c);
	if (status)
		return status;
	flags |= cli_policy(c);
	r = atoll_plan_commit(c->plan, flags, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json)
		return decide_json(c, flags);
	say_what(c, flags);
	cli_notes(c);
	say_next(c, flags);
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "allow", "special|setuid|partial",
	  "special: new devices, sockets, FIFOs; setuid: new set-id bits;\n"
	  "partial: resources that cannot be undone beside others" },
	{ "deny", "escaping-links", "refuse new links that leave their tree" },
	{ "no-undo", NULL, "keep nothing to undo it with" },
	{ "dry-run", NULL, "say whether it would work, change nothing" },
	{ NULL, NULL, NULL },
};

const struct command cmd_commit = {
	.name = "commit",
	.run = commit_run,
	.words = "PLAN",
	.summary = "bring a plan's changes into its resources: all of them or none",
	.about =
		"What somebody else changed meanwhile is not overwritten: exit 3 names the paths, and\n"
		"nothing is changed. A commit can be undone with rollback for 24 hours.",
	.options = options,
	.min_words = 1,
	.max_words = 1,
};
