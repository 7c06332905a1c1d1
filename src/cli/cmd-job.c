/* SPDX-License-Identifier: Apache-2.0 */
/* atoll job: commands in the background, what they print, and ending them. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/which.h"

#include "util/clock.h"
#include "util/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FOLLOW_NS INT64_C(100000000) /* how often a job is looked at */

struct view {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	size_t n;
};

/* ---- list ---- */

static void put_how(const struct cli *c, const struct atoll_job *job)
{
	bool bad = job->state == ATOLL_JOB_LOST ||
	           (job->state == ATOLL_JOB_ENDED && job->exit_code != 0);

	(void)fputs(cli_paint(c, stdout, bad ? PAINT_BAD : PAINT_GOOD), stdout);
	if (job->state == ATOLL_JOB_ENDED)
		(void)printf("exit %d", job->exit_code);
	else
		(void)fputs(atoll_job_state_name(job->state), stdout);
	(void)fputs(cli_paint(c, stdout, PAINT_NONE), stdout);
}

static void put_line(const struct cli *c, const struct atoll_job *job)
{
	char since[CLOCK_TEXT_LEN], size[CLI_SIZE_LEN];

	cli_time(c, job->started_ms, since);
	cli_size(job->output_bytes, size);
	(void)printf("%-16s  %-12s  ", job->plan_name, job->name);
	put_how(c, job);
	(void)printf("  since %s  printed %s%s: %s\n", since, size,
	             job->output_left_out ? " and more" : "", job->command);
}

static int show_job(void *user, const struct atoll_job *job)
{
	struct view *v = user;

	if (v->j)
		(void)answer_job(v->j, job);
	else
		put_line(v->c, job);
	v->n++;
	return 0;
}

static int list(struct cli *c)
{
	const char *plan = c->args.words[0];
	struct view v = { .c = c };
	struct json j;
	int status;

	if (c->args.n_words > 1)
		return cli_fail_usage(c, "job list: unexpected argument '%s'", c->args.words[1]);
	status = cli_open(c);
	if (status)
		return status;
	v.j = cli_list_begin(c, &j, "jobs", NULL);
	status = cli_list_end(c, v.j, atoll_job_list(c->atoll, plan, show_job, &v, c->res));
	if (status == 0 && v.n == 0)
		cli_say(c, "no jobs");
	return status;
}

/* ---- one of them ---- */

struct choice {
	const char *name; /* wanted, or NULL: the only one */
	char found[LIMIT_NAME + 1];
	enum atoll_job_state state;
	int exit_code;
	size_t n;
};

static int choose(void *user, const struct atoll_job *job)
{
	struct choice *ch = user;

	if (ch->name && strcmp(ch->name, job->name) != 0)
		return 0;
	(void)snprintf(ch->found, sizeof(ch->found), "%s", job->name);
	ch->state = job->state;
	ch->exit_code = job->exit_code;
	ch->n++;
	return 0;
}

static int no_job(struct cli *c, const char *name)
{
	const char *plan = atoll_plan_name(c->plan);
	struct error err = ERROR_INIT;

	if (name)
		(void)error_set(&err, -ATOLL_E_NOT_FOUND, "plan '%s' has no job '%s'", plan, name);
	else
		(void)error_set(&err, -ATOLL_E_NOT_FOUND, "plan '%s' has no job", plan);
	error_hint(&err, "atoll exec %s --background NAME -- COMMAND begins one; atoll job list",
	           plan);
	return cli_fail_error(c, &err);
}

static int open_plan(struct cli *c, enum pick pick)
{
	int r;

	if (c->args.n_words < 2)
		return which_plan_or_word(c, pick);
	r = atoll_plan_find(c->atoll, which_take_word(&c->args), &c->plan, c->res);
	return r < 0 ? cli_fail(c, r) : 0;
}

