/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/diff-home.h"

#include "answer/answer.h"
#include "plan/private-files.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>

static const struct {
	const char *name;
	char letter;
	enum paint paint;
} kinds[PRIVATE_KIND_END_] = {
	[PRIVATE_ADDED] = { "added", 'A', PAINT_GOOD },
	[PRIVATE_CHANGED] = { "changed", 'M', PAINT_CHANGED },
	[PRIVATE_DELETED] = { "deleted", 'D', PAINT_BAD },
};

static void put_json(const struct cli *c, const char *home, const struct private_files *files)
{
	struct json j;

	answer_begin(&j, stdout, "diff-home");
	cli_json_plan(c, &j);
	if (home)
		json_bytes(&j, "home", home);
	json_open_array(&j, "files");
	for (size_t i = 0; i < files->n; i++) {
		json_open_object(&j, NULL);
		json_bytes(&j, "path", files->v[i].path);
		json_string(&j, "kind", kinds[files->v[i].kind].name);
		json_close(&j);
	}
	json_close(&j);
	json_bool(&j, "complete", !files->cut);
	answer_end(&j);
}

static void put_lines(const struct cli *c, const struct private_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		cleanup_free char *path = xasprintf("~/%s", files->v[i].path);

		(void)printf("%s%c%s ", cli_paint(c, stdout, kinds[files->v[i].kind].paint),
		             kinds[files->v[i].kind].letter, cli_paint(c, stdout, PAINT_NONE));
		cli_put_path(stdout, path);
		(void)putchar('\n');
	}
	if (files->n == 0)
		cli_say(c, "%s: no private files", atoll_plan_name(c->plan));
	if (files->cut)
		cli_say(c,
		        "there may be more: only the first %d entries were looked at, and "
		        "directories that can be read",
		        PRIVATE_FILES_MAX);
}

int diff_home(struct cli *c)
{
	cleanup_private_files struct private_files files = PRIVATE_FILES_INIT;
	cleanup_free char *home = NULL;
	struct error err = ERROR_INIT;
	int r = plan_private_files(c->plan, &home, &files, &err);

	if (r < 0)
		return cli_fail_error(c, &err);
	if (c->json)
		put_json(c, home, &files);
	else
		put_lines(c, &files);
	return args_has(&c->args, "exit-code") && files.n > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
