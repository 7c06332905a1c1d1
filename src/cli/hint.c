/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to type after a failure, where whoever found it has nothing better to say. So no failure
 * leaves its reader without a next step.
 */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/remedy.h"

#include <errno.h>
#include <string.h>

/* %s is the plan, where one is known, else the second text is used. */
static const struct {
	int code;
	const char *of_plan;
	const char *plain;
} hints[] = {
	{ ATOLL_E_NOT_FOUND, "atoll status %s", "atoll list" },
	{ ATOLL_E_EXISTS, "atoll list", "atoll list" },
	{ ATOLL_E_AMBIGUOUS, "give the whole name", "give the whole name" },
	{ ATOLL_E_STATE, "atoll status %s", "atoll list" },
	{ ATOLL_E_BUSY, "again with a longer --wait, or none: then it waits as long as it takes",
	  "again with a longer --wait, or none: then it waits as long as it takes" },
	{ ATOLL_E_TIMEOUT, "again with a longer --wait, or none: then it waits as long as it takes",
	  "again with a longer --wait, or none: then it waits as long as it takes" },
	{ ATOLL_E_CONFLICT, "atoll diff %s", "atoll list" },
	{ ATOLL_E_POLICY, "atoll diff %s; atoll help commit says what --allow lets through",
	  "atoll help commit" },
	{ ATOLL_E_UNSUPPORTED, "atoll doctor", "atoll doctor" },
	{ ATOLL_E_LOCK_UNSUPPORTED, "atoll doctor", "atoll doctor" },
	{ ATOLL_E_CANNOT_PREPARE, "atoll status %s", "atoll list" },
	{ ATOLL_E_NOT_UNDOABLE, "atoll status %s", "atoll list" },
	{ ATOLL_E_RECOVERY_MISSING,
	  "what was committed stays; atoll discard %s, then go on or stop", "atoll list" },
	{ ATOLL_E_NEEDS_RECOVERY, "atoll recover %s", "atoll recover" },
	{ ATOLL_E_DAMAGED, "leave it as it is; atoll doctor says more",
	  "leave it as it is; atoll doctor says more" },
	{ ATOLL_E_STALE, "atoll diff %s --digest", "atoll list" },
	{ ATOLL_E_UNREACHABLE, "atoll remote list", "atoll remote list" },
	{ ATOLL_E_NO_FENCE, "atoll doctor", "atoll doctor" },
	{ ECANCELED, "atoll status %s", "atoll list" },
	{ ATOLL_E_NEWER, "use the newer atoll that wrote it", "use the newer atoll that wrote it" },
};

/* A plan that is still being made may be gone before the hint is read. */
static const char *plan_name(const struct cli *c)
{
	return c->plan && strstr(c->command->words, "PLAN") ? atoll_plan_name(c->plan) : NULL;
}

static char *of_code(const struct cli *c, int code)
{
	const char *plan = plan_name(c);

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		if (hints[i].code != -code)
			continue;
		if (!plan)
			return xstrdup(hints[i].plain);
		if (!strstr(hints[i].of_plan, "%s"))
			return xstrdup(hints[i].of_plan);
		return xasprintf("%.*s%s%s", (int)strcspn(hints[i].of_plan, "%"), hints[i].of_plan,
		                 plan, strchr(hints[i].of_plan, '%') + 2);
	}
	return NULL;
}

static int os_errno(int code)
{
	return code > -ATOLL_E_INVALID ? -code : 0;
}

char *hint_for(const struct cli *c, int code, const char *op)
{
	char *hint = of_code(c, code);

	if (hint)
		return hint;
	if (strcmp(op, "run") == 0)
		return xstrdup("name a program that the plan's commands can see and run");
	if (code == -ATOLL_E_INVALID && c->command)
		return xasprintf("atoll help %s", c->command->name);
	if (plan_name(c))
		return xasprintf("%s, then again; atoll status %s says how it stands",
		                 remedy_for(os_errno(code)), plan_name(c));
	return xasprintf("%s, then again; atoll doctor looks for more", remedy_for(os_errno(code)));
}
