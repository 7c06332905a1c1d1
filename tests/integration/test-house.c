/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping house by the library: the log, who holds which lock, progress, free space. */
#include "lib/more.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/file", root), "old\n");
	return root;
}

static int exec_script(struct fix *f, struct atoll_plan *p, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = "/" };
	struct atoll_exec_status status = { 0 };
	int r = atoll_plan_exec(p, &exec, &status, f->res);

	return r < 0 ? r : status.exit_code;
}

/* ---- log ---- */

struct seen {
	size_t n, execs;
	int64_t last_ms;
	int exit_code;
	char what[16], name[80], message[256];
};

static int see(void *user, const struct atoll_log_entry *e)
{
	struct seen *s = user;

	expect(s->n == 0 || e->at_ms <= s->last_ms);
	s->last_ms = e->at_ms;
	if (s->n++ == 0) {
		(void)snprintf(s->what, sizeof(s->what), "%s", e->what);
		(void)snprintf(s->name, sizeof(s->name), "%s", e->plan_name);
	}
	if (e->ran) {
		s->execs++;
		s->exit_code = e->exit_code;
		(void)snprintf(s->message, sizeof(s->message), "%s", e->message);
		expect(e->started_ms <= e->at_ms);
		expect(e->max_rss_kb > 0);
	}
	return 0;
}

static void house_log_is_newest_first(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "p");
	struct seen all = { 0 }, one = { 0 }, few = { 0 };

	fix_add(f, p, put_root(f, "root"), "copy");
	expect_eq(exec_script(f, p, "exit 3"), 3);
	expect_ok(f, atoll_plan_reset(p, f->res));
	expect_ok(f, atoll_log(f->a, NULL, 0, see, &all, f->res));
	expect_ok(f, atoll_log(f->a, "p", 0, see, &one, f->res));
	expect_ok(f, atoll_log(f->a, atoll_plan_id(p), 1, see, &few, f->res));
	expect_eq(all.n, one.n);
	expect_eq(few.n, 1);
	expect_str(few.what, "reset");
	expect_str(few.name, "p");
	expect_eq(one.execs, 1);
	expect_eq(one.exit_code, 3);
	expect_str(one.message, "sh -c exit 3");
	expect_code(f, atoll_log(f->a, "nobody", 0, see, &few, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, atoll_log(f->a, NULL, 0, NULL, NULL, f->res), -ATOLL_E_INVALID);
}

/* ---- locks ---- */

struct locks {
	size_t plan, other;
	pid_t pid;
};

static int see_lock(void *user, const struct atoll_lock_info *info)
{
	struct locks *l = user;

	if (strcmp(info->kind, "plan") == 0) {
		l->plan++;
		l->pid = info->pid;
		expect_eq(info->ahead, 0);
		expect(info->alive);
		expect_str(info->command, "hold-lock");
	} else {
		l->other++;
	}
	return 0;
}

static void house_a_stuck_holder_is_ended(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "p");
	struct atoll_lock_broken broken = { .pid = 1 };
	struct locks l = { 0 };
	struct held h;

	fix_add(f, p, put_root(f, "root"), "copy");
	expect_eq(atoll_lock_break(p, 0, &broken, f->res), 0);
	expect_eq(broken.pid, 0);
	h = hold_lock(f, fix_path(f, "%s.plan", atoll_plan_id(p)));
	expect_ok(f, atoll_lock_list(f->a, "p", see_lock, &l, f->res));
	expect_eq(l.plan, 1);
	expect_eq(l.pid, h.pid);
	/* Somebody else than he who was asked about: nothing is done. */
	expect_code(f, atoll_lock_break(p, h.pid + 1, &broken, f->res), -ATOLL_E_STATE);
	expect_eq(kill(h.pid, 0), 0);
	expect_eq(atoll_lock_break(p, h.pid, &broken, f->res), 1);
	expect_eq(broken.pid, h.pid);
	expect_eq(broken.term_signal, SIGTERM);
	let_go(&h);
	expect_ok(f, atoll_plan_reset(p, f->res));
}

/* ---- progress ---- */

struct watched {
	_Atomic int inside, calls, done;
	char what[32];
	uint64_t files;
};

static void watch(void *user, const struct atoll_progress *p)
{
	struct watched *w = user;

	expect_eq(atomic_fetch_add(&w->inside, 1), 0);
	w->calls++;
	w->done += p->done;
	if (!p->done) {
		(void)snprintf(w->what, sizeof(w->what), "%s", p->what);
		w->files = p->files;
	}
	atomic_fetch_sub(&w->inside, 1);
}

static void house_progress_is_told_and_ends(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p = fix_plan(f, "p");
	struct watched w = { 0 };

	put_random_tree(root, 3000, 7);
	atoll_set_progress(f->a, watch, &w);
	fix_add(f, p, root, "copy");
	expect(w.calls >= 2);
	expect_eq(w.done, 1);
	expect_str(w.what, "copying");
	atoll_set_progress(f->a, NULL, NULL);
	w.calls = 0;
	expect_eq(exec_script(f, p, "exit 0"), 0);
	expect_eq(w.calls, 0);
}

/* ---- may it go on? ---- */

struct stopping {
	enum atoll_phase phase;
	int calls; /* that are answered with 0 in that phase */
	int done;
	bool back; /* a phase came after a later one */
	enum atoll_phase last;
};

static int stop_there(void *user, const struct atoll_progress *p)
{
	struct stopping *s = user;

	s->done += p->done;
	if (p->done)
		return 0;
	if (p->phase == s->phase && s->calls-- <= 0)
		return 1; /* a phase that is about to begin does not */
	s->back |= p->phase < s->last;
	s->last = p->phase;
	return 0;
}

