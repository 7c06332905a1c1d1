/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans in states that few get into: a store that somebody edited, remains that cannot be removed, a
 * participant that fails where the others cannot go back, roots that others hold.
 */
#include "lib/more.h"
#include "lib/views.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* What no program of ours does to a store. */
static void edit_store(struct fix *f, const char *sql)
{
	expect_eq(system(fix_path(f, "sqlite3 -cmd '.timeout 60000' '%s/atoll.db' \"%s\" >&2",
	                          f->home, sql)),
	          0);
}

/* A plan over two directories with work in both. */
struct two {
	struct atoll_plan *p;
	const char *root[2];
};

static void make_two(struct fix *f, struct two *t, const char *strategy)
{
	t->p = fix_plan(f, "two");
	for (int i = 0; i < 2; i++) {
		t->root[i] = fix_dir(f, i ? "second" : "first");
		put_text(fix_path(f, "%s/value", t->root[i]), "old\n");
		fix_add(f, t->p, t->root[i], strategy);
		put_text(fix_path(f, "%s/value", fix_work(f, t->p, t->root[i])), "new\n");
	}
}

static void expect_both(struct fix *f, const struct two *t, const char *first, const char *second)
{
	expect_text(fix_path(f, "%s/value", t->root[0]), first);
	expect_text(fix_path(f, "%s/value", t->root[1]), second);
}

/* ---- decisions ---- */

/* Whoever is final and done is not taken back when the next fails: what was decided is carried out. */
static void atm_10_what_is_final_binds_those_after_it(void **state)
{
	struct fix *f = *state;
	struct two t;

	make_two(f, &t, "final");
	failer_set(t.root[1], PHASE_COMMIT, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(t.p, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	expect_both(f, &t, "new\n", "old\n");
	expect_eq(atoll_recover(f->a, "two", false, f->res), 1);
	expect_both(f, &t, "new\n", "old\n");
	phase_clear();
	expect_eq(atoll_recover(f->a, "two", false, f->res), 0);
	expect_both(f, &t, "new\n", "new\n");
	expect_eq(fix_plan_state(f, t.p), ATOLL_PLAN_COMMITTED);
}

/* A workspace that no batch touched and that cannot be reset is said to be so; the undo is done. */
static void a_reset_that_fails_is_the_failure_of_its_own(void **state)
{
	struct fix *f = *state;
	struct two t;

	make_two(f, &t, "failer");
	put_text(fix_path(f, "%s/value", fix_work(f, t.p, t.root[1])), "old\n");
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	expect_both(f, &t, "new\n", "old\n");
	failer_set(t.root[1], PHASE_RESET, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_rollback(t.p, 0, f->res), -EIO);
	expect_eq(fix_outcome(f, t.root[0]), ATOLL_OUTCOME_ROLLED_BACK);
	expect_eq(fix_outcome(f, t.root[1]), ATOLL_OUTCOME_FAILED);
	expect_eq(fix_row(f, t.root[1])->workspace_reset, ATOLL_FACT_NO);
	expect_both(f, &t, "old\n", "old\n");
	phase_clear();
	expect_ok(f, atoll_plan_reset(t.p, f->res));
}

static int supersede(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	edit_store(user, "UPDATE plan SET epoch = epoch + 1000");
	return 0;
}

/* Whoever was taken for dead, and is not, decides nothing any more. */
static void a_superseded_holder_decides_nothing(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK };
	struct fix *f = *state;
	struct two t;

	make_two(f, &t, "failer");
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
		phase_hook(t.root[1], phases[i], supersede, f);
		expect_msg(atoll_plan_commit(t.p, 0, f->res) < 0, "it committed");
		phase_clear();
		expect_both(f, &t, "old\n", "old\n");
		expect_eq(atoll_recover(f->a, "two", false, f->res), 0);
		expect_both(f, &t, "old\n", "old\n");
		expect_eq(fix_plan_state(f, t.p), ATOLL_PLAN_OPEN);
	}
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	expect_both(f, &t, "new\n", "new\n");
}

static void parents_in_a_circle_are_refused(void **state)
{
	struct fix *f = *state;
	struct two t;

	make_two(f, &t, "copy");
	edit_store(f, "UPDATE sandbox SET parent = "
	              "(SELECT o.id FROM sandbox o WHERE o.id <> sandbox.id)");
	expect_code(f, atoll_plan_commit(t.p, 0, f->res), -ATOLL_E_INVALID);
	expect(strstr(atoll_result_message(f->res), "is among its own parents") != NULL);
	expect_both(f, &t, "old\n", "old\n");
	edit_store(f, "UPDATE sandbox SET parent = ''");
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	expect_both(f, &t, "new\n", "new\n");
}

