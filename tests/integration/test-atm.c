/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules ATM: a batch changes every resource of its plan or none of them. Here: failures while the
 * batch is prepared or carried out. test-atm-recovery.c has what happens afterwards.
 */
#include "lib/atest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define COPIES   4
#define MANY     300
#define BIG_FILE (2u << 20)
#define LIMIT    (1u << 20)

/* ---- a plan of several directories and one custom resource ---- */

struct batch {
	struct atoll_plan *plan;
	const char *copy[COPIES];
	char *before[COPIES]; /* manifests */
	const char *custom;   /* of strategy `failer` */
	char *custom_value;
};

static void make_edits(struct fix *f, struct batch *b)
{
	for (size_t i = 0; i < COPIES; i++) {
		const char *work = fix_work(f, b->plan, b->copy[i]);

		put_text(fix_path(f, "%s/file", work), "new\n");
		put_text(fix_path(f, "%s/dir/file", work), "new\n");
		put_text(fix_path(f, "%s/added", work), "new\n");
		remove_entry(fix_path(f, "%s/doomed", work));
	}
	put_text(fix_path(f, "%s/value", fix_work(f, b->plan, b->custom)), "new\n");
}

static void make_batch(struct fix *f, struct batch *b)
{
	b->plan = fix_plan(f, "batch");
	for (size_t i = 0; i < COPIES; i++) {
		b->copy[i] = fix_dir(f, fix_path(f, "copy%zu", i));
		put_random_tree(b->copy[i], 30, (unsigned)i);
		put_dir(fix_path(f, "%s/dir", b->copy[i]), 0755);
		put_text(fix_path(f, "%s/file", b->copy[i]), "old\n");
		put_text(fix_path(f, "%s/dir/file", b->copy[i]), "old\n");
		put_text(fix_path(f, "%s/doomed", b->copy[i]), "old\n");
		fix_add(f, b->plan, b->copy[i], "copy");
		b->before[i] = fix_keep(f, man_take(b->copy[i]));
	}
	b->custom = fix_dir(f, "custom");
	b->custom_value = fix_path(f, "%s/value", b->custom);
	put_text(b->custom_value, "old\n");
	fix_add(f, b->plan, b->custom, "failer");
	make_edits(f, b);
}

static void expect_all_old(struct batch *b)
{
	for (size_t i = 0; i < COPIES; i++)
		expect_man(b->copy[i], b->before[i]);
	/* The custom strategy does not care for its directory's times. */
	expect_text(b->custom_value, "old\n");
}

static void expect_all_new(struct fix *f, struct batch *b)
{
	for (size_t i = 0; i < COPIES; i++) {
		expect_text(fix_path(f, "%s/file", b->copy[i]), "new\n");
		expect_text(fix_path(f, "%s/dir/file", b->copy[i]), "new\n");
		expect_text(fix_path(f, "%s/added", b->copy[i]), "new\n");
		expect(!exists(fix_path(f, "%s/doomed", b->copy[i])));
	}
	expect_text(b->custom_value, "new\n");
}

/* ---- ATM-01, ATM-11 ---- */

/* chattr moves the ctime of what it is used on, which is a change by somebody else. So the file's
 * directory is made immutable, which stops its replacement just as well. */
static void atm_01_immutable_file_in_the_third_leaves_all_five(void **state)
{
	struct fix *f = *state;
	struct batch b;
	int r;

	need_root();
	make_batch(f, &b);
	set_immutable(fix_path(f, "%s/dir", b.copy[2]), true);
	r = atoll_plan_commit(b.plan, 0, f->res);
	set_immutable(fix_path(f, "%s/dir", b.copy[2]), false);
	expect_eq(r, -EPERM);
	expect_eq(atoll_result_code(f->res), -EPERM);
	expect_eq(fix_outcome(f, b.copy[2]), ATOLL_OUTCOME_FAILED);
	expect_all_old(&b);
	expect_ok(f, atoll_plan_commit(b.plan, 0, f->res));
	expect_all_new(f, &b);
}

static void atm_01_failure_after_the_decision_leaves_all_five(void **state)
{
	struct fix *f = *state;
	struct batch b;

	make_batch(f, &b);
	failer_set(b.custom, PHASE_COMMIT, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(b.plan, 0, f->res), -EIO);
	expect_all_old(&b);
	for (size_t i = 0; i < COPIES; i++)
		expect_eq(fix_outcome(f, b.copy[i]), ATOLL_OUTCOME_ROLLED_BACK);
	expect_eq(fix_outcome(f, b.custom), ATOLL_OUTCOME_FAILED);
	phase_clear();
	expect_ok(f, atoll_plan_commit(b.plan, 0, f->res));
	expect_all_new(f, &b);
}

