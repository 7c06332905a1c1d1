/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a strategy of somebody else's is told, and what becomes of its answers: a resource that is no
 * file, known by a name that its strategy gives it.
 */
#include "lib/atest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is asked of the strategy next, and what it was told. */
static struct {
	enum { ANSWER, NO_NAME, NO_CAUSE, CAUSE_BUT_NO_CODE, OTHER_CODE } identify;
	enum {
		READY,
		LEAVES,
		FAILS_TWICE,
		SAYS_WHY_AND_IS_READY,
		SAYS_WHY_AND_ANOTHER_CODE,
		SAYS_NOTHING,
		ANSWERS_NONSENSE,
	} prepare;
	char plan[65];
	unsigned flags;
	void *user;
	bool committed;
} the;

static int ledger_identify(struct atoll_participant *p, char **ret_name, char **ret_id)
{
	switch (the.identify) {
	case NO_NAME:
		return 0;
	case NO_CAUSE:
		return -EIO;
	case CAUSE_BUT_NO_CODE:
		(void)atoll_participant_fail(p, -EACCES, "read", "the ledger", EACCES);
		return 0;
	case OTHER_CODE:
		(void)atoll_participant_fail(p, -EACCES, "read", "the ledger", EACCES);
		return -EIO;
	case ANSWER:
		break;
	}
	*ret_name = strdup("the ledger");
	*ret_id = strdup("ledger-1");
	return *ret_name && *ret_id ? 0 : -ENOMEM;
}

static int ledger_prepare(struct atoll_participant *p)
{
	(void)snprintf(the.plan, sizeof(the.plan), "%s", atoll_participant_plan(p));
	the.flags = atoll_participant_flags(p);
	the.user = atoll_participant_user(p);
	atoll_participant_count(p, 1);
	if (the.prepare == LEAVES)
		atoll_participant_leave(p);
	switch (the.prepare) {
	case READY:
	case LEAVES:
		break;
	case FAILS_TWICE:
		/* No code is none; and the first cause is the cause. */
		(void)atoll_participant_fail(p, 0, NULL, NULL, 0);
		return atoll_participant_fail(p, -EIO, "write", "another", EIO);
	case SAYS_WHY_AND_IS_READY:
		(void)atoll_participant_fail(p, -EACCES, "write", "a page", EACCES);
		break;
	case SAYS_WHY_AND_ANOTHER_CODE:
		(void)atoll_participant_fail(p, -EACCES, "write", "a page", EACCES);
		return -EIO;
	case SAYS_NOTHING:
		return -EIO;
	case ANSWERS_NONSENSE:
		return 77;
	}
	return ATOLL_READY;
}

static int ledger_commit(struct atoll_participant *p)
{
	the.committed = true;
	if (the.prepare == LEAVES)
		atoll_participant_leave(p);
	return 0;
}

static int ledger_nothing(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static const struct atoll_strategy ledger = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "ledger",
	.kind = "accounts",
	.capabilities = ATOLL_CAP_PREPARE,
	.create = ledger_nothing,
	.prepare = ledger_prepare,
	.commit = ledger_commit,
	.abort = ledger_nothing,
	.remove = ledger_nothing,
	.identify = ledger_identify,
	.user = &the,
};

static int add_ledger(struct fix *f, struct atoll_plan *p)
{
	static bool known;

	if (!known)
		expect_ok(f, atoll_strategy_register(&ledger, f->res));
	known = true;
	return atoll_plan_add(p, &(struct atoll_resource){ .root = "given", .strategy = "ledger" },
	                      f->res);
}

