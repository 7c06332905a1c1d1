/* SPDX-License-Identifier: Apache-2.0 */
/* atoll diff: what a commit would change. Takes no lock, works while a command runs. */
#include "cli/changes.h"

#include "util/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

struct totals {
	uint64_t kinds[ATOLL_CHANGE_END_];
	uint64_t all;
	uint64_t conflicts;
};

static const struct {
	char letter;
	const char *word;
	enum cli_paint paint;
} kinds[] = {
	[ATOLL_CHANGE_ADDED] = { 'A', "added", PAINT_GOOD },
	[ATOLL_CHANGE_CHANGED] = { 'M', "changed", PAINT_CHANGED },
	[ATOLL_CHANGE_DELETED] = { 'D', "deleted", PAINT_BAD },
};
_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == ATOLL_CHANGE_END_, "every kind has a row");

/* Content is what one expects; the rest is said. */
static const struct {
	unsigned bit;
	const char *word;
} bits[] = {
	{ ATOLL_CHANGE_CONTENT, "content" },
	{ ATOLL_CHANGE_MODE, "mode" },
	{ ATOLL_CHANGE_OWNER, "owner" },
	{ ATOLL_CHANGE_XATTR, "attributes" },
	{ ATOLL_CHANGE_MTIME, "mtime" },
	{ ATOLL_CHANGE_TYPE, "type" },
	{ ATOLL_CHANGE_ESCAPING_LINK, "escaping-link" },
	{ ATOLL_CHANGE_SETUID, "setuid" },
	{ ATOLL_CHANGE_SPECIAL, "special" },
	{ ATOLL_CHANGE_CONFLICT, "conflict" },
};
#define N_BITS (sizeof(bits) / sizeof(bits[0]))

static void put_path(const struct atoll_change *change)
{
	uint32_t mode = change->new_mode ? change->new_mode : change->old_mode;

	cli_put_path(stdout, change->root);
	if (*change->path)
		(void)putchar('/');
	cli_put_path(stdout, change->path);
	if (S_ISDIR(mode))
		(void)putchar('/');
}

static void put_remarks(const struct atoll_change *change)
{
	unsigned what = change->what & ~ATOLL_CHANGE_CONTENT;
	const char *before = "  (";

	/* Of a file with new content a new mtime says nothing; nor does anything of a whole one. */
	if (change->what & ATOLL_CHANGE_CONTENT)
		what &= ~ATOLL_CHANGE_MTIME;
	if (change->kind != ATOLL_CHANGE_CHANGED)
		what &= ATOLL_CHANGE_ESCAPING_LINK | ATOLL_CHANGE_SETUID | ATOLL_CHANGE_SPECIAL |
		        ATOLL_CHANGE_CONFLICT;
	for (size_t i = 0; i < N_BITS; i++) {
		if (!(what & bits[i].bit))
			continue;
		(void)printf("%s%s", before, bits[i].word);
		before = ", ";
	}
	if (*before == ',') {
		if (*change->text) {
			(void)fputs(": ", stdout);
			cli_put_path(stdout, change->text);
		}
		(void)putchar(')');
	}
}

static void put_change(const struct cli *c, const struct atoll_change *change)
{
	(void)printf("%s%c%s  ", cli_paint(c, stdout, kinds[change->kind].paint),
	             kinds[change->kind].letter, cli_paint(c, stdout, PAINT_NONE));
	put_path(change);
	put_remarks(change);
	(void)putchar('\n');
}

static void put_stat(const struct cli *c, const struct atoll_change *change)
{
	(void)printf("%s%c%s  %10" PRIu64 " -> %10" PRIu64 "  ",
	             cli_paint(c, stdout, kinds[change->kind].paint), kinds[change->kind].letter,
	             cli_paint(c, stdout, PAINT_NONE), change->old_size, change->new_size);
	put_path(change);
	put_remarks(change);
	(void)putchar('\n');
}

