/* SPDX-License-Identifier: Apache-2.0 */
/* atoll diff: what a commit would change. Takes no lock, works while a command runs. */
#include "cli/diff-view.h"

#include "util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTEXT     3
#define CONTEXT_MAX 1000000

/* ---- what is asked for ---- */

static int read_form(struct cli *c, enum diff_form *ret)
{
	static const char *const names[] = {
		[DIFF_NAMES] = "name-status",
		[DIFF_STAT] = "stat",
		[DIFF_PATCH] = "patch",
		[DIFF_CONFLICTS] = "conflicts",
	};
	size_t given = 0;

	*ret = args_has(&c->args, "unified") ? DIFF_PATCH : DIFF_NAMES;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!args_has(&c->args, names[i]))
			continue;
		*ret = (enum diff_form)i;
		given++;
	}
	if (given > 1)
		return cli_fail_usage(c, "diff: --name-status, --stat, --patch and --conflicts "
		                         "exclude each other");
	if (args_has(&c->args, "digest") && !c->json && (given > 0 || c->args.n_words > 1))
		return cli_fail_usage(c, "diff: --digest is of all that a plan changes, and is "
		                         "shown alone, but for --json");
	if (args_has(&c->args, "unified") && *ret != DIFF_PATCH)
		return cli_fail_usage(c, "diff: --unified is for --patch");
	return 0;
}

static int read_context(struct cli *c, unsigned *ret)
{
	const char *text = args_value(&c->args, "unified");
	unsigned long n;
	char *end;

	*ret = CONTEXT;
	if (!text)
		return 0;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n > CONTEXT_MAX)
		return cli_fail_usage(c, "option '--unified': '%s' is no number of lines", text);
	*ret = (unsigned)n;
	return 0;
}

static int view_init(struct diff_view *v, struct cli *c)
{
	int status = read_form(c, &v->form);

	if (status == 0)
		status = read_context(c, &v->context);
	v->c = c;
	v->is_seen = !c->json && cli_is_terminal(c, stdout);
	for (int i = 0; i < PAINT_END_; i++)
		v->paint[i] = c->json ? "" : cli_paint(c, stdout, (enum cli_paint)i);
	v->select.conflicts_only = v->form == DIFF_CONFLICTS;
	return status;
}

static void view_done(struct diff_view *v)
{
	diff_select_done(&v->select);
	diff_page_free(v->page);
	error_done(&v->err);
	free(v->root);
}

/* ---- showing ---- */

static void count(struct diff_totals *t, const struct atoll_change *change)
{
	uint32_t mode = change->new_mode ? change->new_mode : change->old_mode;

	t->all++;
	t->kinds[change->kind]++;
	t->conflicts += (change->what & ATOLL_CHANGE_CONFLICT) != 0;
	t->directories += S_ISDIR(mode);
	t->files += !S_ISDIR(mode);
}

/* A job whose turn has come. */
static int show_job(struct diff_view *v, struct diff_job *job)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (job->err.code) {
		error_move(&v->err, &job->err);
		return v->err.code;
	}
	v->totals.lines.added += job->count.added;
	v->totals.lines.deleted += job->count.deleted;
	if (v->c->json) {
		diff_json_change(v, &job->change, job);
		return 0;
	}
	if (v->form == DIFF_STAT) {
		diff_page_add(v, v->page, job);
		return 0;
	}
	diff_patch_root(v, &job->change);
	diff_line_beside(&sb, v, job);
	(void)fputs(strbuf_str(&sb), stdout);
	(void)fwrite(strbuf_str(&job->patch), 1, job->patch.len, stdout);
	return 0;
}

static int show_change(void *user, const struct atoll_change *change)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct diff_view *v = user;

	if (!diff_select_has(&v->select, change))
		return 0;
	count(&v->totals, change);
	if (v->pipe)
		return diff_pipe_push(v->pipe, diff_job_new(v, change));
	if (v->c->json) {
		diff_json_change(v, change, NULL);
		return 0;
	}
	if (v->form == DIFF_CONFLICTS)
		diff_conflict(&sb, v, change);
	else
		diff_line(&sb, v, change, 0);
	(void)fputs(strbuf_str(&sb), stdout);
	return 0;
}

static int64_t show_changes(struct diff_view *v)
{
	int64_t n;
	int r = 0;

	if (v->form == DIFF_STAT || v->form == DIFF_PATCH)
		v->pipe = diff_pipe_new(v, show_job);
	if (v->form == DIFF_STAT)
		v->page = diff_page_new();
	n = atoll_plan_diff(v->c->plan, show_change, v, v->c->res);
	if (v->pipe)
		r = diff_pipe_end(v->pipe);
	if (v->page)
		diff_page_end(v, v->page);
	return r < 0 ? r : n;
}

/* ---- the end ---- */

