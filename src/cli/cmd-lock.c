/* SPDX-License-Identifier: Apache-2.0 */
/* atoll lock: who holds what, who waits, and ending a holder that is stuck. */
#include "cli/cli.h"
#include "cli/question.h"
#include "cli/which.h"

#include "util/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct view {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	size_t n;
};

/* ---- show ---- */

static void put_subject(const struct atoll_lock_info *info)
{
	(void)printf("%-8s ", info->kind);
	cli_put_path(stdout, *info->plan_name ? info->plan_name : info->root);
}

static void put_line(const struct atoll_lock_info *info)
{
	char since[CLOCK_TEXT_LEN];

	put_subject(info);
	if (info->ahead == 0)
		(void)fputs("  held by", stdout);
	else
		(void)printf("  %u. waiting:", info->ahead);
	if (info->pid)
		(void)printf(" pid %d", (int)info->pid);
	else
		(void)fputs(" an unknown process", stdout);
	if (*info->command) {
		(void)fputs(" \"", stdout);
		cli_put_path(stdout, info->command);
		(void)putchar('"');
	}
	if (info->since_ms) {
		clock_format(info->since_ms, since);
		(void)printf(" since %s", since);
	}
	if (!info->alive)
		(void)fputs(" (gone; what it started is ending)", stdout);
	(void)putchar('\n');
}

static int show_lock(void *user, const struct atoll_lock_info *info)
{
	struct view *v = user;

	if (v->j)
		(void)answer_lock(v->j, info);
	else
		put_line(info);
	v->n++;
	return 0;
}

static int show(struct cli *c)
{
	const char *plan = c->args.words[0];
	struct view v = { .c = c };
	struct json j;
	int status = cli_open(c);

	if (status)
		return status;
	v.j = cli_list_begin(c, &j, "locks", NULL);
	status = cli_list_end(c, v.j, atoll_lock_list(c->atoll, plan, show_lock, &v, c->res));
	if (status == 0 && v.n == 0)
		cli_say(c, "no lock is held");
	return status;
}

/* ---- break ---- */

static int note_holder(void *user, const struct atoll_lock_info *info)
{
	pid_t *pid = user;

	if (strcmp(info->kind, "plan") == 0 && info->ahead == 0) {
		*pid = info->pid;
		put_line(info);
	}
	return 0;
}

static int note_pid(void *user, const struct atoll_lock_info *info)
{
	if (strcmp(info->kind, "plan") == 0 && info->ahead == 0)
		*(pid_t *)user = info->pid;
	return 0;
}

static int nothing_held(const struct cli *c)
{
	struct json j;

	cli_say(c, "plan %s is not locked; nothing was done", atoll_plan_name(c->plan));
	if (c->json) {
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
		answer_lock_broken(&j, NULL);
		cli_json_end(&j);
	}
	return EXIT_SUCCESS;
}

static int report(const struct cli *c, const struct atoll_lock_broken *broken)
{
	const char *name = atoll_plan_name(c->plan);
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
		answer_lock_broken(&j, broken);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	if (broken->term_signal)
		cli_say(c, "ended pid %d \"%s\" with SIG%s; plan %s is free", (int)broken->pid,
		        broken->command, sigabbrev_np(broken->term_signal), name);
	else
		cli_say(c, "pid %d \"%s\" was gone; ended what it had started; plan %s is free",
		        (int)broken->pid, broken->command, name);
	cli_next(c, "atoll recover %s settles what it left; its work is kept", name);
	return EXIT_SUCCESS;
}

static int break_lock(struct cli *c)
{
	struct atoll_lock_broken broken;
	bool asks = !c->yes && !c->json && question_possible();
	pid_t pid = 0;
	int status, r;

	if (!asks && !c->yes)
		return cli_fail_usage(c, "lock break ends a process, so it asks first; where it "
		                         "cannot, say --yes");
	status = cli_open(c);
	if (status == 0 && c->args.n_words == 0)
		status = which_plan_or_word(c, PICK_AT_WORK);
	if (status)
		return status;
	r = c->plan ? 0 : atoll_plan_find(c->atoll, c->args.words[0], &c->plan, c->res);
	if (r >= 0)
		r = atoll_lock_list(c->atoll, atoll_plan_id(c->plan), asks ? note_holder : note_pid,
		                    &pid, c->res);
	if (r < 0)
		return cli_fail(c, r);
	if (pid == 0)
		return nothing_held(c);
	(void)fflush(stdout);
	if (!cli_confirm(c, "end it? What it did so far is kept or withdrawn as after a crash"))
		return EXIT_FAILURE;
	r = atoll_lock_break(c->plan, pid, &broken, c->res);
	if (r < 0)
		return cli_fail(c, r);
	return r == 0 ? nothing_held(c) : report(c, &broken);
}

static int lock_run(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
	} verbs[] = { { "show", show }, { "break", break_lock } };

	c->verb = c->args.n_words > 0 ? which_take_word(&c->args) : "show";
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, c->verb) == 0)
			return verbs[i].run(c);
	BUG("'%s' is in the usage and not in the table", c->verb);
}

const struct command cmd_lock = {
	.name = "lock",
	.run = lock_run,
	.words = "[show|break] [PLAN]",
	.summary = "show who holds which lock and who waits; end a holder that is stuck",
	.about =
		"Without a PLAN show is about all, and break about the only plan with uncommitted changes or a\n"
		"running command, of those whose resources hold the current directory.\n"
		"break asks first, unless --yes. It ends the process that holds the plan (SIGTERM, then\n"
		"SIGKILL) and waits until it has let go. No lock file is touched, and the next\n"
		"command settles what it left, as after any crash.",
	.max_words = 2,
};