/* The words [PLAN] [NAME]: the plan is open, and the job is in *ret. 0 or an exit status. */
static int open_job(struct cli *c, enum pick pick, struct choice *ret)
{
	int status = cli_open(c), r;

	if (status == 0)
		status = open_plan(c, pick);
	if (status)
		return status;
	*ret = (struct choice){ .name = c->args.words[0] };
	r = atoll_job_list(c->atoll, atoll_plan_id(c->plan), choose, ret, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (ret->n > 1)
		return cli_fail_usage(c, "plan '%s' has several jobs: atoll job %s %s NAME",
		                      atoll_plan_name(c->plan), c->verb, atoll_plan_name(c->plan));
	return ret->n == 1 ? 0 : no_job(c, ret->name);
}

static bool is_running(struct cli *c, struct choice *ch)
{
	struct choice now = { .name = ch->found };

	if (atoll_job_list(c->atoll, atoll_plan_id(c->plan), choose, &now, NULL) < 0 || now.n == 0)
		return false;
	ch->state = now.state;
	ch->exit_code = now.exit_code;
	return now.state == ATOLL_JOB_RUNNING;
}

static int print_log(struct cli *c)
{
	bool follow = args_has(&c->args, "follow"), more;
	struct output_view v = { .c = c };
	struct choice ch;
	int64_t at = 0;
	int status = open_job(c, PICK_LATEST, &ch);

	if (status)
		return status;
	if (c->json)
		return cli_fail_usage(c, "job log prints what a job printed, and no JSON");
	do {
		more = follow && is_running(c, &ch);
		at = atoll_job_output(c->plan, ch.found, (uint64_t)at, output_print, &v, c->res);
		if (at < 0)
			return cli_fail(c, (int)at);
		(void)fflush(stdout);
		if (more)
			clock_sleep_ns(FOLLOW_NS);
	} while (more && !ferror(stdout));
	return EXIT_SUCCESS;
}

static int report(struct cli *c, const struct choice *ch, const char *said)
{
	struct json j;

	if (!c->json) {
		cli_say(c, "job %s of plan %s %s", ch->found, atoll_plan_name(c->plan), said);
		return EXIT_SUCCESS;
	}
	cli_json_begin(c, &j);
	cli_json_plan(c, &j);
	answer_job_state(&j, ch->found, ch->state, ch->exit_code);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

static int stop(struct cli *c)
{
	struct choice ch;
	int status = open_job(c, PICK_AT_WORK, &ch), r;

	if (status)
		return status;
	r = atoll_job_stop(c->plan, ch.found, c->res);
	if (r < 0)
		return cli_fail(c, r);
	(void)is_running(c, &ch);
	return report(c, &ch, r > 0 ? "was ended; its work is kept" : "did not run");
}

static int await(struct cli *c)
{
	int64_t deadline = clock_deadline(c->wait_ms);
	struct choice ch;
	int status = open_job(c, PICK_LATEST, &ch);

	if (status)
		return status;
	while (is_running(c, &ch)) {
		if (clock_boot_ns() >= deadline) {
			struct error err = ERROR_INIT;

			(void)error_set(&err, -ATOLL_E_TIMEOUT, "job '%s' still runs", ch.found);
			return cli_fail_error(c, &err);
		}
		clock_sleep_ns(FOLLOW_NS / 2);
	}
	(void)report(c, &ch, ch.state == ATOLL_JOB_LOST ? "was lost" : "has ended");
	return ch.state == ATOLL_JOB_LOST ? EXIT_FAILURE : ch.exit_code;
}

static int job_run(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
	} verbs[] = { { "list", list }, { "log", print_log }, { "stop", stop }, { "wait", await } };

	c->verb = c->args.n_words > 0 ? which_take_word(&c->args) : "list";
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, c->verb) == 0)
			return verbs[i].run(c);
	BUG("'%s' is in the usage and not in the table", c->verb);
}

static const struct option_row options[] = {
	{ "follow", NULL, "log: go on until the job ends" },
	{ NULL, NULL, NULL },
};

const struct command cmd_job = {
	.name = "job",
	.run = job_run,
	.words = "[list|log|stop|wait] [PLAN] [NAME]",
	.summary = "show commands in the background and what they print, end them, wait for them",
	.about =
		"Jobs are begun with atoll exec --background. NAME may be left out where a plan has one.\n"
		"Without a PLAN list shows those of all plans; of the plans whose resources hold the current\n"
		"directory, log and wait take the last used, and stop the only one with uncommitted changes\n"
		"or a running command.\n"
		"stop ends a job as atoll lock break would (SIGTERM, then SIGKILL) and waits until the\n"
		"plan is free. wait ends with the job's exit status, and no later than --wait says.",
	.options = options,
	.max_words = 3,
	.here_only = true,
};
