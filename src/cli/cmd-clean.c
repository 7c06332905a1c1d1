/* SPDX-License-Identifier: Apache-2.0 */
/* atoll clean: remove what dead owners left. */
#include "cli/cli.h"

#include <stdlib.h>

struct listing {
	struct json *j; /* NULL: lines */
	size_t n;
};

static int show_path(void *user, const char *plan_id, const char *path)
{
	struct listing *l = user;

	l->n++;
	if (l->j) {
		json_open_object(l->j, NULL);
		json_string(l->j, "plan", plan_id);
		json_bytes(l->j, "path", path);
		json_close(l->j);
	} else {
		cli_put_path(stdout, path);
		(void)putchar('\n');
	}
	return 0;
}

static int dry_run(struct cli *c)
{
	struct listing l = { 0 };
	struct json j;
	int r;

	if (c->json) {
		l.j = &j;
		cli_json_begin(c, &j);
		json_bool(&j, "dry_run", true);
		json_open_array(&j, "paths");
	}
	r = atoll_scan(c->atoll, show_path, &l, c->res);
	if (c->json) {
		json_close(&j);
		json_string(&j, "code", atoll_code_name(r < 0 ? r : 0));
		cli_json_end(&j);
		return r < 0 ? atoll_code_exit(r) : EXIT_SUCCESS;
	}
	if (r < 0)
		return cli_fail(c, r);
	cli_say(c, "%zu %s would be removed", l.n, cli_plural(l.n, "path", "paths"));
	cli_next(c, "atoll clean");
	return EXIT_SUCCESS;
}

static int clean_run(struct cli *c)
{
	bool force = args_has(&c->args, "force");
	struct json j;
	int status, r;

	status = args_has(&c->args, "dry-run") ? cli_open(c) : cli_open_settled(c);
	if (status)
		return status;
	if (args_has(&c->args, "dry-run"))
		return dry_run(c);
	if (force && !cli_confirm(c, "drop the work of abandoned plans?")) {
		cli_say(c, "nothing was done");
		return EXIT_FAILURE;
	}
	r = atoll_purge(c->atoll, force ? ATOLL_FORCE : 0, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json) {
		cli_json_begin(c, &j);
		json_int(&j, "plans_removed", r);
		cli_json_result(c, &j);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	cli_say(c, "removed %d %s", r, cli_plural((uint64_t)r, "plan", "plans"));
	cli_notes(c);
	cli_next(c, "atoll list shows what is left");
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "dry-run", NULL, "list what would be removed" },
	{ "force", NULL, "also abandoned plans with uncommitted work, which is lost" },
	{ NULL, NULL, NULL },
};

const struct command cmd_clean = {
	.name = "clean",
	.run = clean_run,
	.words = "",
	.summary = "remove what dead owners and interrupted commands left",
	.about = "Plans made with start are never removed by it: they live until stop.",
	.options = options,
};