/* ---- a tree, and what became of its batch ---- */

static const char *put_tree(struct fix *f, const char *root)
{
	put_dir(root, 0755);
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_dir(fix_path(f, "%s/e", root), 0755);
	put_text(fix_path(f, "%s/a", root), "a\n");
	put_text(fix_path(f, "%s/f", root), "f\n");
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	put_text(fix_path(f, "%s/e/z", root), "z\n");
	return root;
}

static int child_commit(const char *dir, const char *arg)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct atoll_plan *p = NULL;

	fix_attach(f, dir);
	expect_ok(f, atoll_plan_find(f->a, arg, &p, f->res));
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	atoll_plan_free(p);
	fix_detach(f);
	free(f);
	return 0;
}

/* The store lost its last writes, against all it was promised: what was carried out already of a batch that
 * was never decided goes back, and is work again. */
static void atm_14_what_moved_before_its_decision_goes_back(void **state)
{
	static const char *const kinds[] = { "copy", "overlay" };
	static const char *const points[] = { "txn.after-decision", "dir.apply.staged",
		                              "dir.apply.op:3", "txn.after-apply" };
	enum { POINTS = sizeof(points) / sizeof(points[0]) };
	struct fix *f = *state;
	const char *mount = other_mount(f);

	for (size_t i = 0; i < 2 * 2 * POINTS; i++) {
		bool apart = i / 2 % 2;
		const char *root = fix_path(f, "%s/r%zu", apart ? mount : f->dir, i);
		const char *name = fix_path(f, "p%zu", i);
		const char *env[] = { fix_path(f, "ATOLL_CRASHPOINT=%s", points[i / 4]), NULL };
		const struct atoll_resource r = { .root = put_tree(f, root),
			                          .strategy = kinds[i % 2],
			                          .work_in_store = apart };
		struct atoll_plan *p = fix_plan(f, name);
		char *before = man_take(root), *seen, *now;
		int status;

		expect_ok(f, atoll_plan_add(p, &r, f->res));
		run_ok(f, p, root,
		       "rm f; echo n >new; rm -r e; mkdir e; echo q >e/q; echo A >a; mkdir n; echo n >n/n; "
		       "chmod 700 d");
		seen = list_view(f, p, root);
		status = child_run(f, "commit", name, env);
		/* Nothing is staged by moving it where that cannot be done. */
		expect(status == 137 || (apart && i / 4 == 1 && status == 0));
		if (status == 137) {
			edit_store(f, fix_path(f,
			                       "UPDATE batch SET state = 0 WHERE plan = "
			                       "(SELECT id FROM plan WHERE name = '%s'); "
			                       "UPDATE plan SET state = 1 WHERE name = '%s'",
			                       name, name));
			expect_eq(atoll_recover(f->a, name, false, f->res), 0);
			expect_man(root, before);
			now = list_view(f, p, root);
			expect_str(now, seen);
			free(now);
			expect_commit(f, p);
		}
		expect_text(fix_path(f, "%s/e/q", root), "q\n");
		expect_rollback(f, p);
		expect_man(root, before);
		expect_stop(f, p);
		free(before);
		free(seen);
	}
}

/* What an undo that was refused wanted to leave alone is no concern of the next. */
static void der_04_an_undo_does_not_keep_what_another_wanted_to(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root = put_tree(f, fix_path(f, "%s/root", f->dir)), *v = fix_dir(f, "v");
	char *before = fix_keep(f, man_take(root));

	put_text(fix_path(f, "%s/value", v), "old\n");
	fix_add(f, p, root, "copy");
	fix_add(f, p, v, "failer");
	set_mode(fix_path(f, "%s/d", fix_work(f, p, root)), 0700);
	put_text(fix_path(f, "%s/a", fix_work(f, p, root)), "A\n");
	put_text(fix_path(f, "%s/value", fix_work(f, p, v)), "new\n");
	expect_commit(f, p);
	set_mode(fix_path(f, "%s/d", root), 0711);
	failer_set(v, PHASE_PREPARE_UNDO, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_rollback(p, ATOLL_KEEP_THEIRS, f->res), -EIO);
	expect_text(fix_path(f, "%s/a", root), "A\n");
	phase_clear();
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
	set_mode(fix_path(f, "%s/d", root), 0700);
	expect_rollback(f, p);
	expect_man(root, before);
}

