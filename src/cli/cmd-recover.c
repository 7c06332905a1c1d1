/* SPDX-License-Identifier: Apache-2.0 */
/* atoll recover: finish or withdraw what interrupted processes left, now and in the open. */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

struct doubts {
	struct strlist names;
	const char *id; /* NULL: of all plans */
};

static int note_doubt(void *user, const struct atoll_plan_info *info)
{
	struct doubts *d = user;

	if (info->in_doubt && (!d->id || strcmp(d->id, info->id) == 0))
		strlist_add(&d->names, info->name);
	return 0;
}

static int look(struct cli *c, struct doubts *d)
{
	d->id = c->plan ? atoll_plan_id(c->plan) : NULL;
	return atoll_plan_list(c->atoll, note_doubt, d, c->res);
}

static void json_names(struct json *j, const char *key, const struct strlist *all,
                       const struct strlist *without)
{
	json_open_array(j, key);
	for (size_t i = 0; i < all->n; i++)
		if (!without || !strlist_has(without, all->v[i]))
			json_string(j, NULL, all->v[i]);
	json_close(j);
}

/* N_FAILED 0: those that are in doubt after all are so because somebody works on them. */
static void say_names(const struct cli *c, const struct doubts *before, const struct doubts *after,
                      int n_failed)
{
	for (size_t i = 0; i < before->names.n; i++) {
		const char *name = before->names.v[i];

		if (!strlist_has(&after->names, name))
			cli_say(c, "recovered plan %s", name);
		else
			cli_say(c,
			        n_failed ? "plan %s still needs recovery"
			                 : "plan %s is being worked on",
			        name);
	}
}

static int report(struct cli *c, const struct doubts *before, const struct doubts *after, int left)
{
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		json_names(&j, "recovered", &before->names, &after->names);
		json_names(&j, "left", &after->names, NULL);
		cli_json_result(c, &j);
		cli_json_end(&j);
	} else {
		say_names(c, before, after, left);
		cli_notes(c);
		if (before->names.n == 0 && atoll_result_notes(c->res) == 0)
			cli_say(c, "nothing to recover");
		cli_next(c, left ? "mend what is named above, then atoll recover" : "atoll list");
	}
	return left ? atoll_code_exit(-ATOLL_E_NEEDS_RECOVERY) : EXIT_SUCCESS;
}

static int recover_run(struct cli *c)
{
	struct doubts before = { 0 }, after = { 0 };
	bool named = c->args.n_words > 0;
	int status, r;

	status = named ? cli_open_plan(c) : cli_open(c);
	if (status)
		return status;
	r = look(c, &before);
	if (r >= 0)
		r = atoll_recover(c->atoll, named ? atoll_plan_id(c->plan) : NULL,
		                  args_has(&c->args, "accept"), c->res);
	status = r;
	if (r >= 0) {
		struct atoll_result *said = c->res;

		/* What recovery said is still to be shown. */
		c->res = atoll_result_new();
		r = look(c, &after);
		if (r >= 0) {
			atoll_result_free(c->res);
			c->res = said;
		} else {
			atoll_result_free(said);
		}
	}
	status = r < 0 ? cli_fail(c, r) : report(c, &before, &after, status);
	strlist_done(&before.names);
	strlist_done(&after.names);
	return status;
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
};
