/* SPDX-License-Identifier: Apache-2.0 */
/* The store and the plan a command works on. */
#include "cli/cli.h"

#include "cli/audit.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/question.h"
#include "cli/which.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell_waiting(void *user, const char *message)
{
	(void)user;
	progress_hide();
	cli_tell(message);
}

/* A command of a plan does not see the store, and has no $ATOLL_HOME unless it made one itself. */
static int check_outside(struct cli *c)
{
	const char *plan = getenv("ATOLL_PLAN");
	struct error err = ERROR_INIT;

	if (!plan || getenv("ATOLL_HOME"))
		return 0;
	(void)error_set(&err, -ATOLL_E_WOULD_DEADLOCK,
	                "atoll cannot be used inside a plan (%s): run it outside", plan);
	error_hint(&err, "leave the plan's command first, then atoll %s", c->command->name);
	return cli_fail_error(c, &err);
}

int cli_open(struct cli *c)
{
	int r = check_outside(c);

	if (r)
		return r;
	store_program(c->command->reads);
	r = atoll_open(NULL, &c->atoll, c->res);
	if (r < 0)
		return cli_fail(c, r);
	atoll_set_wait(c->atoll, c->wait_ms);
	atoll_set_wait_notify(c->atoll, tell_waiting, NULL);
	cli_audit_decisions(c);
	progress_watch(c);
	if (c->command->decides)
		interrupt_watch(c);
	atoll_set_retention(c->atoll, c->settings.v[SETTING_UNDO_RETENTION].number);
	atoll_set_min_free(c->atoll, c->settings.v[SETTING_EXEC_MIN_FREE].number);
	atoll_set_log_limits(c->atoll, c->settings.v[SETTING_LOG_MAX_AGE].number,
	                     c->settings.v[SETTING_LOG_MAX_ENTRIES].number);
	return 0;
}

/* ---- what dead processes left ---- */

static void say_recovered(struct cli *c, const struct plan_row *before, size_t n)
{
	cleanup_free struct plan_row *after = NULL;
	size_t n_after = 0;

	if (plan_rows_doubtful(c->atoll, &after, &n_after, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		bool left = false;

		for (size_t k = 0; k < n_after; k++)
			left |= strcmp(before[i].id, after[k].id) == 0;
		if (!left)
			cli_say(c, "recovered plan %s", before[i].name);
	}
}

/* Not asked for, so a failure is not this command's: whoever names the plan will hear of it. */
static void settle(struct cli *c)
{
	cleanup_free struct plan_row *before = NULL;
	struct atoll_result *said;
	size_t n = 0;

	if (plan_rows_doubtful(c->atoll, &before, &n, NULL) < 0)
		return;
	said = n > 0 ? atoll_result_new() : NULL;
	interrupt_recovering(n > 0);
	plan_settle(c->atoll, said);
	interrupt_recovering(false);
	if (n > 0)
		say_recovered(c, before, n);
	if (said)
		cli_kept(c, said);
	atoll_result_free(said);
}

int cli_open_settled(struct cli *c)
{
	int status = cli_open(c);

	if (status)
		return status;
	settle(c);
	cleanup_retention(c->atoll, NULL);
	return 0;
}

/* ---- the plan ---- */

int cli_open_plan(struct cli *c)
{
	int status = cli_open(c);

	return status ? status : which_plan(c);
}

/* Who is inside a command of the plan would wait for that command, which waits for it. */
static int check_not_inside(struct cli *c)
{
	const char *inside = getenv("ATOLL_PLAN_ID");
	struct error err = ERROR_INIT;

	if (!inside || strcmp(inside, atoll_plan_id(c->plan)) != 0)
		return 0;
	(void)error_set(&err, -ATOLL_E_WOULD_DEADLOCK,
	                "atoll cannot be used inside a plan (%s): run it outside",
	                atoll_plan_name(c->plan));
	error_hint(&err, "leave the plan's command first, then atoll %s", c->command->name);
	return cli_fail_error(c, &err);
}

int cli_open_plan_by(struct cli *c, int (*find)(struct cli *c))
{
	int status = cli_open(c);

	if (status)
		return status;
	settle(c);
	status = find(c);
	if (status)
		return status;
	cleanup_retention(c->atoll, atoll_plan_id(c->plan));
	return check_not_inside(c);
}

int cli_open_plan_settled(struct cli *c)
{
	return cli_open_plan_by(c, which_plan);
}

unsigned cli_policy(const struct cli *c)
{
	return c->settings.v[SETTING_POLICY_DENY_ESCAPING_LINKS].number ? ATOLL_DENY_ESCAPING_LINKS
	                                                                : 0;
}

bool cli_confirm(const struct cli *c, const char *question)
{
	static const struct question_answer answers[] = {
		{ "y", true },   { "yes", true }, { "n", false },
		{ "no", false }, { "", false },   { NULL, 0 },
	};
	cleanup_free char *text = xasprintf("%s [y/N] ", question);
	const struct question q = { .text = text, .choices = "y: yes, n: no", .answers = answers };
	int answer;

	if (c->yes || c->json || !question_possible())
		return true;
	answer = question_ask(&q);
	interrupt_obey();
	return answer > 0;
}