static void atm_11_the_same_batch_commits_whole_after_a_failure(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	struct fix *f = *state;
	struct batch b;

	make_batch(f, &b);
	for (size_t i = 0; i < 3; i++) {
		failer_set(b.custom, phases[i], FAIL_CODE, -EIO);
		expect_code(f, atoll_plan_commit(b.plan, 0, f->res), -EIO);
		expect_all_old(&b);
		expect_eq(fix_plan_state(f, b.plan), ATOLL_PLAN_OPEN);
		phase_clear();
	}
	/* No workspace was touched since. */
	expect_ok(f, atoll_plan_commit(b.plan, 0, f->res));
	expect_all_new(f, &b);
	for (size_t i = 0; i < COPIES; i++)
		expect_eq(fix_outcome(f, b.copy[i]), ATOLL_OUTCOME_COMMITTED);
	expect_eq(fix_outcome(f, b.custom), ATOLL_OUTCOME_COMMITTED);
	expect_ok(f, atoll_plan_rollback(b.plan, 0, f->res));
	expect_all_old(&b);
}

/* ---- ATM-02 ---- */

static void atm_02_every_kind_of_failure_takes_the_undo_path(void **state)
{
	static const struct {
		enum fail_how how;
		int code, expected;
	} kinds[] = {
		{ FAIL_CODE, -7777, -7777 }, { FAIL_CODE, -ATOLL_E_BUSY, -ATOLL_E_BUSY },
		{ FAIL_NOMEM, 0, -ENOMEM },  { FAIL_FSIZE, 0, -EFBIG },
		{ FAIL_CODE, -1, -1 },       { FAIL_CODE, INT_MIN, INT_MIN },
	};
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	struct fix *f = *state;
	struct batch b;

	make_batch(f, &b);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (size_t j = 0; j < 3; j++) {
			failer_set(b.custom, phases[j], kinds[i].how, kinds[i].code);
			expect_code(f, atoll_plan_commit(b.plan, 0, f->res), kinds[i].expected);
			expect_eq(atoll_result_code(f->res), kinds[i].expected);
			expect_all_old(&b);
			phase_clear();
		}
	}
	expect_ok(f, atoll_plan_commit(b.plan, 0, f->res));
	expect_all_new(f, &b);
}

static void atm_02_an_answer_that_is_no_answer_is_a_failure(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	struct fix *f = *state;
	struct batch b;

	make_batch(f, &b);
	for (size_t j = 0; j < 3; j++) {
		failer_set(b.custom, phases[j], FAIL_CODE, 42);
		expect(atoll_plan_commit(b.plan, 0, f->res) < 0);
		expect(atoll_result_code(f->res) < 0);
		expect_all_old(&b);
		phase_clear();
	}
}

/* ---- ATM-03 ---- */

static int make_immutable(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	set_immutable(user, true);
	return -EIO;
}

