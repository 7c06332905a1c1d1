/* SPDX-License-Identifier: Apache-2.0 */
/* atoll log: what happened, newest first. Takes no lock and waits for nobody. */
#include "cli/cli.h"
#include "cli/there.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "cli/which.h"

#include "auth/audit.h"
#include "util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct view {
	const struct cli *c;
	size_t n;
};

static void put_ran(const struct cli *c, const struct atoll_log_entry *e)
{
	double seconds = (double)(e->at_ms - e->started_ms) / 1000;

	(void)printf("%sexit %d%s, %.3f s",
	             cli_paint(c, stdout, e->exit_code ? PAINT_BAD : PAINT_GOOD), e->exit_code,
	             cli_paint(c, stdout, PAINT_NONE), seconds);
	(void)printf(" (user %.3f s, system %.3f s, %" PRId64 " KiB)", (double)e->user_us / 1e6,
	             (double)e->system_us / 1e6, e->max_rss_kb);
	if (e->changes >= 0)
		(void)printf(", %" PRId64 " %s", e->changes,
		             cli_plural((uint64_t)e->changes, "change", "changes"));
	if (e->timed_out)
		(void)fputs(", time was up", stdout);
	if (e->memory_kills > 0)
		(void)fputs(", too much memory", stdout);
	if (*e->job)
		(void)printf(", job %s", e->job);
	if (e->output_bytes >= 0) {
		char size[CLI_SIZE_LEN];

		cli_size((uint64_t)e->output_bytes, size);
		(void)printf(", printed %s%s (--output %" PRId64 ")", size,
		             e->output_left_out ? " and more" : "", e->id);
	}
}

static void put_line(const struct cli *c, const struct atoll_log_entry *e)
{
	char at[CLOCK_TEXT_LEN];

	cli_time(c, e->at_ms, at);
	(void)printf("%s%s%s  %-16s  %-8s  ", cli_paint(c, stdout, PAINT_DIM), at,
	             cli_paint(c, stdout, PAINT_NONE), *e->plan_name ? e->plan_name : e->plan_id,
	             e->what);
	if (e->ran)
		put_ran(c, e);
	else if (e->code < 0)
		(void)printf("%s%s%s", cli_paint(c, stdout, PAINT_BAD), atoll_code_name(e->code),
		             cli_paint(c, stdout, PAINT_NONE));
	else
		(void)fputs("done", stdout);
	if (*e->message) {
		(void)fputs(": ", stdout);
		/* A command line was made harmless when it was recorded. */
		if (e->ran)
			(void)fputs(e->message, stdout);
		else
			cli_put_path(stdout, e->message);
	}
	(void)putchar('\n');
}

static void put_json(const struct cli *c, const struct atoll_log_entry *e)
{
	struct json j;

	cli_json_begin(c, &j);
	answer_log_members(&j, e);
	cli_json_end(&j);
}

static int show_entry(void *user, const struct atoll_log_entry *e)
{
	struct view *v = user;

	if (v->c->json)
		put_json(v->c, e);
	else
		put_line(v->c, e);
	v->n++;
	return 0;
}

/* 0 when it is not given. */
static int read_number(struct cli *c, const char *option, const char *of, uint64_t *ret)
{
	const char *text = args_value(&c->args, option);
	unsigned long long number;
	char *end;

	*ret = 0;
	if (!text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || number == 0 ||
	    number > INT64_MAX)
		return cli_fail_usage(c, "option '--%s': '%s' is no number of %s", option, text,
		                      of);
	*ret = number;
	return 0;
}

static int print_output(struct cli *c, int64_t id)
{
	struct output_view v = { .c = c };
	int r;

	if (c->json)
		return cli_fail_usage(c,
		                      "log: --output prints what a command printed, and no JSON");
	r = atoll_log_output(c->atoll, id, output_print, &v, c->res);
	return r < 0 ? cli_fail(c, r) : EXIT_SUCCESS;
}

/* ---- the audit log ---- */

struct audit_view {
	const struct cli *c;
	bool check; /* only what is wrong */
};