static void a_strategy_is_told_of_the_call(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "books");

	the.identify = ANSWER;
	the.prepare = FAILS_TWICE;
	expect_ok(f, add_ledger(f, p));
	expect_code(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res), -ATOLL_E_CANNOT_PREPARE);
	expect(strstr(atoll_result_message(f->res), "cannot go on 'the ledger'") != NULL);
	expect(strstr(atoll_result_message(f->res), "another") == NULL);
	expect_str(the.plan, "books");
	expect_eq(the.flags & ATOLL_ALLOW_PARTIAL, ATOLL_ALLOW_PARTIAL);
	expect(the.user == &the);

	/* Committed, and work is left: the plan goes on. */
	the.prepare = LEAVES;
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_eq(the.flags & ATOLL_ALLOW_PARTIAL, 0);
	expect_eq(fix_outcome(f, "the ledger"), ATOLL_OUTCOME_COMMITTED);
	expect_eq(fix_state(f, p, "the ledger"), ATOLL_SANDBOX_ACTIVE);
	expect_eq(fix_plan_state(f, p), ATOLL_PLAN_OPEN);
	the.prepare = READY;
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_eq(fix_state(f, p, "the ledger"), ATOLL_SANDBOX_COMMITTED);
	expect_eq(fix_plan_state(f, p), ATOLL_PLAN_COMMITTED);
}

/* Nothing but a plain yes is one, and what a strategy said of its reasons is passed on, whatever it answers. */
static void an_answer_that_is_no_yes_is_a_no(void **state)
{
	static const struct {
		int how, code;
		const char *says;
	} rows[] = {
		{ SAYS_WHY_AND_IS_READY, -EACCES, "prepare 'the ledger': cannot write 'a page'" },
		{ SAYS_WHY_AND_ANOTHER_CODE, -EIO, "prepare 'the ledger': cannot write 'a page'" },
		{ SAYS_NOTHING, -EIO, "cannot prepare 'the ledger'" },
		{ ANSWERS_NONSENSE, -ATOLL_E_CANNOT_PREPARE, "cannot prepare 'the ledger'" },
	};
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);

	the.identify = ANSWER;
	expect_ok(f, add_ledger(f, p));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		the.prepare = (__typeof__(the.prepare))rows[i].how;
		the.committed = false;
		expect_code(f, atoll_plan_commit(p, 0, f->res), rows[i].code);
		expect_msg(strstr(atoll_result_message(f->res), rows[i].says) != NULL,
		           "'%s' is not in '%s'", rows[i].says, atoll_result_message(f->res));
		expect(!the.committed);
		expect_eq(fix_state(f, p, "the ledger"), ATOLL_SANDBOX_CREATED);
	}
	the.prepare = READY;
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect(the.committed);
}

/* A plan with nothing in it that a command could see runs it all the same, where it stands. */
static void a_command_beside_what_is_no_file(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *const argv[] = { "/bin/sh", "-c", "test \"$(pwd -P)\" = /usr && exit 3", NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = "/usr" };
	struct atoll_exec_status status = { 0 };

	the.identify = ANSWER;
	expect_ok(f, add_ledger(f, p));
	expect_ok(f, atoll_plan_exec(p, &exec, &status, f->res));
	expect_eq(status.exit_code, 3);
}

/* What cannot be told is not added, whichever way that is said; and nothing is left of it. */
static void a_resource_that_cannot_be_told_is_refused(void **state)
{
	static const struct {
		int how, code;
		const char *says;
	} rows[] = {
		{ NO_NAME, -ATOLL_E_INVALID, "the resource cannot be told" },
		{ NO_CAUSE, -EIO, "the resource cannot be told" },
		{ CAUSE_BUT_NO_CODE, -EACCES, "cannot read 'the ledger'" },
		{ OTHER_CODE, -EIO, "cannot read 'the ledger'" },
	};
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		the.identify = (__typeof__(the.identify))rows[i].how;
		expect_code(f, add_ledger(f, p), rows[i].code);
		expect_msg(strstr(atoll_result_message(f->res), rows[i].says) != NULL,
		           "'%s' is not in '%s'", rows[i].says, atoll_result_message(f->res));
		expect(fix_row(f, "the ledger") == NULL);
	}
	the.identify = ANSWER;
	expect_ok(f, add_ledger(f, p));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(a_command_beside_what_is_no_file),
		atest(a_strategy_is_told_of_the_call),
		atest(an_answer_that_is_no_yes_is_a_no),
		atest(a_resource_that_cannot_be_told_is_refused),
	};
	static const struct atest_child none[] = { { NULL, NULL } };

	return atest_main(argc, argv, tests, none);
}
