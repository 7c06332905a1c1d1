/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning up (rules CLN): everything goes that can, what cannot is named and stays on record, and
 * neither failures nor the end of a process leave anything behind.
 */
#include "lib/more.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/file", root), "old\n");
	put_text(fix_path(f, "%s/other", root), "other\n");
	return root;
}

/* ---- CLN-01, CLN-02 ---- */

static void cln_01_all_are_cleaned_that_can_be(void **state)
{
	struct fix *f = *state;
	const char *root[4], *area[4], *stuck;
	struct atoll_plan *p;
	struct paths left = { .n = 0 };
	char *before[4];

	need_root();
	p = fix_plan(f, "p");
	for (int i = 0; i < 4; i++) {
		root[i] = put_root(f, fix_path(f, "root%d", i));
		before[i] = man_take(root[i]);
		fix_add(f, p, root[i], "copy");
		area[i] = fix_area(f, p, root[i]);
	}
	stuck = fix_path(f, "%s/stuck", fix_work(f, p, root[1]));
	put_text(stuck, "stuck\n");
	set_immutable(stuck, true);
	expect_code(f, atoll_plan_stop(p, ATOLL_FORCE, f->res), -EPERM);
	for (int i = 0; i < 4; i++) {
		expect_eq(exists(area[i]), i == 1);
		expect_eq(fix_outcome(f, root[i]),
		          i == 1 ? ATOLL_OUTCOME_FAILED : ATOLL_OUTCOME_REMOVED);
		expect_man(root[i], before[i]);
	}
	expect_eq(fix_row(f, root[1])->cause_errno, EPERM);
	expect_str(fix_row(f, root[1])->recovery_path, area[1]);
	paths_of_plan(f, p, &left);
	expect_eq(left.n, 1);
	expect(paths_have(&left, area[1]));
	paths_done(&left);
	set_immutable(stuck, false);
	expect_stop(f, p);
	expect(!exists(area[1]));
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	for (int i = 0; i < 4; i++)
		free(before[i]);
}

static void cln_02_the_same_for_the_abandoned(void **state)
{
	static const char *const names[] = { "one", "two" };
	struct fix *f = *state;
	const char *area[2], *stuck = NULL;
	char *before[2];

	need_root();
	for (int i = 0; i < 2; i++) {
		const char *root = put_root(f, fix_path(f, "root-%s", names[i]));
		pid_t owner;

		before[i] = man_take(root);
		owner = owner_start(f, names[i], fix_path(f, "root-%s", names[i]), false);
		area[i] = fix_area(f, fix_find(f, names[i]), root);
		owner_kill(f, owner, names[i]);
	}
	stuck = fix_path(f, "%s/stuck", area[0]);
	put_text(stuck, "stuck\n");
	set_immutable(stuck, true);
	expect(atoll_purge(f->a, 0, f->res) < 0);
	expect(exists(area[0]) && !exists(area[1]));
	expect_eq(fix_outcome(f, fix_path(f, "%s/root-one", f->dir)), ATOLL_OUTCOME_FAILED);
	expect_eq(fix_outcome(f, fix_path(f, "%s/root-two", f->dir)), ATOLL_OUTCOME_REMOVED);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	set_immutable(stuck, false);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect(!exists(area[0]));
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	for (int i = 0; i < 2; i++) {
		expect_man(fix_path(f, "%s/root-%s", f->dir, names[i]), before[i]);
		free(before[i]);
	}
}

/* ---- CLN-03 ---- */

/* What a store has that does not grow with failures. The registry's files grow as they like. */
struct measure {
	size_t store, beside, fds;
};

static struct measure measure(struct fix *f, const char *root)
{
	char *parent = strdup(root);
	struct measure m;

	*strrchr(parent, '/') = '\0';
	wait_for_helpers();
	m.store = tree_count(f->home);
	m.beside = count_entries(parent);
	m.fds = count_fds();
	free(parent);
	return m;
}

/* ATTEMPT returns the code of a commit that must fail; ROOT stays as it is, nothing piles up. */
static void fail_often(struct fix *f, const char *root, int (*attempt)(struct fix *f, void *user),
                       void *user)
{
	char *before = man_take(root);
	struct measure first, last;
	unsigned rounds = 100;

	expect(attempt(f, user) < 0); /* lock files are made once */
	first = measure(f, root);
	for (unsigned i = 0; i < rounds; i++)
		expect(attempt(f, user) < 0);
	last = measure(f, root);
	expect_eq(last.store, first.store);
	expect_eq(last.beside, first.beside);
	expect_eq(last.fds, first.fds);
	expect_man(root, before);
	free(before);
}