enum { COMMIT, ROLLBACK, RESET, REFRESH, STOP };

static int call(int verb, struct fix *f, struct atoll_plan *p)
{
	switch (verb) {
	case COMMIT:
		return atoll_plan_commit(p, 0, f->res);
	case ROLLBACK:
		return atoll_plan_rollback(p, 0, f->res);
	case RESET:
		return atoll_plan_reset(p, f->res);
	case REFRESH:
		return atoll_plan_refresh(p, f->res);
	default:
		return atoll_plan_stop(p, ATOLL_FORCE, f->res);
	}
}

#define STOP_FILES 8

/* Files of ROOT that are as the plan has them. */
static int count_new(struct fix *f, const char *root)
{
	int n = 0;

	for (int i = 0; i < STOP_FILES; i++) {
		char text[8] = "";
		FILE *file = fopen(fix_path(f, "%s/f%d", root, i), "r");

		n += file && fgets(text, sizeof(text), file) && strcmp(text, "new\n") == 0;
		if (file)
			(void)fclose(file);
	}
	return n;
}

/* What is stopped before the decision has changed nothing, what is stopped after it is finished later. */
static void atm_14_the_caller_may_stop_it(void **state)
{
	static const struct {
		int verb;
		enum atoll_phase phase;
		int calls, code;
	} rows[] = {
		{ COMMIT, ATOLL_PHASE_PREPARING, 0, -ECANCELED },
		{ COMMIT, ATOLL_PHASE_PREPARING, 3, -ECANCELED },
		{ COMMIT, ATOLL_PHASE_DECIDED, 0, -ECANCELED },
		{ COMMIT, ATOLL_PHASE_DECIDED, 1, -ATOLL_E_NEEDS_RECOVERY },
		{ COMMIT, ATOLL_PHASE_DECIDED, 4, -ATOLL_E_NEEDS_RECOVERY },
		{ ROLLBACK, ATOLL_PHASE_PREPARING, 0, -ECANCELED },
		{ ROLLBACK, ATOLL_PHASE_DECIDED, 0, -ECANCELED },
		{ ROLLBACK, ATOLL_PHASE_DECIDED, 1, -ATOLL_E_NEEDS_RECOVERY },
		{ ROLLBACK, ATOLL_PHASE_DECIDED, 4, -ATOLL_E_NEEDS_RECOVERY },
		{ RESET, ATOLL_PHASE_DECIDED, 0, -ECANCELED },
		{ REFRESH, ATOLL_PHASE_DECIDED, 0, -ECANCELED },
		{ REFRESH, ATOLL_PHASE_DECIDED, 1, -ATOLL_E_NEEDS_RECOVERY },
		{ STOP, ATOLL_PHASE_DECIDED, 0, -ECANCELED },
		{ STOP, ATOLL_PHASE_DECIDED, 1, -ATOLL_E_NEEDS_RECOVERY },
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct stopping s = { .phase = rows[i].phase, .calls = rows[i].calls };
		char name[2] = { (char)('a' + i), '\0' };
		const char *root = fix_dir(f, name);
		struct atoll_plan *p = fix_plan(f, NULL);
		int before, again = rows[i].verb == ROLLBACK ? 0 : STOP_FILES;

		for (int k = 0; k < STOP_FILES; k++)
			put_text(fix_path(f, "%s/f%d", root, k), "old\n");
		fix_add(f, p, root, i % 2 ? "copy" : NULL);
		expect_eq(exec_script(f, p,
		                      "cd \"$ATOLL_RESOURCE_1\"; for n in f*; do echo new >$n; "
		                      "done"),
		          0);
		if (rows[i].verb == ROLLBACK)
			expect_ok(f, atoll_plan_commit(p, 0, f->res));
		before = count_new(f, root);
		atoll_set_interrupt(f->a, stop_there, &s);
		expect_code(f, call(rows[i].verb, f, p), rows[i].code);
		atoll_set_interrupt(f->a, NULL, NULL);
		expect_eq(s.done, 1);
		expect(!s.back);
		if (rows[i].code == -ECANCELED)
			expect_eq(count_new(f, root), before);
		else if (rows[i].verb == COMMIT || rows[i].verb == ROLLBACK)
			expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
		expect_ok(f, call(rows[i].verb, f, p));
		if (rows[i].verb == COMMIT || rows[i].verb == ROLLBACK)
			expect_eq(count_new(f, root), again);
		else
			expect_eq(count_new(f, root), 0);
		fix_forget(f, p);
	}
}

/* ---- free space ---- */

static void house_no_command_on_a_full_disk(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = fix_plan(f, "p");

	fix_add(f, p, root, "copy");
	atoll_set_min_free(f->a, INT64_MAX);
	expect_code(f, exec_script(f, p, ": >\"$ATOLL_RESOURCE_1/made\""), -ENOSPC);
	expect(strstr(atoll_result_message(f->res), "was not started") != NULL);
	expect(*atoll_result_hint(f->res) != '\0');
	atoll_set_min_free(f->a, 0);
	expect_eq(exec_script(f, p, "test ! -e \"$ATOLL_RESOURCE_1/made\""), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(house_log_is_newest_first),       atest(house_a_stuck_holder_is_ended),
		atest(house_progress_is_told_and_ends), atest(atm_14_the_caller_may_stop_it),
		atest(house_no_command_on_a_full_disk),
	};

	return atest_main(argc, argv, tests, NULL);
}
