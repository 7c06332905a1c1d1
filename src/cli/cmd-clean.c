/* SPDX-License-Identifier: Apache-2.0 */
/* atoll clean: remove what dead owners left. */
#include "cli/cli.h"

#include "plan/usage.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* What may go, and what it takes on disk. */
struct remains {
	struct strlist paths;
	uint64_t *bytes; /* of each */
	size_t cap;
	struct json *j; /* NULL: lines */
	struct cli *c;
};

static void remains_done(struct remains *m)
{
	strlist_done(&m->paths);
	free(m->bytes);
}
#define cleanup_remains __attribute__((__cleanup__(remains_done)))

static int note_path(void *user, const char *plan_id, const char *path)
{
	struct remains *m = user;
	struct usage u = { 0 };

	(void)plan_id;
	if (strlist_has(&m->paths, path))
		return 0;
	if (grow((void **)&m->bytes, &m->cap, m->paths.n + 1, sizeof(*m->bytes)) < 0)
		return -ENOMEM;
	usage_add(path, &u);
	strlist_add(&m->paths, path);
	m->bytes[m->paths.n - 1] = u.bytes;
	return 0;
}

static int note_abandoned(void *user, const struct atoll_plan_info *info)
{
	struct remains *m = user;
	struct atoll_plan *p = NULL;
	int r = 0;

	if (info->abandoned && atoll_plan_find(m->c->atoll, info->id, &p, NULL) >= 0)
		r = atoll_plan_paths(p, note_path, m, NULL);
	atoll_plan_free(p);
	return r;
}

/* Of what was noted, the part that is no longer there. */
static uint64_t freed(const struct remains *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->paths.n; i++)
		if (access(m->paths.v[i], F_OK) < 0 && errno == ENOENT)
			sum += m->bytes[i];
	return sum;
}

static int show_path(void *user, const char *plan_id, const char *path)
{
	struct remains *m = user;
	char size[CLI_SIZE_LEN];
	int r = note_path(m, plan_id, path);

	if (r < 0)
		return r;
	if (m->j) {
		json_open_object(m->j, NULL);
		json_string(m->j, "plan", plan_id);
		json_bytes(m->j, "path", path);
		json_uint(m->j, "bytes", m->bytes[m->paths.n - 1]);
		json_close(m->j);
	} else {
		cli_size(m->bytes[m->paths.n - 1], size);
		(void)printf("%8s  ", size);
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
	cleanup_remains struct remains m = { .paths = STRLIST_INIT };
	char size[CLI_SIZE_LEN];
	uint64_t sum = 0;
	struct json j;
	int status;

	m.j = cli_list_begin(c, &j, "paths", put_dry);
	status = cli_list_end(c, m.j, atoll_scan(c->atoll, show_path, &m, c->res));
	if (status || m.j)
		return status;
	for (size_t i = 0; i < m.paths.n; i++)
		sum += m.bytes[i];
	cli_size(sum, size);
	cli_say(c, "%zu %s would be removed, %s freed", m.paths.n,
	        cli_plural(m.paths.n, "path", "paths"), size);
	cli_next(c, "atoll clean");
	return EXIT_SUCCESS;
}

static int clean_run(struct cli *c)
{
	cleanup_remains struct remains m = { .paths = STRLIST_INIT, .c = c };
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
	(void)atoll_scan(c->atoll, note_path, &m, NULL);
	if (force)
		(void)atoll_plan_list(c->atoll, note_abandoned, &m, NULL);
	r = atoll_purge(c->atoll, force ? ATOLL_FORCE : 0, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (c->json) {
		cli_json_begin(c, &j);
		json_int(&j, "plans_removed", r);
		json_uint(&j, "bytes_freed", freed(&m));
		cli_json_result(c, &j);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	cli_size(freed(&m), size);
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
	.summary = "remove what dead owners and interrupted commands left",
	.about = "Plans made with start are never removed by it: they live until stop.",
	.options = options,
};