static int commit_it(struct fix *f, void *p)
{
	return atoll_plan_commit(p, 0, f->res);
}

static void cln_03_conflicts_leave_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/file", root), "theirs\n");
	fail_often(f, root, commit_it, p);
	expect_eq(atoll_result_code(f->res), -ATOLL_E_CONFLICT);
}

static void cln_03_refusals_leave_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_fifo(fix_path(f, "%s/fifo", fix_work(f, p, NULL)));
	fail_often(f, root, commit_it, p);
	expect_eq(atoll_result_code(f->res), -ATOLL_E_POLICY);
}

/* Another participant fails, before the decision and after it. */
static void fail_beside(struct fix *f, enum phase phase)
{
	const char *root = put_root(f, "root");
	const char *failer = fix_dir(f, "failer");
	struct atoll_plan *p = fix_plan(f, "p");
	char *view;

	put_text(fix_path(f, "%s/value", failer), "1\n");
	fix_add(f, p, root, "copy");
	fix_add(f, p, failer, "failer");
	put_text(fix_path(f, "%s/file", fix_work(f, p, root)), "ours\n");
	put_text(fix_path(f, "%s/new", fix_work(f, p, root)), "new\n");
	remove_entry(fix_path(f, "%s/other", fix_work(f, p, root)));
	put_text(fix_path(f, "%s/value", fix_work(f, p, failer)), "2\n");
	view = man_take(fix_work(f, p, root));
	failer_set(failer, phase, FAIL_CODE, -7777);
	fail_often(f, root, commit_it, p);
	expect_eq(atoll_result_code(f->res), -7777);
	expect_man(fix_work(f, p, root), view);
	phase_clear();
	expect_commit(f, p);
	expect_man(root, view);
	free(view);
}

static void cln_03_failures_in_prepare_leave_nothing(void **state)
{
	fail_beside(*state, PHASE_PREPARE);
}

static void cln_03_failures_in_commit_leave_nothing(void **state)
{
	fail_beside(*state, PHASE_COMMIT);
}

static void cln_03_an_immutable_entry_leaves_nothing(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;

	need_root();
	root = put_root(f, "root");
	set_immutable(fix_path(f, "%s/other", root), true);
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/other", fix_work(f, p, NULL)), "ours\n");
	fail_often(f, root, commit_it, p);
	expect_eq(atoll_result_code(f->res), -EPERM);
	set_immutable(fix_path(f, "%s/other", root), false);
}

static void cln_03_a_full_disk_leaves_nothing(void **state)
{
	struct fix *f = *state;
	const char *mount, *root;
	struct atoll_plan *p;
	size_t in_area;

	need_root();
	mount = fix_tmpfs(f, "small", (size_t)4 << 20);
	root = fix_path(f, "%s/root", mount);
	put_dir(root, 0755);
	put_text(fix_path(f, "%s/file", root), "old\n");
	p = plan_in_store(f, root);
	put_bytes(fix_path(f, "%s/file", fix_work(f, p, NULL)), (size_t)8 << 20, 1);
	in_area = tree_count(fix_area(f, p, root));
	fail_often(f, root, commit_it, p);
	expect_eq(atoll_result_code(f->res), -ENOSPC);
	expect_eq(tree_count(fix_area(f, p, root)), in_area);
}

static int add_it(struct fix *f, void *root)
{
	const struct atoll_resource r = { .root = root, .strategy = "failer" };
	struct atoll_plan *p = NULL;
	int code;

	expect_ok(f, atoll_plan_start(f->a, "p", ATOLL_START_OR_OPEN, &p, f->res));
	code = atoll_plan_add(p, &r, f->res);
	atoll_plan_free(p);
	return code;
}

static void cln_03_failing_creation_leaves_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");

	put_text(fix_path(f, "%s/value", root), "1\n");
	failer_set(root, PHASE_CREATE, FAIL_CODE, -7777);
	fail_often(f, root, add_it, fix_path(f, "%s", root));
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_stop(f, fix_find(f, "p"));
}

/* ---- CLN-04 ---- */