/* The ways out of a conflict, each with what it keeps. */
static void say_ways_out(const struct diff_view *v)
{
	const char *name = atoll_plan_name(v->c->plan);

	cli_say(v->c, "%" PRIu64 " %s with what somebody else changed meanwhile",
	        v->totals.conflicts, cli_plural(v->totals.conflicts, "conflict", "conflicts"));
	if (v->form != DIFF_CONFLICTS) {
		cli_next(v->c, "atoll diff %s --conflicts", name);
		return;
	}
	cli_next(v->c, "atoll commit %s --ours PATH: the plan's version", name);
	cli_next(v->c, "atoll commit %s --theirs PATH: what is there now", name);
	cli_next(v->c, "atoll refresh %s: bring in what somebody else changed", name);
	cli_next(v->c, "atoll reset %s: drop the work and begin again", name);
}

static void say_next(const struct diff_view *v)
{
	const char *name = atoll_plan_name(v->c->plan);

	if (v->form == DIFF_CONFLICTS && v->totals.all == 0) {
		cli_say(v->c, "%s: no conflicts", name);
	} else if (v->totals.all == 0) {
		cli_say(v->c, "%s: no changes", name);
		cli_next(v->c, "atoll exec %s -- COMMAND", name);
	} else if (v->totals.conflicts > 0) {
		say_ways_out(v);
	} else {
		cli_next(v->c, "atoll commit %s, or atoll rollback %s", name, name);
	}
}

static void show_summary(const struct diff_view *v)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (v->totals.all == 0)
		return;
	diff_summary(&sb, &v->totals);
	if (v->form == DIFF_STAT)
		(void)printf("%s\n", strbuf_str(&sb));
	else if (v->form == DIFF_PATCH)
		cli_say(v->c, "%s", strbuf_str(&sb) + 1);
}

static int fail(struct diff_view *v, int code)
{
	bool ours = v->err.code != 0;
	const char *hint = ours ? v->err.hint : atoll_result_hint(v->c->res);

	if (v->c->json && v->json_begun) {
		diff_json_end(v, code, ours ? v->err.msg : atoll_result_message(v->c->res),
		              hint ? hint : "");
		return atoll_code_exit(code);
	}
	return ours ? cli_fail_error(v->c, &v->err) : cli_fail(v->c, code);
}

static int show(struct diff_view *v)
{
	struct error err = ERROR_INIT;
	int64_t n;
	int r = diff_select_init(&v->select, v->c, &err);

	if (r < 0)
		return cli_fail_error(v->c, &err);
	n = show_changes(v);
	if (n < 0)
		return fail(v, (int)n);
	if (v->c->json)
		diff_json_end(v, 0, "", "");
	else
		show_summary(v);
	diff_select_report(&v->select, v->c);
	say_next(v);
	return args_has(&v->c->args, "exit-code") && v->totals.all > 0 ? EXIT_FAILURE
	                                                               : EXIT_SUCCESS;
}

static int read_digest(struct diff_view *v)
{
	int r = atoll_plan_digest(v->c->plan, v->digest, v->c->res);

	return r < 0 ? cli_fail(v->c, r) : 0;
}

static int diff_run(struct cli *c)
{
	struct diff_view v = { 0 };
	bool digest = args_has(&c->args, "digest");
	int status = view_init(&v, c);

	if (status == 0)
		status = cli_open_plan(c);
	if (status == 0 && digest)
		status = read_digest(&v);
	if (status == 0 && digest && !c->json)
		(void)puts(v.digest);
	else if (status == 0)
		status = show(&v);
	view_done(&v);
	return status;
}

static const struct option_row options[] = {
	{ "name-status", NULL, "a letter and a path per change (the default)" },
	{ "stat", NULL, "lines added and deleted, with a graph, and totals" },
	{ "patch", NULL, "the changed lines, as git shows them" },
	{ "unified", "LINES", "with so many lines around them (default: 3)" },
	{ "conflicts", NULL, "only what somebody else changed too, both sides" },
	{ "exclude", "GLOB", "leave out what matches; may be repeated" },
	{ "exit-code", NULL, "exit 1 when there are changes" },
	{ "digest", NULL, "what it all comes to, in 64 digits, for commit --if-digest" },
	{ NULL, NULL, NULL },
};

const struct command cmd_diff = {
	.name = "diff",
	.run = diff_run,
	.words = "PLAN [PATH]...",
	.summary = "show what a commit would change",
	.about =
		"A is added, M changed, D deleted. Of a directory that is new, deleted or replaced every\n"
		"entry is shown. A patch can be given to git apply: its paths are relative to the\n"
		"resource, so name one resource: atoll diff PLAN ROOT --patch | git -C ROOT apply",
	.options = options,
	.min_words = 1,
	.max_words = SIZE_MAX,
	.pages = true,
};