/* ---- overlays whose lower changes ---- */

struct overlaid {
	const char *root;
	struct atoll_plan *p;
};

static struct overlaid overlay_tree(struct fix *f, const char *name)
{
	const char *root = put_tree(f, fix_path(f, "%s/%s", f->dir, name));

	return (struct overlaid){ root, plan_overlay(f, root) };
}

/* Deleted below a directory that somebody made, too, and took away again: it is only ours now. */
static void a_new_directory_arrives_without_marks(void **state)
{
	struct fix *f = *state;
	struct overlaid o = overlay_tree(f, "r");
	const char *n = fix_path(f, "%s/n", o.root);

	run_ok(f, o.p, o.root, "mkdir n; echo 1 >n/a");
	run_plain(o.root, "mkdir n; echo x >n/x");
	run_ok(f, o.p, o.root, "rm n/x");
	run_plain(o.root, "rm -r n");
	expect_commit(f, o.p);
	expect_eq(count_entries(n), 1);
	expect_text(fix_path(f, "%s/a", n), "1\n");
	expect_rollback(f, o.p);
	expect(!exists(n));
}

/* Replaced before the plan worked in it for the first time, which no look can tell from a change. */
static void der_03_a_directory_that_was_replaced_is_a_conflict(void **state)
{
	struct fix *f = *state;
	struct overlaid o = overlay_tree(f, "r");
	char *before;

	/* Before a command saw it, it is what its view was made of. */
	run_plain(o.root, "mv d old; cp -a old d");
	run_ok(f, o.p, o.root, "echo n >d/n");
	expect_commit(f, o.p);
	expect_text(fix_path(f, "%s/d/n", o.root), "n\n");
	run_ok(f, o.p, o.root, "echo m >d/m");
	run_plain(o.root, "mv d older; cp -a older d; echo x >d/x");
	before = fix_keep(f, man_inodes(o.root));
	expect_code(f, atoll_plan_commit(o.p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "d"));
	expect_inodes(o.root, before);
}

/* Its name is another, and it is known by where it came from. */
static void a_file_that_was_recorded_and_renamed_is_no_conflict(void **state)
{
	struct fix *f = *state;
	struct overlaid o = overlay_tree(f, "r");

	run_ok(f, o.p, o.root, "echo more >>a");
	run_plain(o.root, "echo theirs >theirs");
	run_ok(f, o.p, o.root, "mv a z");
	expect_commit(f, o.p);
	expect_text(fix_path(f, "%s/z", o.root), "a\nmore\n");
	expect_text(fix_path(f, "%s/theirs", o.root), "theirs\n");
	expect(!exists(fix_path(f, "%s/a", o.root)));
}

/* Closed even to its owner, as which it was moved. */
static void stm_03_a_closed_directory_is_kept_closed(void **state)
{
	struct fix *f = *state;
	struct overlaid o = overlay_tree(f, "r");
	char *seen, *now;

	run_ok(f, o.p, o.root, "mkdir -p c/in; echo x >c/in/x; chmod 500 c/in c; chmod 555 d");
	seen = list_view(f, o.p, o.root);
	expect_commit(f, o.p);
	expect_ok(f, atoll_plan_rollback(o.p, ATOLL_KEEP_WORK, f->res));
	expect(!exists(fix_path(f, "%s/c", o.root)));
	now = list_view(f, o.p, o.root);
	expect_str(now, seen);
	expect_commit(f, o.p);
	expect_eq(mode_of(fix_path(f, "%s/c", o.root)), 0500);
	expect_rollback(f, o.p);
	expect_stop(f, o.p);
	free(seen);
	free(now);
}

/* A mount that a commit stopped, which then died, is not used on. */
static void a_mount_that_was_stopped_is_made_anew(void **state)
{
	static const char *const points[] = { "txn.prepared", "txn.after-decision",
		                              "txn.after-committed" };
	struct fix *f = *state;

	need_root();
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		const char *env[] = { fix_path(f, "ATOLL_CRASHPOINT=%s", points[i]), NULL };
		const char *name = fix_path(f, "p%zu", i);
		struct atoll_plan *p = fix_plan(f, name);
		const char *root = put_tree(f, fix_path(f, "%s/r%zu", f->dir, i));

		fix_add(f, p, root, "overlay");
		put_text(fix_path(f, "%s/h", fix_work(f, p, root)), "h\n");
		expect_eq(child_run(f, "commit", name, env), 137);
		expect_eq(atoll_recover(f->a, name, false, f->res), 0);
		put_text(fix_path(f, "%s/i", fix_work(f, p, root)), "i\n");
		run_ok(f, p, root, "cat h i >both");
		expect_commit(f, p);
		expect_text(fix_path(f, "%s/both", root), "h\ni\n");
		expect_stop(f, p);
	}
}