static void cln_04_no_undo_keeps_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *area;
	struct atoll_plan *p = plan_over(f, root);
	uint64_t bytes;
	char *view;

	put_bytes(fix_path(f, "%s/big", root), (size_t)3 << 20, 1);
	(void)fix_work(f, p, NULL);
	expect_ok(f, atoll_plan_reset(p, f->res)); /* so that it has the big file too */
	area = fix_area(f, p, root);
	put_bytes(fix_path(f, "%s/big", fix_work(f, p, NULL)), (size_t)3 << 20, 2);
	view = man_take(fix_work(f, p, NULL));
	expect_ok(f, atoll_plan_commit(p, ATOLL_NO_UNDO, f->res));
	expect_man(root, view);
	wait_for_helpers();
	/* What was replaced is gone; the used-up copy has handed its new entries over. */
	bytes = tree_bytes(area);
	expect_msg(bytes < (1 << 20), "%llu bytes are kept", (unsigned long long)bytes);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_RECOVERY_MISSING);
	expect_man(root, view);
	free(view);
}

static void cln_04_undo_data_costs_what_was_replaced(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *area;
	struct atoll_plan *p;
	uint64_t bytes;
	char *before;

	put_bytes(fix_path(f, "%s/big", root), (size_t)3 << 20, 1);
	before = man_take(root);
	p = plan_over(f, root);
	area = fix_area(f, p, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	put_text(fix_path(f, "%s/big", fix_work(f, p, NULL)), "small now\n");
	expect_commit(f, p);
	wait_for_helpers();
	bytes = tree_bytes(area);
	expect(bytes >= (3u << 20) && bytes < (4u << 20));
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

static void cln_04_stop_releases_everything(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *area;
	struct atoll_plan *p = plan_over(f, root);
	size_t start = tree_count(fix_path(f, "%s/plans", f->home));
	char *view;

	area = fix_area(f, p, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	view = man_take(fix_work(f, p, NULL));
	expect_commit(f, p);
	expect_ok(f, atoll_plan_stop(p, 0, f->res)); /* nothing uncommitted: no force */
	expect(!exists(area));
	expect(start > 0);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	expect_man(root, view);
	free(view);
}

/* ---- CLN-05, CLN-06 ---- */

static void own_two(struct fix *f, bool work, struct atoll_plan **ret)
{
	expect_ok(f, atoll_plan_start(f->a, "owned", ATOLL_START_OWNED, ret, f->res));
	fix_add(f, *ret, fix_path(f, "%s/root1", f->dir), "copy");
	fix_add(f, *ret, fix_path(f, "%s/root2", f->dir), "copy");
	if (work)
		put_text(fix_path(f, "%s/new", fix_work(f, *ret, fix_path(f, "%s/root1", f->dir))),
		         "new\n");
}

/* ARG: how it ends. */
static int child_ends(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;

	fix_attach(&f, dir);
	own_two(&f, strstr(arg, "work") != NULL, &p);
	put_text(fix_path(&f, "%s/plan-id", dir), atoll_plan_id(p));
	if (strncmp(arg, "kill", 4) == 0)
		(void)kill(getpid(), SIGKILL);
	atoll_plan_free(p);
	if (strncmp(arg, "close", 5) == 0) {
		fix_detach(&f);
		return 0;
	}
	exit(0);
}

static void put_roots(struct fix *f, char *before[2])
{
	before[0] = man_take(put_root(f, "root1"));
	before[1] = man_take(put_root(f, "root2"));
}

static void expect_roots(struct fix *f, char *before[2])
{
	expect_man(fix_path(f, "%s/root1", f->dir), before[0]);
	expect_man(fix_path(f, "%s/root2", f->dir), before[1]);
	free(before[0]);
	free(before[1]);
}

static void expect_nothing_left(struct fix *f)
{
	wait_for_helpers();
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	expect_eq(scanned(f), 0);
}

static void cln_05_exit_cleans_owned_plans(void **state)
{
	struct fix *f = *state;
	char *before[2];

	put_roots(f, before);
	expect_eq(child_run(f, "ends", "exit", NULL), 0);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static void cln_05_close_cleans_owned_plans(void **state)
{
	struct fix *f = *state;
	char *before[2];

	put_roots(f, before);
	expect_eq(child_run(f, "ends", "close", NULL), 0);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static void cln_05_purge_cleans_after_a_kill(void **state)
{
	struct fix *f = *state;
	char *before[2];

	put_roots(f, before);
	expect_eq(child_run(f, "ends", "kill", NULL), 128 + SIGKILL);
	wait_for_helpers();
	expect_eq(scanned(f), 2);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static int find_abandoned(void *user, const struct atoll_plan_info *info)
{
	*(bool *)user |= info->abandoned;
	return 0;
}

/* Work nobody decided about is never dropped unasked. */
static void keeps_work(struct fix *f, const char *how, bool purge)
{
	const char *root = fix_path(f, "%s/root1", f->dir);
	bool abandoned = false;
	char *before[2];

	put_roots(f, before);
	(void)child_run(f, "ends", how, NULL);
	wait_for_helpers();
	if (purge)
		expect_eq(atoll_purge(f->a, 0, f->res), 0);
	expect_ok(f, atoll_plan_list(f->a, find_abandoned, &abandoned, f->res));
	expect(abandoned);
	expect(tree_holds(fix_area(f, fix_find(f, "owned"), root), "new\n"));
	/* It is nobody's now: another purge leaves it, force takes it. */
	expect_eq(atoll_purge(f->a, 0, f->res), 0);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static void cln_05_exit_keeps_uncommitted_work(void **state)
{
	keeps_work(*state, "exit work", false);
}

static void cln_05_purge_keeps_uncommitted_work(void **state)
{
	keeps_work(*state, "kill work", true);
}

/* Who goes on with it owns up to it: it is an ordinary plan again. */
static void cln_05_abandoned_work_can_be_taken_up(void **state)
{
	struct fix *f = *state;
	const char *root = fix_path(f, "%s/root1", f->dir);
	struct atoll_plan *p;
	char *before[2];

	put_roots(f, before);
	expect_eq(child_run(f, "ends", "kill work", NULL), 128 + SIGKILL);
	wait_for_helpers();
	expect_eq(atoll_purge(f->a, 0, f->res), 0);
	p = fix_find(f, "owned");
	expect_text(fix_path(f, "%s/new", fix_work(f, p, root)), "new\n");
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 0);
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/new", root), "new\n");
	expect_rollback(f, p);
	expect_stop(f, p);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static void cln_06_each_step_once(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = NULL;
	int last = -1;
	char *before[2];

	put_roots(f, before);
	own_two(f, false, &p);
	{
		/* The same plan, seen by a handle that outlives it. */
		struct fix other = { .a = NULL };
		struct atoll_plan *seen;

		fix_attach(&other, f->dir);
		expect_ok(&other, atoll_plan_find(other.a, "owned", &seen, other.res));
		atoll_plan_free(p);
		fix_reopen(f);
		expect_eq(fix_history(&other, seen, "stop", &last), 1);
		expect_eq(last, 0);
		expect_ok(&other, atoll_plan_stop(seen, 0, other.res));
		expect_eq(fix_history(&other, seen, "stop", &last), 1);
		atoll_plan_free(seen);
		fix_detach(&other);
	}
	for (int i = 0; i < 3; i++)
		expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 0);
	expect_nothing_left(f);
	expect_roots(f, before);
}

static void cln_06_cleaning_thrice(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *before = man_take(root);

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	for (int i = 0; i < 3; i++)
		expect_rollback(f, p);
	for (int i = 0; i < 3; i++)
		expect_ok(f, atoll_plan_reset(p, f->res));
	expect_man(root, before);
	expect_stop(f, p);
	for (int i = 0; i < 3; i++)
		expect_stop(f, p);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_NOT_FOUND);
	for (int i = 0; i < 3; i++)
		expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	expect_man(root, before);
	free(before);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "owner", child_owner },
		                                       { "ends", child_ends },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(cln_01_all_are_cleaned_that_can_be),
		mtest(cln_02_the_same_for_the_abandoned),
		mtest(cln_03_conflicts_leave_nothing),
		mtest(cln_03_refusals_leave_nothing),
		mtest(cln_03_failures_in_prepare_leave_nothing),
		mtest(cln_03_failures_in_commit_leave_nothing),
		mtest(cln_03_an_immutable_entry_leaves_nothing),
		mtest(cln_03_a_full_disk_leaves_nothing),
		mtest(cln_03_failing_creation_leaves_nothing),
		mtest(cln_04_no_undo_keeps_nothing),
		mtest(cln_04_undo_data_costs_what_was_replaced),
		mtest(cln_04_stop_releases_everything),
		mtest(cln_05_exit_cleans_owned_plans),
		mtest(cln_05_close_cleans_owned_plans),
		mtest(cln_05_purge_cleans_after_a_kill),
		mtest(cln_05_exit_keeps_uncommitted_work),
		mtest(cln_05_purge_keeps_uncommitted_work),
		mtest(cln_05_abandoned_work_can_be_taken_up),
		mtest(cln_06_each_step_once),
		mtest(cln_06_cleaning_thrice),
	};

	return atest_main(argc, argv, tests, children);
}
