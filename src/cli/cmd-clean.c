/* SPDX-License-Identifier: Apache-2.0 */
/* atoll clean: remove the plans that nothing needs any more, and what dead owners left. */
#include "cli/cli.h"

#include "answer/remains.h"

#include <stdlib.h>

struct view {
	struct remains remains;
	struct json *j; /* NULL: lines */
};

static int show_path(void *user, const char *plan_id, const char *path)
{
	struct view *v = user;
	struct remains *m = &v->remains;
	char size[CLI_SIZE_LEN];
	int r = remains_note(m, plan_id, path);

	if (r < 0)
		return r;
	if (v->j) {
		remains_answer(v->j, m, plan_id, path);
	} else {
		cli_size(m->bytes[m->paths.n - 1], size);
		(void)printf("%9s  ", size);
		cli_put_path(stdout, path);
		(void)putchar('\n');
	}
	return r;
}

static void put_dry(const struct cli *c, struct json *j)
{
	(void)c;
	json_bool(j, "dry_run", true);
}

static int dry_run(struct cli *c)
{
	struct view v = { 0 };
	const struct remains *m = &v.remains;
	char size[CLI_SIZE_LEN];
	uint64_t sum = 0;
	struct json j;
	int status;

	v.j = cli_list_begin(c, &j, "paths", put_dry);
	status = cli_list_end(c, v.j, atoll_scan(c->atoll, show_path, &v, c->res));
	if (status == 0 && !v.j) {
		for (size_t i = 0; i < m->paths.n; i++)
			sum += m->bytes[i];
		cli_size(sum, size);
		cli_say(c, "%zu %s would be removed, %s freed", m->paths.n,
		        cli_plural(m->paths.n, "path", "paths"), size);
		cli_next(c, "atoll clean");
	}
	remains_done(&v.remains);
	return status;
}

static int clean_run(struct cli *c)
{
	cleanup_remains struct remains m = REMAINS_INIT;
	bool force = args_has(&c->args, "force");
	char size[CLI_SIZE_LEN];
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
	remains_look(&m, c->atoll, force);
	r = atoll_purge(c->atoll, force ? ATOLL_FORCE : 0, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json) {
		cli_json_begin(c, &j);
		json_int(&j, "plans_removed", r);
		json_uint(&j, "bytes_freed", remains_freed(&m));
		remains_answer_plans(&j, &m, c->atoll);
		cli_json_result(c, &j);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	cli_size(remains_freed(&m), size);
	cli_say(c, "removed %d %s, freed %s", r, cli_plural((uint64_t)r, "plan", "plans"), size);
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
	.summary = "remove settled plans and what interrupted commands left",
	.about =
		"A plan is settled when all of its changes are committed or dropped, none of its commits\n"
		"can be undone any more, and no file is private to it. One whose last commit passes\n"
		"undo.retention goes by itself. A plan that was started and never decided about stays.",
	.options = options,
};