static void atm_03_one_failing_undo_does_not_stop_the_others(void **state)
{
	struct fix *f = *state;
	struct batch b;
	char *stuck;

	need_root();
	make_batch(f, &b);
	stuck = fix_path(f, "%s/file", b.copy[1]);
	phase_hook(b.custom, PHASE_COMMIT, make_immutable, stuck);
	expect_code(f, atoll_plan_commit(b.plan, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	for (size_t i = 0; i < COPIES; i++) {
		expect_eq(fix_outcome(f, b.copy[i]),
		          i == 1 ? ATOLL_OUTCOME_ROLLBACK_FAILED : ATOLL_OUTCOME_ROLLED_BACK);
		if (i != 1)
			expect_man(b.copy[i], b.before[i]);
	}
	expect_eq(fix_row(f, b.copy[1])->cause_errno, EPERM);
	phase_clear();
	set_immutable(stuck, false);
	expect_eq(atoll_recover(f->a, "batch", false, f->res), 0);
	expect_all_old(&b);
	expect_ok(f, atoll_plan_commit(b.plan, 0, f->res));
	expect_all_new(f, &b);
}

/* ---- ATM-04, ATM-06: one sandbox is all or nothing as well ---- */

static void add_in_store(struct fix *f, struct atoll_plan *p, const char *root)
{
	const struct atoll_resource resource = { .root = root,
		                                 .strategy = "copy",
		                                 .work_in_store = true };

	expect_ok(f, atoll_plan_add(p, &resource, f->res));
}

/* A tree of MANY files on a filesystem of its own, all of them changed in the workspace. */
static struct atoll_plan *many_changes(struct fix *f, const char *root, bool in_store)
{
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *work;

	put_files(root, MANY, "old");
	if (in_store)
		add_in_store(f, p, root);
	else
		fix_add(f, p, root, "copy");
	work = fix_work(f, p, root);
	put_files(work, MANY, "new");
	return p;
}

static void expect_many(struct fix *f, const char *root, const char *text)
{
	for (unsigned i = 0; i < MANY; i++)
		expect_text(fix_path(f, "%s/d%02u/f%03u", root, i / 20, i),
		            fix_path(f, "%s %u\n", text, i));
}

static const char *small_resource(struct fix *f, size_t size)
{
	const char *mount = fix_tmpfs(f, "full", size);
	const char *root = fix_path(f, "%s/resource", mount);

	put_dir(root, 0755);
	return root;
}

/* Each file takes a page of the tmpfs: half of the copies find room. */
static void atm_04_half_full_disk_leaves_the_original(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before;
	int r;

	need_root();
	root = small_resource(f, 8u << 20);
	p = many_changes(f, root, true);
	before = fix_keep(f, man_take(root));
	fill_up(fix_path(f, "%s/full", f->dir), "filler", MANY / 2 * 4096);
	r = atoll_plan_commit(p, 0, f->res);
	expect_eq(r, -ENOSPC);
	expect_eq(atoll_result_cause_errno(f->res), ENOSPC);
	expect_man(root, before);
	remove_entry(fix_path(f, "%s/full/filler", f->dir));
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_many(f, root, "new");
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	expect_man(root, before);
}

/* With the workspace on the resource's own mount nothing is copied, so half a disk is enough; a
 * wholly full one is refused. */
static void atm_04_full_disk_of_the_workspace_leaves_the_original(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before;

	need_root();
	root = small_resource(f, 8u << 20);
	p = many_changes(f, root, false);
	before = fix_keep(f, man_take(root));
	fill_up(fix_path(f, "%s/full", f->dir), "filler", 0);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ENOSPC);
	expect_man(root, before);
	remove_entry(fix_path(f, "%s/full/filler", f->dir));
	fill_up(fix_path(f, "%s/full", f->dir), "filler", 512u << 10);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_many(f, root, "new");
	remove_entry(fix_path(f, "%s/full/filler", f->dir));
}

static int commit_with_file_limit(struct fix *f, struct atoll_plan *p)
{
	struct rlimit old, tight;
	int r;

	expect_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	tight = (struct rlimit){ .rlim_cur = LIMIT, .rlim_max = old.rlim_max };
	(void)signal(SIGXFSZ, SIG_IGN);
	expect_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
	r = atoll_plan_commit(p, 0, f->res);
	expect_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
	(void)signal(SIGXFSZ, SIG_DFL);
	return r;
}

static void atm_04_file_size_limit_leaves_the_original(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before;

	need_root();
	root = small_resource(f, 32u << 20);
	p = many_changes(f, root, true);
	put_bytes(fix_path(f, "%s/d07/f150", fix_work(f, p, root)), BIG_FILE, 1);
	before = fix_keep(f, man_take(root));
	expect_eq(commit_with_file_limit(f, p), -EFBIG);
	expect_man(root, before);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	man_assert_not_equal(before, fix_keep(f, man_take(root)));
}

static void atm_04_immutable_150th_file_leaves_the_original(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before, *stuck;
	int r;

	need_root();
	root = fix_dir(f, "resource");
	p = many_changes(f, root, false);
	before = fix_keep(f, man_take(root));
	stuck = fix_path(f, "%s/d07", root); /* its directory: see ATM-01 */
	set_immutable(stuck, true);
	r = atoll_plan_commit(p, 0, f->res);
	set_immutable(stuck, false);
	expect_eq(r, -EPERM);
	expect_man(root, before);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_many(f, root, "new");
}

static void atm_06_failed_preparation_does_not_touch_the_original(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before, *man;

	need_root();
	root = small_resource(f, 8u << 20);
	p = many_changes(f, root, true);
	before = fix_keep(f, man_inodes(root));
	man = fix_keep(f, man_take(root));
	fill_up(fix_path(f, "%s/full", f->dir), "filler", MANY / 2 * 4096);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ENOSPC);
	expect_inodes(root, before);
	expect_man(root, man);
	remove_entry(fix_path(f, "%s/full/filler", f->dir));
}

