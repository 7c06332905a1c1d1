/* SPDX-License-Identifier: Apache-2.0 */
/* atoll --remote NAME commit: what a command changed there, and nobody brought here. */
#include "cli/there-cycle.h"
#include "cli/there.h"

#include <inttypes.h>
#include <stdlib.h>

static void say(const struct there_run *t)
{
	const struct remote_outcome *o = &t->out;
	const char *name = t->session->remote->name;

	if (o->pulled == 0)
		cli_say(t->c, "%s: nothing is pending there", name);
	else
		cli_say(t->c, "committed %" PRIu64 " %s from %s; undo: atoll undo %s", o->pulled,
		        cli_plural(o->pulled, "change", "changes"), name, o->plan_name);
}

static int commit_run(struct cli *c)
{
	struct error err = ERROR_INIT;
	struct there_run t;
	int status;

	there_init(&t, c, REMOTE_COMMIT);
	status = there_open(c, true, NULL, &t.session);
	if (status == 0 && remote_cycle(t.session, &t.run, &t.out, &err) < 0) {
		status = there_fail(&t, &err);
	} else if (status == 0) {
		there_report(&t);
		say(&t);
	}
	there_done(&t);
	return status;
}

static const struct option_row options[] = {
	THERE_OPTIONS,
	THERE_CYCLE_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command there_commit = {
	.name = "commit",
	.run = commit_run,
	.words = "",
	.summary = "bring here what a command changed there",
	.about =
		"Only needed when exec could not do it: because it was killed, or the connection was\n"
		"cut. What was edited here since is not overwritten: exit 3 names it.",
	.options = options,
	.max_words = 0,
};