static int show_line(void *user, const struct audit_line *line)
{
	const struct audit_view *v = user;

	if (!v->check && line->is_entry) {
		(void)puts(line->text);
	} else if (!v->check && !v->c->json) {
		cli_put_path(stdout, line->text);
		(void)putchar('\n');
	} else if (line->wrong && !v->c->json) {
		(void)printf("%s:%" PRIu64 ": %s\n", line->file, line->number, line->wrong);
	}
	return 0;
}

static int say_sum(struct cli *c, const struct audit_sum *sum)
{
	bool good = sum->wrong == 0 && sum->missing == 0;
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		json_uint(&j, "audit_lines", sum->lines);
		json_uint(&j, "wrong", sum->wrong);
		json_uint(&j, "missing_file", sum->missing);
		json_string(&j, "last", sum->last);
		cli_json_end(&j);
	} else {
		if (sum->missing)
			(void)printf("audit.%" PRIu64 ".log is gone\n", sum->missing);
		(void)printf("%" PRIu64 " %s, %" PRIu64 " wrong, last %s\n", sum->lines,
		             cli_plural(sum->lines, "line", "lines"), sum->wrong, sum->last);
	}
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int show_audit(struct cli *c)
{
	struct audit_view v = { .c = c, .check = args_has(&c->args, "check") };
	struct error err = ERROR_INIT;
	struct audit_sum sum;
	int status;

	if (c->args.n_words > 0 || args_has(&c->args, "limit") || args_has(&c->args, "output"))
		return cli_fail_usage(c, "log: --audit is about all plans, and takes only --check");
	status = cli_open(c);
	if (status)
		return status;
	if (audit_read(c->atoll, show_line, &v, &sum, &err) < 0)
		return cli_fail_error(c, &err);
	return v.check ? say_sum(c, &sum) : EXIT_SUCCESS;
}

static int log_run(struct cli *c)
{
	const char *plan = c->args.n_words > 0 ? c->args.words[0] : NULL;
	struct view v = { .c = c };
	uint64_t limit = 0, output = 0, after = 0;
	int status, r;

	if (args_has(&c->args, "audit"))
		return show_audit(c);
	if (plan && args_has(&c->args, "all"))
		return cli_fail_usage(c, "log: --all is for all plans, and takes no PLAN");
	if (args_has(&c->args, "check"))
		return cli_fail_usage(
			c, "log: --check is for the audit log: atoll log --audit --check");
	status = read_number(c, "limit", "entries", &limit);
	if (status == 0)
		status = read_number(c, "output", "an entry with output", &output);
	if (status == 0)
		status = read_number(c, "after", "an event", &after);
	if (status == 0 && (args_has(&c->args, "follow") ? limit || output : after))
		return cli_fail_usage(c, "log: --follow goes with --after, and not with --limit "
		                         "or --output");
	if (status == 0)
		status = cli_open(c);
	if (status)
		return status;
	if (output)
		return print_output(c, (int64_t)output);
	if (!plan && !args_has(&c->args, "all"))
		status = which_plan_here(c);
	if (status)
		return status;
	if (c->plan)
		plan = atoll_plan_id(c->plan);
	if (args_has(&c->args, "follow"))
		return follow_run(c, plan, after ? (int64_t)after : -1);
	r = atoll_log(c->atoll, plan, limit, show_entry, &v, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (v.n == 0)
		cli_say(c, "nothing has happened yet");
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "all", NULL, "of all plans, also where the current directory has one" },
	{ "limit", "N", "the newest N entries only" },
	{ "follow", NULL, "what happens from now on, as it happens, each change of state" },
	{ "after", "N", "with --follow: begin after the event of that number" },
	{ "output", "N", "what the command printed whose entry says so (exec --transcript)" },
	{ "audit", NULL, "the audit log, oldest first: who decided what, and who got which key" },
	{ "check", NULL, "with --audit: whether lines were changed or taken out since" },
	{ NULL, NULL, NULL },
};

const struct command cmd_log = {
	.name = "log",
	.run = log_run,
	.words = "[PLAN]",
	.summary = "show what happened, newest first: commands, commits, failures",
	.about =
		"Of one plan; without PLAN, of the last used whose resources hold the current directory,\n"
		"and where there is none, of all, also of plans that are gone. What looks like a secret\n"
		"in a command line was left out when it was recorded. With --json each line is an object.",
	.options = options,
	.max_words = 1,
	.reads = true,
	.pages = true,
	.there = &there_log,
};