static void atm_06_failures_before_the_decision_change_no_ctime(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK };
	struct fix *f = *state;
	char *inodes[COPIES];
	struct batch b;

	make_batch(f, &b);
	for (size_t i = 0; i < COPIES; i++)
		inodes[i] = fix_keep(f, man_inodes(b.copy[i]));
	for (size_t j = 0; j < 2; j++) {
		failer_set(b.custom, phases[j], FAIL_CODE, -EIO);
		expect_code(f, atoll_plan_commit(b.plan, 0, f->res), -EIO);
		for (size_t i = 0; i < COPIES; i++)
			expect_inodes(b.copy[i], inodes[i]);
		expect_all_old(&b);
		phase_clear();
	}
	expect_ok(f, atoll_plan_commit(b.plan, ATOLL_DRY_RUN, f->res));
	for (size_t i = 0; i < COPIES; i++)
		expect_inodes(b.copy[i], inodes[i]);
}

/* ---- ATM-09, ATM-10: participants that cannot be undone ---- */

static void atm_09_pass_through_beside_others_needs_consent(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *in_place = fix_dir(f, "in-place");
	const char *copy = fix_dir(f, "copy");
	size_t last;
	char *before;

	put_text(fix_path(f, "%s/file", copy), "old\n");
	before = fix_keep(f, man_take(copy));
	fix_add(f, p, in_place, "none");
	fix_add(f, p, copy, "copy");
	put_text(fix_path(f, "%s/file", fix_work(f, p, copy)), "new\n");
	put_text(fix_path(f, "%s/file", fix_work(f, p, in_place)), "in place\n");

	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CANNOT_PREPARE);
	expect_man(copy, before);

	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res));
	expect_text(fix_path(f, "%s/file", copy), "new\n");
	expect_eq(atoll_result_atomicity(f->res), ATOLL_ATOMICITY_NONE);
	last = atoll_result_participants(f->res) - 1;
	expect_str(atoll_result_participant(f->res, last)->root, in_place);
	expect_eq(fix_notes(f, ATOLL_NOTE_WARNING), 1);
	for (size_t i = 0; i < atoll_result_notes(f->res); i++)
		if (atoll_result_note(f->res, i)->kind == ATOLL_NOTE_WARNING)
			expect_str(atoll_result_note(f->res, i)->sandbox,
			           fix_row(f, in_place)->sandbox);
}

static void atm_09_two_pass_throughs_and_the_second_fails(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *one = fix_dir(f, "one"), *two = fix_dir(f, "two");
	char *before;

	fix_add(f, p, one, "blunt");
	fix_add(f, p, two, "blunt");
	put_text(fix_path(f, "%s/x", fix_work(f, p, one)), "x\n");
	put_text(fix_path(f, "%s/x", fix_work(f, p, two)), "x\n");
	before = fix_keep(f, man_take(two));
	failer_set(two, PHASE_COMMIT, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res), -EIO);
	expect_eq(fix_outcome(f, one), ATOLL_OUTCOME_NOT_UNDOABLE);
	expect_eq(fix_outcome(f, two), ATOLL_OUTCOME_FAILED);
	for (size_t i = 0; i < atoll_result_participants(f->res); i++)
		expect(atoll_result_participant(f->res, i)->outcome != ATOLL_OUTCOME_ROLLED_BACK);
	expect_man(two, before);
}

static void atm_10_capabilities_decide_who_comes_last(void **state)
{
	static const char *const finals[] = { "final", "blunt" };
	struct fix *f = *state;

	for (unsigned i = 0; i < 4; i++) {
		const char *last = fix_dir(f, fix_path(f, "last%u", i));
		const char *first = fix_dir(f, fix_path(f, "first%u", i));
		const char *log = fix_path(f, "%s/log%u", f->dir, i);
		struct atoll_plan *p = fix_plan(f, NULL);
		bool swap = i & 1;
		const char *strategy = finals[i / 2];
		char *before = fix_keep(f, man_take(first));

		fix_add(f, p, swap ? last : first, swap ? strategy : "failer");
		fix_add(f, p, swap ? first : last, swap ? "failer" : strategy);
		put_text(fix_path(f, "%s/value", fix_work(f, p, first)), "new\n");
		put_text(fix_path(f, "%s/value", fix_work(f, p, last)), "new\n");
		effect_log(log);
		/* One that can promise to succeed weakens nobody's promise. */
		if (i / 2 == 1) {
			expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CANNOT_PREPARE);
			expect_man(first, before);
			expect(!exists(log));
		}
		expect_ok(f, atoll_plan_commit(p, i / 2 ? ATOLL_ALLOW_PARTIAL : 0, f->res));
		expect_eq(atoll_result_atomicity(f->res),
		          i / 2 ? ATOLL_ATOMICITY_NONE : ATOLL_ATOMICITY_FULL);
		effect_log(NULL);
		expect(strstr(fix_keep(f, get_text(log)),
		              fix_path(f, "commit first%u\ncommit last%u\n", i, i)) != NULL);
	}
}

