/* SPDX-License-Identifier: Apache-2.0 */
/* atoll doctor: what works here, what does not, and what to type about it. */
#include "cli/cli.h"

#include "plan/doctor.h"

#include <stdlib.h>

struct view {
	struct cli *c;
	struct json *j; /* NULL: lines */
	int worst;      /* code of the first finding that is bad */
};

static const enum paint paints[] = {
	[DOCTOR_OK] = PAINT_GOOD,
	[DOCTOR_WARNING] = PAINT_CHANGED,
	[DOCTOR_BAD] = PAINT_BAD,
};
_Static_assert(sizeof(paints) / sizeof(paints[0]) == DOCTOR_LEVEL_END_, "every level has a row");

static void put_lines(const struct view *v, const struct doctor_finding *f)
{
	(void)printf("%s%-8s%s %-18s ", cli_paint(v->c, stdout, paints[f->level]),
	             answer_level_word(f->level), cli_paint(v->c, stdout, PAINT_NONE), f->topic);
	cli_put_path(stdout, f->text);
	(void)putchar('\n');
	if (f->fix) {
		(void)printf("%-27s fix: ", "");
		cli_put_path(stdout, f->fix);
		(void)putchar('\n');
	}
}

static void show(void *user, const struct doctor_finding *f)
{
	struct view *v = user;

	if (f->level == DOCTOR_BAD && v->worst == 0)
		v->worst = f->code;
	if (v->j)
		answer_finding(v->j, f);
	else
		put_lines(v, f);
}

static int doctor_run(struct cli *c)
{
	const char *path = c->args.n_words > 0 ? c->args.words[0] : NULL;
	struct view v = { .c = c };
	struct json j;

	if (c->json) {
		v.j = &j;
		cli_json_begin(c, &j);
		json_open_array(&j, "findings");
	}
	doctor_examine(path, show, &v);
	if (c->json) {
		json_close(&j);
		json_bool(&j, "healthy", v.worst == 0);
		cli_json_end(&j);
	} else if (v.worst == 0) {
		cli_next(c, "atoll start NAME --dir PATH");
	}
	return atoll_code_exit(v.worst);
}

const struct command cmd_doctor = {
	.name = "doctor",
	.run = doctor_run,
	.words = "[PATH]",
	.summary = "say what works on this host, for a directory, and what to do about the rest",
	.about =
		"PATH is the current directory when it is left out, and then nothing about it is\n"
		"worse than a warning; it may be the URL of a database. Exit 0 when nothing is bad.",
	.max_words = 1,
	.bare = true,
};
