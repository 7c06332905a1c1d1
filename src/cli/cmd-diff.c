/* SPDX-License-Identifier: Apache-2.0 */
/* atoll diff: what a commit would change. Takes no lock, works while a command runs. */
#include "answer/diff-view.h"
#include "cli/cli.h"
#include "cli/decide.h"
#include "cli/diff-home.h"
#include "cli/there.h"
#include "cli/names.h"

#include "util/cleanup.h"
#include "util/strbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CONTEXT_MAX 1000000

/* ---- what is asked for ---- */

static int read_form(struct cli *c, enum diff_form *ret)
{
	static const char *const names[] = {
		[DIFF_NAMES] = "name-status",
		[DIFF_STAT] = "stat",
		[DIFF_PATCH] = "patch",
	};
	size_t given = 0;

	*ret = args_has(&c->args, "unified")     ? DIFF_PATCH
	       : args_has(&c->args, "conflicts") ? DIFF_CONFLICTS
	                                         : DIFF_NAMES;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!args_has(&c->args, names[i]))
			continue;
		*ret = (enum diff_form)i;
		given++;
	}
	if (given > 1)
		return cli_fail_usage(c,
		                      "diff: --name-status, --stat and --patch exclude each other");
	if (args_has(&c->args, "digest") && !c->json && (given > 0 || *ret != DIFF_NAMES))
		return cli_fail_usage(c, "diff: --digest is shown alone, but for --json");
	if (args_has(&c->args, "unified") && *ret != DIFF_PATCH)
		return cli_fail_usage(c, "diff: --unified is for --patch");
	return 0;
}

static int read_context(struct cli *c, unsigned *ret)
{
	const char *text = args_value(&c->args, "unified");
	unsigned long n;
	char *end;

	*ret = DIFF_CONTEXT;
	if (!text)
		return 0;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n > CONTEXT_MAX)
		return cli_fail_usage(c, "option '--unified': '%s' is no number of lines", text);
	*ret = (unsigned)n;
	return 0;
}

/* Where the text goes, and in which colours. */
struct view {
	struct cli *c;
	struct diff_view diff;
};

static size_t terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
		return w.ws_col;
	return DIFF_WIDTH;
}

static int view_init(struct view *v, struct cli *c)
{
	struct diff_view *d = &v->diff;
	int status;

	v->c = c;
	diff_view_init(d, NULL, stdout);
	status = read_form(c, &d->form);
	if (status == 0)
		status = read_context(c, &d->context);
	d->as_json = c->json;
	d->res = c->res;
	d->is_seen = !c->json && cli_is_terminal(c, stdout);
	d->width = terminal_width();
	for (int i = 0; i < PAINT_END_ && !c->json; i++)
		d->paint[i] = cli_paint(c, stdout, (enum paint)i);
	d->select.conflicts_only = args_has(&c->args, "conflicts");
	return status;
}

/* By the words after the plan, which mean what names.h says, and by --exclude. */
static int select_init(struct diff_select *s, struct cli *c, struct error *err)
{
	cleanup_names_lookup struct names_lookup look = NAMES_LOOKUP_INIT(c);
	const char *pattern;
	size_t at = 0;
	int r = 0;

	while (r >= 0 && (pattern = args_next(&c->args, "exclude", &at)))
		r = diff_select_exclude(s, pattern, err);
	if (r < 0)
		return r;
	s->is_narrowed = c->args.n_words > 0;
	return names_resolve(&look, c->args.words, c->args.n_words, &s->paths, err);
}

/* A warning for each pattern that left nothing out. */
static void select_report(const struct diff_select *s, const struct cli *c)
{
	for (size_t i = 0; i < s->excludes.n; i++)
		if (!s->used[i])
			cli_say(c,
			        "  warning: nothing that changed matches '%s', so it left nothing "
			        "out",
			        s->excludes.v[i]);
}

/* ---- the end ---- */

/* The ways out of a conflict, each with what it keeps. */
static void say_ways_out(const struct view *v)
{
	cleanup_free char *part = decide_commit_words(v->c);
	const char *name = atoll_plan_name(v->c->plan);

	cli_say(v->c, "%" PRIu64 " %s with what changed outside the plan", v->diff.totals.conflicts,
	        cli_plural(v->diff.totals.conflicts, "conflict", "conflicts"));
	if (!v->diff.select.conflicts_only) {
		cli_next(v->c, "atoll diff %s --conflicts", name);
		return;
	}
	cli_next(v->c, "%s --ours PATH: the plan's version", part);
	cli_next(v->c, "%s --theirs PATH: what is there now", part);
	cli_next(v->c, "atoll refresh %s: bring in what changed outside", name);
	cli_next(v->c, "atoll discard %s: drop the changes and begin again", name);
}

static void say_next(const struct view *v)
{
	cleanup_free char *part = decide_commit_words(v->c);
	const char *name = atoll_plan_name(v->c->plan);

	if (v->diff.select.conflicts_only && v->diff.totals.all == 0) {
		cli_say(v->c, "%s: no conflicts", name);
	} else if (v->diff.totals.all == 0) {
		cli_say(v->c, "%s: no changes", name);
		cli_next(v->c, "atoll exec %s -- COMMAND", name);
	} else if (v->diff.totals.conflicts > 0) {
		say_ways_out(v);
	} else if (v->diff.select.is_narrowed || v->diff.select.excludes.n > 0) {
		cli_next(v->c, "%s commits these alone", part);
	} else {
		cli_next(v->c, "atoll commit %s, or atoll discard %s", name, name);
	}
}