#define PREPARED "prepare failer\nprepare late\nprepare final\n"

/* What prepared but could not be undone lets go when one before it fails after the decision. */
static void atm_10_a_final_one_lets_go_when_another_fails(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *log = fix_path(f, "%s/log", f->dir);
	static const char *const kinds[] = { "final", "late", "failer" };
	const char *roots[3];

	for (size_t i = 0; i < 3; i++) {
		roots[i] = fix_dir(f, kinds[i]);
		put_text(fix_path(f, "%s/value", roots[i]), "old\n");
		fix_add(f, p, roots[i], kinds[i]);
		put_text(fix_path(f, "%s/value", fix_work(f, p, roots[i])), "new\n");
	}
	failer_set(roots[1], PHASE_COMMIT, FAIL_CODE, -EIO);
	effect_log(log);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -EIO);
	expect_str(fix_keep(f, get_text(log)),
	           PREPARED "commit failer\nabort final\nundo failer\n");
	for (size_t i = 0; i < 3; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "old\n");
	phase_clear();
	(void)unlink(log);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_str(fix_keep(f, get_text(log)),
	           PREPARED "commit failer\ncommit late\ncommit final\n");
	effect_log(NULL);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_NOT_UNDOABLE);
	expect_text(fix_path(f, "%s/value", roots[0]), "new\n");
	expect_ok(f, atoll_plan_rollback(p, ATOLL_ALLOW_PARTIAL, f->res));
	expect_text(fix_path(f, "%s/value", roots[0]), "new\n");
	expect_text(fix_path(f, "%s/value", roots[1]), "old\n");
	expect_text(fix_path(f, "%s/value", roots[2]), "old\n");
}

static void make_final(struct fix *f, struct atoll_plan *p, const char *roots[2])
{
	static const char *const kinds[] = { "failer", "final" };

	for (size_t i = 0; i < 2; i++) {
		roots[i] = fix_dir(f, kinds[i]);
		put_text(fix_path(f, "%s/value", roots[i]), "old\n");
		fix_add(f, p, roots[i], kinds[i]);
		put_text(fix_path(f, "%s/value", fix_work(f, p, roots[i])), "new\n");
	}
}

/* A final one was committed, and its answer got lost: nobody goes back, and whoever comes next goes on. */
static void atm_10_a_final_one_is_asked_before_all_go_back(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *roots[2];

	make_final(f, p, roots);
	failer_set(roots[1], PHASE_COMMIT, FAIL_CODE, -ECONNRESET);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "new\n");
	phase_clear();
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "new\n");
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_NOT_UNDOABLE);
}

/* It cannot even be asked: all stays as it is until it can. */
static void atm_10_a_final_one_that_cannot_tell_holds_all(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *roots[2];

	make_final(f, p, roots);
	failer_set(roots[1], PHASE_COMMIT, FAIL_CODE, -ECONNRESET);
	failer_set(roots[1], PHASE_ABORT, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "new\n");
	phase_clear();
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "new\n");
}

/* It had not been committed: asked once, before the others go back. */
static void atm_10_a_final_one_that_fails_takes_all_back(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *log = fix_path(f, "%s/log", f->dir);
	const char *roots[2];

	make_final(f, p, roots);
	failer_set(roots[1], PHASE_COMMIT, FAIL_CODE, -EIO);
	effect_log(log);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -EIO);
	effect_log(NULL);
	expect_str(fix_keep(f, get_text(log)), "prepare failer\nprepare final\ncommit failer\n"
	                                       "abort final\nundo failer\n");
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "old\n");
	phase_clear();
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	for (size_t i = 0; i < 2; i++)
		expect_text(fix_path(f, "%s/value", roots[i]), "new\n");
}