/* ---- what cannot be removed ---- */

/* It stays on record, and the next who comes tries again. */
static void cln_03_an_add_that_cannot_be_taken_back_is_on_record(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *good = fix_dir(f, "good"), *bad = fix_dir(f, "bad");
	const struct atoll_resource r = { .root = bad, .strategy = "failer" };

	fix_add(f, p, good, "copy");
	failer_set(bad, PHASE_CREATE, FAIL_CODE, -EIO);
	failer_set(bad, PHASE_REMOVE, FAIL_CODE, -EBUSY);
	expect_code(f, atoll_plan_add(p, &r, f->res), -EIO);
	expect_eq(fix_state(f, p, bad), ATOLL_SANDBOX_ERRORED);
	/* As long as it cannot go, it stands in the way of a second one. */
	phase_clear();
	failer_set(bad, PHASE_REMOVE, FAIL_CODE, -EBUSY);
	expect_msg(atoll_plan_add(p, &r, f->res) < 0, "it was added twice");
	expect_eq(fix_state(f, p, bad), ATOLL_SANDBOX_ERRORED);
	phase_clear();
	expect_ok(f, atoll_plan_add(p, &r, f->res));
	expect_eq(fix_state(f, p, bad), ATOLL_SANDBOX_CREATED);
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
}

static int child_start_plan(const char *dir, const char *arg)
{
	struct fix f = { 0 };
	struct atoll_plan *p = NULL;
	struct atoll_resource r[2];
	int code;

	fix_attach(&f, dir);
	r[0] = (struct atoll_resource){ .root = arg, .strategy = "copy", .work_in_store = true };
	code = atoll_plan_start_with(
		f.a, &(struct atoll_start){ .name = "begun", .resources = r, .n_resources = 1 }, &p,
		f.res);
	atoll_plan_free(p);
	fix_detach(&f);
	return code < 0 ? 1 : 0;
}

static const char *const die_made[] = { "ATOLL_CRASHPOINT=plan.start.after-make", NULL };

/* A start that was cut off goes, with a workspace that is elsewhere than the area; one of which
 * something cannot be removed waits for that, and says so. */
static void cln_03_a_start_that_cannot_be_taken_back_waits(void **state)
{
	struct fix *f = *state;
	const char *root = fix_path(f, "%s/root", other_mount(f)), *stuck;
	struct atoll_plan *p;

	put_dir(root, 0755);
	put_text(fix_path(f, "%s/file", root), "old\n");
	expect_eq(child_run(f, "start", root, die_made), 137);
	expect(count_entries(fix_path(f, "%s/plans", f->home)) > 0);
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	if (!am_root())
		return;

	expect_eq(child_run(f, "start", root, die_made), 137);
	stuck = fix_path(f, "%s/plans", f->home);
	expect_eq(system(fix_path(f, "chattr +i '%s'/*/*", stuck)), 0);
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 1);
	expect(count_entries(stuck) > 0);
	/* By force neither; but nothing is forgotten. */
	p = fix_find(f, "begun");
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	expect_msg(strstr(atoll_result_message(f->res), "cannot be removed") != NULL, "%s",
	           atoll_result_message(f->res));
	expect_msg(atoll_plan_stop(p, ATOLL_FORCE, f->res) < 0, "it was stopped");
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 1);
	expect_eq(system(fix_path(f, "chattr -R -i '%s'", stuck)), 0);
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	expect_eq(count_entries(stuck), 0);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

/* Directories whose plan somebody took out of the store go; what cannot be removed is said. */
static void what_is_left_of_a_plan_that_nobody_knows_goes(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *area;
	struct atoll_plan *p = plan_over(f, root);

	put_text(fix_path(f, "%s/file", fix_work(f, p, root)), "work\n");
	wait_for_helpers();
	area = fix_area(f, p, root);
	/* A lock file that is none of ours, by its name. */
	put_text(fix_path(f, "%s/locks/odd.plan", f->home), "");
	fix_forget(f, p);
	edit_store(f, "DELETE FROM plan");
	expect_eq(scanned(f), 1);
	if (am_root()) {
		set_immutable(area, true);
		expect_msg(atoll_purge(f->a, 0, f->res) < 0, "it was purged");
		expect(exists(area));
		set_immutable(area, false);
	}
	expect_ok(f, atoll_purge(f->a, 0, f->res));
	expect(!exists(area));
	expect_eq(scanned(f), 0);
	expect(exists(fix_path(f, "%s/locks/odd.plan", f->home)));
	expect_ok(f, atoll_purge(f->a, 0, f->res));
}

