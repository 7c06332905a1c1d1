/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that outlives the process it was given to: what that one had started holds it on. */
#include "lib/more.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Holds the plan and has a child that has all of its descriptors, and is nobody's command. */
static int child_hold_on(const char *dir, const char *arg)
{
	struct fix f = { 0 };
	struct atoll_plan *p = NULL;

	(void)arg;
	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_find(f.a, "held", &p, f.res));
	expect_ok(&f, atoll_plan_hold(p, "by two", -1, f.res));
	if (fork() == 0) {
		char text[32];

		(void)snprintf(text, sizeof(text), "%d", (int)getpid());
		put_text(fix_path(&f, "%s/heir.new", dir), text);
		(void)rename(fix_path(&f, "%s/heir.new", dir), fix_path(&f, "%s/heir", dir));
	}
	(void)alarm(300); /* should nobody end them */
	(void)pause();
	return 0;
}

/* It is not taken away; who asks is told, and can ask again. */
static void der_10_a_lock_is_not_taken_from_what_holds_it_on(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "held");
	struct atoll_lock_broken broken;
	char *heir;
	pid_t pid;

	fix_add(f, p, fix_dir(f, "root"), "copy");
	pid = child_start(f, "hold-on", NULL, NULL);
	wait_for_file(fix_path(f, "%s/heir", f->dir));
	heir = get_text(fix_path(f, "%s/heir", f->dir));
	expect_code(f, atoll_lock_break(p, pid, &broken, f->res), -ATOLL_E_TIMEOUT);
	expect_msg(strstr(atoll_result_message(f->res),
	                  "the holder is gone, but what it started still holds plan 'held'") !=
	                   NULL,
	           "%s", atoll_result_message(f->res));
	expect_eq(child_wait(pid), 128 + SIGTERM);
	expect_eq(kill((pid_t)strtol(heir, NULL, 10), SIGKILL), 0);
	free(heir);
	atoll_set_wait(f->a, 60000);
	expect_ok(f, atoll_plan_reset(p, f->res));
	expect_eq(atoll_lock_break(p, 0, &broken, f->res), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(der_10_a_lock_is_not_taken_from_what_holds_it_on),
	};
	static const struct atest_child children[] = { { "hold-on", child_hold_on },
		                                       { NULL, NULL } };

	return atest_main(argc, argv, tests, children);
}
