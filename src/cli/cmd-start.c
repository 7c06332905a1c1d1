/* SPDX-License-Identifier: Apache-2.0 */
/* atoll start: a new plan and its resources. If one cannot be added, there is no plan. */
#include "cli/plan-words.h"
#include "cli/resources.h"
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/escape.h"
#include "util/strbuf.h"

#include <stdlib.h>

/* ---- saying it ---- */

static int add_resource(void *user, const struct atoll_sandbox_info *info)
{
	cleanup_free char *path = plan_short_path(info->root), *shown = escape_dup(path);
	struct strbuf *resources = user;

	strbuf_printf(resources, "%s%s", resources->len ? ", " : "", shown);
	return 0;
}

static int report(struct cli *c, bool opened)
{
	const char *name = atoll_plan_name(c->plan);
	cleanup_strbuf struct strbuf resources = STRBUF_INIT;
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		answer_started(&j, c->plan, opened);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	(void)atoll_plan_sandboxes(c->plan, add_resource, &resources, NULL);
	(void)printf("%s\n", name);
	cli_say(c, "%s %s: %s", opened ? "opened" : "started", name, strbuf_str(&resources));
	cli_next(c, "atoll exec %s -- COMMAND, then atoll diff %s", name, name);
	return EXIT_SUCCESS;
}

static int start_run(struct cli *c)
{
	const struct atoll_start start = { .name = c->args.n_words ? c->args.words[0] : NULL };
	bool opened = false;
	int status = resources_start(c, &start, &opened);

	return status ? status : report(c, opened);
}

static const struct option_row options[] = {
	{ "or-open", NULL, "open the plan if it is there already" },
	RESOURCE_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command cmd_start = {
	.name = "start",
	.run = start_run,
	.words = "[NAME]",
	.everyday = true,
	.summary = "make a plan: a private copy of each resource, to be committed together",
	.about =
		"Prints the plan's name, which is made up when none is given. If a resource cannot be\n"
		"added, no plan is made. A resource inside another is its child. Without a resource: the\n"
		"project of the current directory.",
	.options = options,
	.max_words = 1,
	.there = &there_start,
};
