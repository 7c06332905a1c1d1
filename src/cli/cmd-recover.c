/* SPDX-License-Identifier: Apache-2.0 */
/* atoll recover: finish or withdraw what interrupted processes left, now and in the open. */
#include "cli/cli.h"

#include "answer/recovery.h"
#include "cli/interrupt.h"

#include <stdlib.h>

/* Nothing left: those that are in doubt after all are so because somebody works on them. */
static void say_names(const struct cli *c, const struct recovery *v)
{
	for (size_t i = 0; i < v->before.n; i++) {
		const char *name = v->before.v[i];

		if (!strlist_has(&v->after, name))
			cli_say(c, "recovered plan %s", name);
		else
			cli_say(c,
			        v->left ? "plan %s still needs recovery"
			                : "plan %s is being worked on",
			        name);
	}
}

static int report(struct cli *c, const struct recovery *v)
{
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		recovery_answer(&j, v, c->res);
		cli_json_end(&j);
	} else {
		say_names(c, v);
		cli_notes(c);
		if (v->before.n == 0 && atoll_result_notes(c->res) == 0)
			cli_say(c, "nothing to recover");
		if (v->left)
			cli_say(c, "hint: fix what is named above, then atoll recover");
		else
			cli_next(c, "atoll list");
	}
	return v->left ? atoll_code_exit(-ATOLL_E_NEEDS_RECOVERY) : EXIT_SUCCESS;
}

static int recover_run(struct cli *c)
{
	cleanup_recovery struct recovery v = { 0 };
	bool named = c->args.n_words > 0;
	int status, r;

	status = named ? cli_open_plan(c) : cli_open(c);
	if (status)
		return status;
	interrupt_recovering(true);
	r = recovery_run(&v, c->atoll, c->plan, args_has(&c->args, "accept"), c->res);
	interrupt_recovering(false);
	return r < 0 ? cli_fail(c, r) : report(c, &v);
}

static const struct option_row options[] = {
	{ "accept", NULL, "take work that a machine crash may have damaged as it is" },
	{ NULL, NULL, NULL },
};

const struct command cmd_recover = {
	.name = "recover",
	.run = recover_run,
	.words = "[PLAN]",
	.summary = "finish or withdraw what interrupted commands left",
	.about =
		"Every command that changes something does this by itself. Exit 7: something is left.",
	.options = options,
	.max_words = 1,
	.decides = true,
};