/* ---- roots that are somebody else's, too ---- */

struct holders {
	const char *root;
	size_t n;
	pid_t pid;
};

static int note_holder(void *user, const struct atoll_lock_info *info)
{
	struct holders *h = user;

	if (strcmp(info->kind, "resource") != 0 || strcmp(info->root, h->root) != 0)
		return 0;
	h->n++;
	h->pid = info->pid;
	expect_eq(info->ahead, 0);
	expect(info->alive);
	return 0;
}

/* Held by a program that is in no queue of this store: named once, however many plans have it. */
static void a_root_that_another_program_holds_is_shown(void **state)
{
	struct fix *f = *state;
	struct holders h = { .root = fix_dir(f, "root") };
	int fd = open(h.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)plan_over(f, h.root);
	(void)plan_over(f, h.root);
	expect_eq(flock(fd, LOCK_EX), 0);
	expect_ok(f, atoll_lock_list(f->a, NULL, note_holder, &h, f->res));
	expect_eq(h.n, 1);
	expect_eq(h.pid, getpid());
	(void)close(fd);
	h.n = 0;
	expect_ok(f, atoll_lock_list(f->a, NULL, note_holder, &h, f->res));
	expect_eq(h.n, 0);
}

/* On another mount than the store the area lies beside the root, and in no other plan's root. */
static void an_area_lies_in_no_root_around(void **state)
{
	struct fix *f = *state;
	const char *outer = fix_path(f, "%s/outer", other_mount(f)), *area;
	const char *inner = fix_path(f, "%s/deep/inner", outer);
	struct atoll_plan *p, *q;

	put_dir(outer, 0755);
	put_dir(fix_path(f, "%s/deep", outer), 0755);
	put_dir(inner, 0755);
	put_text(fix_path(f, "%s/file", inner), "old\n");
	p = plan_over(f, outer);
	q = plan_over(f, inner);
	area = fix_area(f, q, inner);
	expect_msg(strncmp(area, outer, strlen(outer)) != 0, "%s is in %s", area, outer);
	put_text(fix_path(f, "%s/file", fix_work(f, q, inner)), "new\n");
	expect_commit(f, q);
	expect_text(fix_path(f, "%s/file", inner), "new\n");
	expect_stop(f, q);
	expect_stop(f, p);
}

static void a_refresh_of_what_is_gone_is_refused(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan_over(f, fix_dir(f, "root"));

	expect_ok(f, atoll_plan_refresh(p, f->res));
	expect_stop(f, p);
	expect_code(f, atoll_plan_refresh(p, f->res), -ATOLL_E_NOT_FOUND);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		mtest(a_file_that_was_recorded_and_renamed_is_no_conflict),
		mtest(a_mount_that_was_stopped_is_made_anew),
		mtest(a_new_directory_arrives_without_marks),
		atest(atm_10_what_is_final_binds_those_after_it),
		mtest(atm_14_what_moved_before_its_decision_goes_back),
		mtest(der_03_a_directory_that_was_replaced_is_a_conflict),
		mtest(der_04_an_undo_does_not_keep_what_another_wanted_to),
		mtest(stm_03_a_closed_directory_is_kept_closed),
		atest(a_reset_that_fails_is_the_failure_of_its_own),
		mtest(an_area_lies_in_no_root_around),
		mtest(cln_03_a_start_that_cannot_be_taken_back_waits),
		atest(cln_03_an_add_that_cannot_be_taken_back_is_on_record),
		mtest(what_is_left_of_a_plan_that_nobody_knows_goes),
		atest(parents_in_a_circle_are_refused),
		atest(a_refresh_of_what_is_gone_is_refused),
		atest(a_superseded_holder_decides_nothing),
		atest(a_root_that_another_program_holds_is_shown),
	};
	static const struct atest_child children[] = { { "commit", child_commit },
		                                       { "start", child_start_plan },
		                                       { NULL, NULL } };

	return atest_main(argc, argv, tests, children);
}