static int nothing(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static int no_path(struct atoll_participant *p, char **ret_path)
{
	(void)p;
	(void)ret_path;
	return -EIO;
}

static void atm_10_a_capability_without_its_function_is_refused(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	char *before = fix_keep(f, man_take(root));
	const struct atoll_strategy whole = {
		.api_version = ATOLL_STRATEGY_API_VERSION,
		.name = "incomplete",
		.kind = "directory",
		.capabilities =
			ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH,
		.create = nothing,
		.path = no_path,
		.diff = nothing,
		.prepare = nothing,
		.commit = nothing,
		.abort = nothing,
		.undo = nothing,
		.remove = nothing,
	};
	struct atoll_strategy s = whole;

	s.undo = NULL;
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_INVALID);
	s = whole;
	s.diff = NULL;
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_INVALID);
	s = whole;
	s.prepare = NULL;
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_INVALID);
	s = whole;
	s.path = NULL;
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_INVALID);
	s = whole;
	s.api_version = 99;
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_INVALID);
	s = whole;
	s.name = "copy";
	expect_code(f, atoll_strategy_register(&s, f->res), -ATOLL_E_EXISTS);
	/* And so it is not there. */
	expect_code(
		f,
		atoll_plan_add(fix_plan(f, NULL),
	                       &(struct atoll_resource){ .root = root, .strategy = "incomplete" },
	                       f->res),
		-ATOLL_E_NOT_FOUND);
	expect_man(root, before);
}

/* ---- ATM-12 ---- */

static void atm_12_no_change_is_an_outcome_and_undoing_it_no_work(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *idle = fix_dir(f, "idle"), *used = fix_dir(f, "used");
	const char *custom = fix_dir(f, "custom");
	char *inodes, *before;

	put_random_tree(idle, 30, 1);
	fix_add(f, p, idle, "copy");
	fix_add(f, p, used, "copy");
	fix_add(f, p, custom, "failer");
	inodes = fix_keep(f, man_inodes(idle));
	before = fix_keep(f, man_take(used));
	(void)fix_work(f, p, idle);
	put_text(fix_path(f, "%s/x", fix_work(f, p, used)), "x\n");
	put_text(fix_path(f, "%s/value", fix_work(f, p, custom)), "x\n");
	failer_set(custom, PHASE_COMMIT, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -EIO);
	expect_eq(fix_outcome(f, idle), ATOLL_OUTCOME_UNCHANGED);
	for (size_t i = 0; i < atoll_result_participants(f->res); i++)
		expect(atoll_result_participant(f->res, i)->outcome !=
		       ATOLL_OUTCOME_ROLLBACK_FAILED);
	expect_inodes(idle, inodes);
	phase_clear();
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_eq(fix_outcome(f, idle), ATOLL_OUTCOME_UNCHANGED);
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	expect_inodes(idle, inodes);
	expect_man(used, before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(atm_01_immutable_file_in_the_third_leaves_all_five),
		atest(atm_01_failure_after_the_decision_leaves_all_five),
		atest(atm_02_every_kind_of_failure_takes_the_undo_path),
		atest(atm_02_an_answer_that_is_no_answer_is_a_failure),
		atest(atm_03_one_failing_undo_does_not_stop_the_others),
		atest(atm_04_half_full_disk_leaves_the_original),
		atest(atm_04_full_disk_of_the_workspace_leaves_the_original),
		atest(atm_04_file_size_limit_leaves_the_original),
		atest(atm_04_immutable_150th_file_leaves_the_original),
		atest(atm_06_failed_preparation_does_not_touch_the_original),
		atest(atm_06_failures_before_the_decision_change_no_ctime),
		atest(atm_09_pass_through_beside_others_needs_consent),
		atest(atm_09_two_pass_throughs_and_the_second_fails),
		atest(atm_10_capabilities_decide_who_comes_last),
		atest(atm_10_a_final_one_lets_go_when_another_fails),
		atest(atm_10_a_final_one_is_asked_before_all_go_back),
		atest(atm_10_a_final_one_that_cannot_tell_holds_all),
		atest(atm_10_a_final_one_that_fails_takes_all_back),
		atest(atm_10_a_capability_without_its_function_is_refused),
		atest(atm_11_the_same_batch_commits_whole_after_a_failure),
		atest(atm_12_no_change_is_an_outcome_and_undoing_it_no_work),
	};

	return atest_main(argc, argv, tests, NULL);
}