static void show_summary(const struct view *v)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (v->diff.totals.all == 0)
		return;
	diff_summary(&sb, &v->diff.totals);
	if (v->diff.form == DIFF_STAT)
		(void)printf("%s\n", strbuf_str(&sb));
	else if (v->diff.form == DIFF_PATCH)
		cli_say(v->c, "%s", strbuf_str(&sb) + 1);
}

static int fail(struct view *v, int code)
{
	bool ours = v->diff.err.code != 0;
	const char *hint = ours ? v->diff.err.hint : atoll_result_hint(v->c->res);

	if (v->c->json && v->diff.json_begun) {
		diff_json_end(&v->diff, code,
		              ours ? v->diff.err.msg : atoll_result_message(v->c->res),
		              hint ? hint : "");
		return atoll_code_exit(code);
	}
	return ours ? cli_fail_error(v->c, &v->diff.err) : cli_fail(v->c, code);
}

static int show(struct view *v)
{
	struct error err = ERROR_INIT;
	int64_t n;
	int r = select_init(&v->diff.select, v->c, &err);

	if (r < 0)
		return cli_fail_error(v->c, &err);
	n = diff_show(&v->diff);
	if (n < 0)
		return fail(v, (int)n);
	if (v->c->json)
		diff_json_end(&v->diff, 0, "", "");
	else
		show_summary(v);
	select_report(&v->diff.select, v->c);
	say_next(v);
	return args_has(&v->c->args, "exit-code") && v->diff.totals.all > 0 ? EXIT_FAILURE
	                                                                    : EXIT_SUCCESS;
}

static int read_digest(struct view *v)
{
	int r = atoll_plan_digest(v->c->plan, v->diff.digest, v->c->res);

	return r < 0 ? cli_fail(v->c, r) : 0;
}

static int check_home(struct cli *c)
{
	static const char *const others[] = { "name-status", "stat",    "patch", "unified",
		                              "conflicts",   "exclude", "digest" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (args_has(&c->args, others[i]))
			return cli_fail_usage(c, "diff: --home and --%s exclude each other",
			                      others[i]);
	return 0;
}

/* Once the plan is known, and what is left are paths. */
static int check_paths(struct cli *c)
{
	if (c->args.n_words == 0)
		return 0;
	if (args_has(&c->args, "home"))
		return cli_fail_usage(c, "diff: --home takes no paths");
	if (args_has(&c->args, "digest") && !c->json)
		return cli_fail_usage(c, "diff: --digest is of all that a plan changes, and takes "
		                         "no paths");
	return 0;
}

static int diff_run(struct cli *c)
{
	bool digest = args_has(&c->args, "digest");
	bool home = args_has(&c->args, "home");
	struct view v;
	int status = view_init(&v, c);

	if (status == 0 && home)
		status = check_home(c);
	if (status == 0)
		status = cli_open_plan(c);
	if (status == 0)
		status = check_paths(c);
	if (status == 0 && home)
		return diff_home(c);
	v.diff.plan = c->plan;
	if (status == 0 && digest)
		status = read_digest(&v);
	if (status == 0 && digest && !c->json)
		(void)puts(v.diff.digest);
	else if (status == 0)
		status = show(&v);
	diff_view_done(&v.diff);
	return status;
}

static const struct option_row options[] = {
	{ "name-status", NULL, "a letter and a path per change (the default)" },
	{ "stat", NULL, "lines added and deleted, with a graph, and totals" },
	{ "patch", NULL, "the changed lines, as git shows them" },
	{ "unified", "LINES", "with so many lines around them (default: 3)" },
	{ "conflicts", NULL,
	  "only what was changed outside the plan, too, both sides, and as a patch, with stat or\n"
	  "with name-status where that is asked for as well" },
	{ "exclude", "GLOB", "leave out what matches; may be repeated" },
	{ "home", NULL, "the files that are private to the plan, which no commit takes along" },
	{ "exit-code", NULL, "exit 1 when there are changes" },
	{ "digest", NULL, "what it all comes to, in 64 digits, for commit --if-digest" },
	{ NULL, NULL, NULL },
};

const struct command cmd_diff = {
	.name = "diff",
	.run = diff_run,
	.words = "[PLAN] [PATH]...",
	.everyday = true,
	.summary = "show what a commit would change",
	.about =
		"A is added, M changed, D deleted. Of a directory that is new, deleted or replaced every\n"
		"entry is shown. A patch can be given to git apply: its paths are relative to the\n"
		"resource, so name one resource: atoll diff PLAN ROOT --patch | git -C ROOT apply",
	.options = options,
	.pick = PICK_LATEST,
	.paths_follow = true,
	.max_words = SIZE_MAX,
	.reads = true,
	.pages = true,
	.there = &there_diff,
};
