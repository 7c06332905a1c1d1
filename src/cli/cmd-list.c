/* SPDX-License-Identifier: Apache-2.0 */
/* atoll list: all plans, or those of this directory. Takes no lock and never waits. */
#include "cli/cli.h"
#include "cli/plan-words.h"
#include "cli/there.h"

#include "plan/ask.h"
#include "plan/here.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The columns, in their order; the last is not filled up. */
enum column { COL_PLAN = 0, COL_DIRECTORY, COL_COMMAND, COL_AGE, COL_STATE, COL_SIZE, COL_END_ };

static const char *const titles[] = {
	[COL_PLAN] = "PLAN", [COL_DIRECTORY] = "DIRECTORY", [COL_COMMAND] = "COMMAND",
	[COL_AGE] = "AGE",   [COL_STATE] = "STATE",         [COL_SIZE] = "SIZE",
};
_Static_assert(sizeof(titles) / sizeof(titles[0]) == COL_END_, "each has one");

#define COMMAND_MAX 24

struct line {
	char *cells[COL_END_];
};

struct listing {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	struct line *lines;
	size_t n, cap;
	size_t in_doubt;
	struct strlist asked; /* ids of plans with an open ask */
};

static int note_ask(void *user, const struct ask_row *row)
{
	strlist_add(user, row->plan);
	return 0;
}

static char *roots_cell(const struct atoll_plan_info *info)
{
	cleanup_free char *path = info->roots[0] ? plan_short_path(info->roots[0]) : NULL;
	cleanup_free char *shown = path ? escape_dup(path) : NULL;

	if (!shown)
		return xstrdup("-");
	return info->sandboxes > 1 ? xasprintf("%s +%zu", shown, info->sandboxes - 1)
	                           : take_ptr(shown);
}

static int add_line(struct listing *l, const struct atoll_plan_info *info)
{
	cleanup_free char *words = plan_state_words(info);
	char size[CLI_SIZE_LEN], age[CLI_AGE_LEN];
	struct line *line;

	if (grow((void **)&l->lines, &l->cap, l->n + 1, sizeof(*l->lines)) < 0)
		return -ENOMEM;
	line = &l->lines[l->n];
	line->cells[COL_STATE] =
		xasprintf("%s%s%s", info->abandoned ? "abandoned, " : "", words,
	                  strlist_has(&l->asked, info->id) ? ", asks for a commit" : "");
	cli_size(info->bytes, size);
	cli_age(info->used_ms, age);
	line->cells[COL_PLAN] = xstrdup(info->name);
	line->cells[COL_DIRECTORY] = roots_cell(info);
	line->cells[COL_COMMAND] =
		plan_short_command(*info->command ? info->command : "-", COMMAND_MAX);
	line->cells[COL_AGE] = xstrdup(age);
	line->cells[COL_SIZE] = xstrdup(size);
	return 0;
}

static int show_plan(void *user, const struct atoll_plan_info *info)
{
	struct listing *l = user;
	int r;

	l->in_doubt += info->in_doubt && !*info->holder;
	r = l->j ? answer_plan(l->j, info) : add_line(l, info);
	l->n += r >= 0;
	return r;
}

/* Characters, not bytes. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void put_row(const char *const *cells, const size_t *widths)
{
	for (size_t col = 0; col < COL_END_; col++) {
		(void)fputs(cells[col], stdout);
		if (col + 1 < COL_END_)
			(void)printf("%*s", (int)(widths[col] - width_of(cells[col]) + 2), "");
	}
	(void)putchar('\n');
}

static void put_lines(const struct listing *l)
{
	size_t widths[COL_END_];

	for (size_t col = 0; col < COL_END_; col++) {
		widths[col] = width_of(titles[col]);
		for (size_t i = 0; i < l->n; i++) {
			size_t width = width_of(l->lines[i].cells[col]);

			widths[col] = width > widths[col] ? width : widths[col];
		}
	}
	if (l->n > 0)
		put_row(titles, widths);
	for (size_t i = 0; i < l->n; i++)
		put_row((const char *const *)l->lines[i].cells, widths);
}

static void listing_done(struct listing *l)
{
	for (size_t i = 0; l->lines && i < l->n; i++)
		for (size_t col = 0; col < COL_END_; col++)
			free(l->lines[i].cells[col]);
	free(l->lines);
	strlist_done(&l->asked);
}

/* Behind sudo: root's plans are not those of the user who typed it. */
static void say_whose(const struct cli *c)
{
	const char *user = getenv("SUDO_USER");
	cleanup_free char *home = plan_short_path(atoll_home(c->atoll));
	cleanup_free char *shown = escape_dup(home);
	struct passwd *pw;
	struct stat st;

	if (geteuid() != 0 || !user || !*user || strcmp(user, "root") == 0)
		return;
	pw = stat(atoll_home(c->atoll), &st) == 0 ? getpwuid(st.st_uid) : NULL;
	cli_say(c, "this is the store of %s, %s; atoll list without sudo shows the plans of %s",
	        pw ? pw->pw_name : "root", shown, user);
}

static void say_next(const struct cli *c, const struct listing *l)
{
	if (l->n == 0)
		cli_say(c, args_has(&c->args, "here") ? "no plans here" : "no plans");
	if (l->in_doubt > 0)
		cli_next(c, "atoll recover");
	else if (l->n == 0)
		cli_next(c, "atoll run -- COMMAND, or atoll start NAME --dir PATH");
	else
		cli_next(c, "atoll status PLAN");
}

static void put_store(const struct cli *c, struct json *j)
{
	json_bytes(j, "store", atoll_home(c->atoll));
}

static int list_plans(struct listing *l, const char *here)
{
	const struct cli *c = l->c;
	struct error err = ERROR_INIT;
	int r;

	if (!here)
		return atoll_plan_list(c->atoll, show_plan, l, c->res);
	r = plan_list_at(c->atoll, here, show_plan, l, &err);
	return r < 0 ? result_set(c->res, &err, r) : 0;
}

static int list_run(struct cli *c)
{
	cleanup_free char *here = NULL;
	struct listing l = { .c = c };
	struct error err = ERROR_INIT;
	struct json j;
	int status;

	if (args_has(&c->args, "here") && args_has(&c->args, "all"))
		return cli_fail_usage(c, "list: --here and --all exclude each other");
	if (args_has(&c->args, "here") && !(here = realpath(".", NULL))) {
		(void)here_failed(-errno, &err);
		return cli_fail_error(c, &err);
	}
	status = cli_open(c);
	if (status)
		return status;
	/* Without them the list is as good. */
	if (!c->json)
		(void)plan_ask_list(c->atoll, NULL, true, note_ask, &l.asked, NULL);
	l.j = cli_list_begin(c, &j, "plans", put_store);
	status = cli_list_end(c, l.j, list_plans(&l, here));
	if (!l.j)
		put_lines(&l);
	if (status == 0 && !l.j) {
		say_whose(c);
		say_next(c, &l);
	}
	listing_done(&l);
	return status;
}

static const struct option_row options[] = {
	{ "here", NULL, "only those with a resource that holds the current directory" },
	{ "all", NULL, "all of them (the default)" },
	{ NULL, NULL, NULL },
};

const struct command cmd_list = {
	.name = "list",
	.also = "ls",
	.run = list_run,
	.words = "",
	.everyday = true,
	.summary = "list all plans: where, what ran last and when, and how they stand",
	.about = "The number of changes is as the last command left it. atoll status looks again.",
	.options = options,
	.reads = true,
	.pages = true,
	.there = &there_list,
};
