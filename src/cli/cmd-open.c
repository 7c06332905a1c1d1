/* SPDX-License-Identifier: Apache-2.0 */
/* atoll open: where a plan's work lies, for tools that are not run through exec. */
#include "cli/cli.h"

#include "util/cleanup.h"

#include <stdlib.h>

static int open_run(struct cli *c)
{
	cleanup_free char *path = NULL;
	const char *resource;
	struct json j;
	int status, r;

	status = cli_open_plan_settled(c);
	if (status)
		return status;
	resource = c->args.n_words > 0 ? c->args.words[0] : NULL;
	r = atoll_sandbox_path(c->plan, resource, &path, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json) {
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
		json_bytes(&j, "path", path);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	/* As it is: it is there to be used. Unless it is there to be looked at. */
	if (cli_is_terminal(c, stdout))
		cli_put_path(stdout, path);
	else
		(void)fputs(path, stdout);
	(void)putchar('\n');
	cli_next(c, "work below it, then atoll diff %s", atoll_plan_name(c->plan));
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "print", NULL, "print the path, and start no program (it does no more yet)" },
	{ NULL, NULL, NULL },
};

const struct command cmd_open = {
	.name = "open",
	.also = "path",
	.object = "path",
	.run = open_run,
	.words = "[PLAN] [RESOURCE]",
	.summary = "print where the work on a resource lies",
	.about =
		"What is written below it is part of the plan. RESOURCE is a root or a sandbox's id;\n"
		"it may be left out when the plan has only one.",
	.options = options,
	.pick = PICK_AT_WORK,
	.paths_follow = true,
	.max_words = 2,
	.here_only = true,
};