static void json_change(struct json *j, const struct atoll_change *change)
{
	json_open_object(j, NULL);
	json_string(j, "sandbox", change->sandbox);
	json_bytes(j, "root", change->root);
	json_bytes(j, "path", change->path);
	json_string(j, "kind", kinds[change->kind].word);
	json_open_array(j, "what");
	for (size_t i = 0; i < N_BITS; i++)
		if (change->what & bits[i].bit)
			json_string(j, NULL, bits[i].word);
	json_close(j);
	json_uint(j, "old_mode", change->old_mode);
	json_uint(j, "new_mode", change->new_mode);
	json_uint(j, "old_size", change->old_size);
	json_uint(j, "new_size", change->new_size);
	json_string(j, "text", change->text);
	json_close(j);
}

static void count(struct totals *t, const struct atoll_change *change)
{
	t->all++;
	t->kinds[change->kind]++;
	t->conflicts += (change->what & ATOLL_CHANGE_CONFLICT) != 0;
}

static void put_json(const struct cli *c, const struct changes *ch, struct totals *t)
{
	struct json j;

	cli_json_begin(c, &j);
	cli_json_plan(c, &j);
	json_open_array(&j, "changes");
	for (size_t i = 0; i < ch->n; i++) {
		if (!ch->v[i].selected)
			continue;
		json_change(&j, &ch->v[i].change);
		count(t, &ch->v[i].change);
	}
	json_close(&j);
	for (size_t k = 0; k < ATOLL_CHANGE_END_; k++)
		json_uint(&j, kinds[k].word, t->kinds[k]);
	json_uint(&j, "conflicts", t->conflicts);
	cli_json_end(&j);
}

static void put_lines(const struct cli *c, const struct changes *ch, struct totals *t)
{
	bool stat = args_has(&c->args, "stat");

	for (size_t i = 0; i < ch->n; i++) {
		if (!ch->v[i].selected)
			continue;
		if (stat)
			put_stat(c, &ch->v[i].change);
		else
			put_change(c, &ch->v[i].change);
		count(t, &ch->v[i].change);
	}
	if (stat && t->all > 0)
		(void)printf("%" PRIu64 " added, %" PRIu64 " changed, %" PRIu64 " deleted\n",
		             t->kinds[ATOLL_CHANGE_ADDED], t->kinds[ATOLL_CHANGE_CHANGED],
		             t->kinds[ATOLL_CHANGE_DELETED]);
}

void changes_print(const struct cli *c, const struct changes *ch)
{
	struct totals t = { 0 };

	put_lines(c, ch, &t);
}

static void say_next(const struct cli *c, const struct totals *t)
{
	const char *name = atoll_plan_name(c->plan);

	if (t->all == 0) {
		cli_say(c, "%s: no changes", name);
		cli_next(c, "atoll exec %s -- COMMAND", name);
	} else if (t->conflicts > 0) {
		cli_say(c, "%" PRIu64 " %s with what somebody else changed meanwhile", t->conflicts,
		        cli_plural(t->conflicts, "conflict", "conflicts"));
		cli_next(c, "make both sides equal, or atoll reset %s to begin again", name);
	} else {
		cli_next(c, "atoll commit %s, or atoll rollback %s", name, name);
	}
}

static int diff_run(struct cli *c)
{
	cleanup_changes struct changes ch = CHANGES_INIT;
	struct error err = ERROR_INIT;
	struct totals t = { 0 };
	int status, r;

	status = cli_open_plan(c);
	if (status)
		return status;
	r = changes_read(c, &ch);
	if (r < 0)
		return cli_fail(c, r);
	if (c->args.n_words > 1) {
		r = changes_select(c, &ch, c->args.words + 1, c->args.n_words - 1, &err);
		if (r < 0)
			return cli_fail_error(c, &err);
	}
	if (c->json)
		put_json(c, &ch, &t);
	else
		put_lines(c, &ch, &t);
	say_next(c, &t);
	return args_has(&c->args, "exit-code") && t.all > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "name-status", NULL, "a letter and a path per change (the default)" },
	{ "stat", NULL, "sizes before and after, and totals" },
	{ "exit-code", NULL, "exit 1 when there are changes" },
	{ NULL, NULL, NULL },
};

const struct command cmd_diff = {
	.name = "diff",
	.run = diff_run,
	.words = "PLAN [PATH]...",
	.summary = "show what a commit would change",
	.about = "A is added, M changed, D deleted; a new or deleted directory is one line.",
	.options = options,
	.min_words = 1,
	.max_words = SIZE_MAX,
};
