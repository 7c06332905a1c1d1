/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conflicts of overlays: the tree below a view is live, so somebody may change it before, while and
 * after a command works in the view. A table says who does what when, and whether that is a
 * conflict; in every case nothing of his is lost.
 */
#include "lib/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum when { BEFORE_EXEC, MEANWHILE_FIRST, MEANWHILE_LAST, BETWEEN, AFTER };

struct row {
	const char *ours;     /* in the view */
	const char *theirs;   /* in the resource */
	const char *conflict; /* path, or NULL: none */
	unsigned when;        /* bits, 1 << enum when */
};
#define ANY_TIME (1u << BEFORE_EXEC | 1u << MEANWHILE_FIRST | 1u << MEANWHILE_LAST | LATER)
#define WHILE    (1u << MEANWHILE_FIRST | 1u << MEANWHILE_LAST | LATER)
#define LATER    (1u << BETWEEN | 1u << AFTER)
/* The view may show what was there before: a copy is made of what the command opens. */
#define OURS_LAST (1u << MEANWHILE_LAST | LATER)

static const struct row rows[] = {
	/* the same entry */
	{ "echo ours >> one", "echo theirs >> one", "one", OURS_LAST },
	{ "echo ours > t; mv t one", "echo theirs > .t; mv .t one", "one", OURS_LAST },
	{ "echo ours >> one", "echo theirs > .t; mv .t one", "one", OURS_LAST },
	/* the same content: nobody knows that before there is a record, and then all do */
	{ "echo ours >> one", "touch -d 2005-05-05 one", "one", 1u << MEANWHILE_LAST },
	{ "echo ours >> one", "touch -d 2005-05-05 one", NULL, LATER },
	{ "echo ours >> one", "ln one more", NULL, LATER },
	{ "echo ours >> one", "chmod 600 one; chmod 644 one", NULL, LATER },
	{ "echo ours >> one", "! chattr +i one 2>/dev/null || chattr -i one", NULL, LATER },
	{ "echo ours >> one", "echo one > .t; mv .t one", NULL, LATER },
	{ "echo ours >> one", "echo theirs > one; echo one > one", NULL, LATER },
	{ "rm one", "rm one; echo one > one", NULL, LATER },
	{ "rm one; mkdir one", "touch one", NULL, LATER },
	{ "ln -sf two link", "rm link; ln -s one link", NULL, LATER },
	{ "echo ours >> one", "m=$(stat -c %y one); echo ONE > one; touch -d \"$m\" one", "one",
	  OURS_LAST },
	{ "echo ours >> one", "setfattr -n user.theirs -v 1 one", "one", OURS_LAST },
	{ "echo ours >> one", "chmod 600 one", "one", OURS_LAST },
	{ "echo ours >> one", "rm one", "one", OURS_LAST },
	{ "echo ours >> one", "rm one; mkdir one", "one", OURS_LAST },
	{ "rm one", "echo theirs >> one", "one", OURS_LAST },
	{ "rm one", "echo theirs > .t; mv .t one", "one", OURS_LAST },
	{ "chmod 600 one", "echo theirs >> one", "one", OURS_LAST },
	{ "rm link; ln -s two link", "rm link; ln -s d link", "link", OURS_LAST },
	{ "echo ours > new", "echo theirs > new", "new", OURS_LAST },
	{ "mkdir new; : > new/ours", "mkdir new; : > new/theirs", "new", LATER },
	{ "rm one; mkdir one", "echo theirs >> one", "one", OURS_LAST },
	/* directories that go */
	{ "rm -r d", "echo theirs >> d/x", "d", OURS_LAST },
	{ "rm -r d", "echo theirs > d/new", "d", OURS_LAST },
	{ "rm -r d", "echo theirs >> d/sub/z", "d", OURS_LAST },
	{ "rm -r d; mkdir d; : > d/ours", "echo theirs >> d/x", "d", OURS_LAST },
	{ "rm -r d; : > d", "echo theirs >> d/sub/z", "d", OURS_LAST },
	{ "rm -r d", "rm d/y", "d", OURS_LAST },
	/* directories that stay, and are another one now */
	{ "echo ours >> d/x", "mv d old; mv e d", "d", LATER },
	{ "echo ours >> d/x", "rm -r d", "d", LATER },
	{ "echo ours > d/new", "mv d old; mv e d", "d", LATER },
	{ "chmod 700 d", "chmod 711 d", "d", OURS_LAST },
	{ ": > d/new", "chmod 711 d; : > d/theirs", "d", OURS_LAST },
	{ ": > d/new", "setfattr -n user.theirs -v 1 d", "d", OURS_LAST },
	{ ": > d/new", "setfattr -n user.theirs -v 1 d; : > d/theirs", "d", OURS_LAST },
	{ "chmod 700 d", "setfattr -n user.theirs -v 1 d", "d", OURS_LAST },
	{ "setfattr -n user.ours -v 1 d", "setfattr -n user.theirs -v 1 d; : > d/theirs", "d",
	  OURS_LAST },
	/* too careful where his entry came before our record: he might have given d its attributes, too */
	{ "chmod 700 d", ": > d/theirs", NULL, LATER },
	{ "chmod 700 d", ": > d/theirs", "d", 1u << MEANWHILE_LAST },
	{ "setfattr -n user.ours -v 1 d", ": > d/theirs; rm d/y", NULL, LATER },
	/* other entries */
	{ "echo ours >> one", "echo theirs >> two", NULL, ANY_TIME },
	{ "echo ours >> one", "rm two; : > three; mkdir f", NULL, ANY_TIME },
	{ "echo ours >> d/x", "echo theirs >> d/y", NULL, ANY_TIME },
	{ "echo ours >> d/x", "rm d/y; : > d/theirs", NULL, ANY_TIME },
	{ "echo ours > d/new", "echo theirs > d/other", NULL, ANY_TIME },
	{ "rm -r d/sub", "echo theirs >> d/x", NULL, ANY_TIME },
	{ "cat one two d/x > /dev/null; echo ours > mine", "echo theirs >> one; rm -r d", NULL,
	  ANY_TIME },
	/* renamed or linked to a name that nobody else meant */
	{ "mv d/x d/moved", ": > d/theirs", NULL, ANY_TIME },
	{ "mv one d/moved", "rm d/y; : > d/theirs", NULL, ANY_TIME },
	{ "mv d/sub/z d/moved; rm -r d/sub", ": > d/theirs", NULL, ANY_TIME },
	{ "ln one d/more", ": > d/theirs", NULL, ANY_TIME },
	{ "echo ours >> d/x; mv two d/moved", "rm d/x", "d/x", OURS_LAST },
	{ "mv two d/moved; echo ours >> d/x", "rm d/x; : > d/theirs", "d/x", OURS_LAST },
	/* the same change on both sides */
	{ "rm one", "rm one", NULL, OURS_LAST },
	{ "echo same > new", "echo same > new", NULL, OURS_LAST },
	{ "echo same > one", "echo same > one", NULL, OURS_LAST },
	{ "rm -r d", "rm -r d", NULL, LATER },
	{ "mkdir new", "mkdir new", NULL, LATER },
};

static void put_tree(struct fix *f, const char *root)
{
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_dir(fix_path(f, "%s/d/sub", root), 0755);
	put_dir(fix_path(f, "%s/e", root), 0755);
	put_text(fix_path(f, "%s/one", root), "one\n");
	put_text(fix_path(f, "%s/two", root), "two\n");
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	put_text(fix_path(f, "%s/d/y", root), "y\n");
	put_text(fix_path(f, "%s/d/sub/z", root), "z\n");
	put_text(fix_path(f, "%s/e/x", root), "another x\n");
	put_link(fix_path(f, "%s/link", root), "one");
	sleep_ms(5);
}

static void play(struct fix *f, struct atoll_plan *p, const char *root, const struct row *row,
                 enum when when)
{
	switch (when) {
	case BEFORE_EXEC:
		run_plain(root, row->theirs);
		run_ok(f, p, root, row->ours);
		break;
	case MEANWHILE_FIRST:
		run_meanwhile(f, p, root, fix_path(f, MEANWHILE "%s", row->ours), row->theirs);
		break;
	case MEANWHILE_LAST:
		run_meanwhile(f, p, root, fix_path(f, "%s; " MEANWHILE, row->ours), row->theirs);
		break;
	case BETWEEN:
		run_ok(f, p, root, row->ours);
		run_plain(root, row->theirs);
		run_ok(f, p, root, ": > unrelated");
		break;
	case AFTER:
		run_ok(f, p, root, row->ours);
		run_plain(root, row->theirs);
		break;
	}
}

static void check(struct fix *f, const struct row *row, enum when when, const char *name)
{
	static const char *const names[] = { "before", "meanwhile, first", "meanwhile, last",
		                             "between", "after" };
	const char *root = fix_dir(f, name);
	struct atoll_plan *p;
	char *theirs;
	int r;

	put_tree(f, root);
	p = plan_overlay(f, root);
	play(f, p, root, row, when);
	theirs = man_take(root);
	r = atoll_plan_commit(p, 0, f->res);
	expect_msg(r == (row->conflict ? -ATOLL_E_CONFLICT : 0), "'%s' against '%s' (%s): %s %s",
	           row->ours, row->theirs, names[when], atoll_code_name(r),
	           atoll_result_message(f->res));
	if (row->conflict) {
		expect_msg(fix_notes(f, ATOLL_NOTE_CONFLICT) > 0, "no path is named: '%s'",
		           row->ours);
		expect_man(root, theirs);
	} else if (r == 0) {
		expect_rollback(f, p);
		expect_man(root, theirs);
	}
	expect_stop(f, p);
	free(theirs);
	remove_entry(root);
}

static void play_all(struct fix *f, enum when when)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].when & (1u << when))
			check(f, &rows[i], when, fix_path(f, "w%d-%zu", (int)when, i));
}

static void ovl_base_changed_before_the_command(void **state)
{
	play_all(*state, BEFORE_EXEC);
}

static void ovl_base_changed_while_a_command_runs_before_it_writes(void **state)
{
	play_all(*state, MEANWHILE_FIRST);
}

static void ovl_base_changed_while_a_command_runs_after_it_wrote(void **state)
{
	play_all(*state, MEANWHILE_LAST);
}

static void ovl_base_changed_between_two_commands(void **state)
{
	play_all(*state, BETWEEN);
}

static void ovl_base_changed_before_the_commit(void **state)
{
	play_all(*state, AFTER);
}

/* A file that a command only opened for writing is in the upper, unchanged: whoever changes it
 * below later is in nobody's way, and his version stays. */
static void ovl_base_opened_and_not_changed_is_never_overwritten(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;

	put_tree(f, root);
	p = plan_overlay(f, root);
	/* Opened for writing it was copied up, and what it was copied from is not on record: a
	 * conflict too many, and nobody's version is lost (docs/caveats.md). */
	run_ok(f, p, root, ": >> one; echo ours > mine");
	run_plain(root, "echo theirs > one");
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect_text(fix_path(f, "%s/one", root), "theirs\n");
	expect(!exists(fix_path(f, "%s/mine", root)));
}

/* ---- clock steps ---- */

/* T0 as it would be had the clock been SECONDS ahead when the workspace was made. */
static void step_clock_back(struct fix *f, struct atoll_plan *p, const char *root, long seconds,
                            bool offset_only)
{
	const char *t = fix_path(f, "%s/t1", fix_area(f, p, root));
	char *text = get_text(t), boot[64];
	long long t0 = 0, offset = 0;
	int multigrain = 0;

	expect(text != NULL);
	expect(sscanf(text, "%lld %d %lld %63s", &t0, &multigrain, &offset, boot) == 4);
	free(text);
	if (!offset_only)
		t0 += seconds * 1000000000LL;
	offset += seconds * 1000000000LL;
	put_text(t, fix_path(f, "%lld %d %lld %s\n", t0, multigrain, offset, boot));
}

/* Nothing that T0 alone would have to judge passes. */
static void ovl_base_clock_went_back_before_the_record(void **state)
{
	struct fix *f = *state;

	for (int offset_only = 0; offset_only < 2; offset_only++) {
		const char *root = fix_dir(f, offset_only ? "offset" : "stamp");
		struct atoll_plan *p;
		char *before;

		put_tree(f, root);
		before = man_take(root);
		p = plan_overlay(f, root);
		step_clock_back(f, p, root, 3600, offset_only != 0);
		run_ok(f, p, root, "echo ours >> one");
		expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
		expect(has_note(f, ATOLL_NOTE_CONFLICT, "one"));
		expect_man(root, before);
		/* A new beginning gets a new stamp. */
		expect_ok(f, atoll_plan_reset(p, f->res));
		run_ok(f, p, root, "echo ours >> one");
		expect_commit(f, p);
		free(before);
	}
}

/* What is recorded is judged by its record, whatever the clock says. */
static void ovl_base_clock_went_back_after_the_record(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;

	put_tree(f, root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "echo ours >> one");
	step_clock_back(f, p, root, 3600, true);
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/one", root), "one\nours\n");
}

static void ovl_base_damaged_stamp_is_an_error(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *t;
	struct atoll_plan *p;
	char *before;

	put_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "echo ours >> one");
	t = fix_path(f, "%s/t1", fix_area(f, p, root));
	put_text(t, "what?\n");
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_DAMAGED);
	expect_man(root, before);
	free(before);
}

/* Neither it nor the records of a command are waited for, and a power cut may leave them empty, full of
 * zeros or away: then nobody knows what the view was made of. */
static void ovl_base_torn_stamp_makes_all_suspect(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *t, *records;
	struct atoll_plan *p;
	char *before;

	put_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "echo ours >> one");
	t = fix_path(f, "%s/t1", fix_area(f, p, root));
	records = fix_path(f, "%s/records1", fix_area(f, p, root));
	for (int i = 0; i < 3; i++) {
		remove_entry(records);
		if (i == 2)
			remove_entry(t);
		else
			expect_eq(truncate(t, 0), 0);
		if (i == 1)
			expect_eq(truncate(t, 20), 0);
		expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_man(root, before);
	}
	free(before);
}

/* A mode is written together with all other attributes, and so somebody's are in the way of it. */
static void ovl_base_attributes_of_others_are_not_taken_off(void **state)
{
	static const char *const strategies[] = { "overlay", "copy" };
	struct fix *f = *state;

	for (int i = 0; i < 2; i++) {
		const char *root = fix_dir(f, strategies[i]);
		struct atoll_plan *p = fix_plan(f, NULL);
		char *theirs;

		put_tree(f, root);
		fix_add(f, p, root, strategies[i]);
		run_ok(f, p, root, "chmod 700 d");
		run_plain(root, "setfattr -n user.theirs -v 1 d");
		theirs = man_take(root);
		expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_man(root, theirs);
		run_plain(root, "setfattr -x user.theirs d; : > d/theirs");
		expect_commit(f, p);
		expect_stop(f, p);
		free(theirs);
	}
}

/* ---- two plans on one base ---- */

static void ovl_base_two_plans_same_entry(void **state)
{
	static const char *const strategies[] = { "overlay", "copy" };
	struct fix *f = *state;

	for (int i = 0; i < 4; i++) {
		const char *root = fix_dir(f, fix_path(f, "root%d", i));
		struct atoll_plan *a = fix_plan(f, NULL), *b = fix_plan(f, NULL);

		put_tree(f, root);
		fix_add(f, a, root, strategies[i & 1]);
		fix_add(f, b, root, strategies[i >> 1]);
		run_ok(f, a, root, "echo a >> one; mkdir n; : > n/f");
		run_ok(f, b, root, "echo b >> one; echo b > two");
		expect_commit(f, a);
		expect_code(f, atoll_plan_commit(b, 0, f->res), -ATOLL_E_CONFLICT);
		expect_text(fix_path(f, "%s/one", root), "one\na\n");
		expect_text(fix_path(f, "%s/two", root), "two\n");
		expect_ok(f, atoll_plan_reset(b, f->res));
		run_ok(f, b, root, "echo b >> one; echo b > two");
		expect_commit(f, b);
		expect_text(fix_path(f, "%s/one", root), "one\na\nb\n");
		expect_stop(f, a);
		expect_stop(f, b);
	}
}

/* What another plan replaced and put back is still what we wrote. */
static void ovl_base_undo_after_another_plan_came_and_went(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *a, *b;
	char *before;

	put_tree(f, root);
	before = man_take(root);
	a = plan_overlay(f, root);
	run_ok(f, a, root, "echo a >> one");
	expect_commit(f, a);
	b = plan_overlay(f, root);
	run_ok(f, b, root, "echo b >> one");
	expect_commit(f, b);
	expect_rollback(f, b);
	expect_text(fix_path(f, "%s/one", root), "one\na\n");
	/* The very inode went away and came back, which shows on its ctime; but it holds the same. */
	expect_rollback(f, a);
	expect_man(root, before);
	free(before);
}

static void ovl_base_two_plans_other_entries(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *a, *b;
	char *before;

	put_tree(f, root);
	before = man_take(root);
	a = plan_overlay(f, root);
	b = plan_overlay(f, root);
	run_ok(f, a, root, "echo a >> one; echo a > d/a; rm -r e");
	run_ok(f, b, root, "echo b >> two; echo b > d/b; chmod 600 d/sub/z");
	expect_commit(f, a);
	expect_commit(f, b);
	expect_text(fix_path(f, "%s/one", root), "one\na\n");
	expect_text(fix_path(f, "%s/two", root), "two\nb\n");
	expect(exists(fix_path(f, "%s/d/a", root)) && exists(fix_path(f, "%s/d/b", root)));
	expect_rollback(f, b);
	expect_rollback(f, a);
	expect_man(root, before);
	free(before);
}

/* Made after an edit and before its commit: the commit is late for it all the same. */
static void ovl_base_plan_made_between_edit_and_commit(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *a, *b;

	put_tree(f, root);
	a = plan_overlay(f, root);
	run_ok(f, a, root, "echo a >> one; rm -r d; mkdir d; echo a > d/x");
	b = plan_overlay(f, root);
	run_ok(f, b, root, "echo b >> one");
	expect_commit(f, a);
	expect_code(f, atoll_plan_commit(b, 0, f->res), -ATOLL_E_CONFLICT);
	expect_ok(f, atoll_plan_reset(b, f->res));
	run_ok(f, b, root, "[ \"$(cat d/x)\" = a ]; echo b >> d/x");
	expect_commit(f, b);
	expect_text(fix_path(f, "%s/d/x", root), "a\nb\n");
}

/* A second batch neither reverts nor collides with the first. */
static void ovl_base_own_batches_do_not_collide(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *before;

	put_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	for (int i = 0; i < 4; i++) {
		run_ok(f, p, root,
		       fix_path(f, "echo %d >> one; rm -r d; mkdir d; echo %d > d/n; ln two l%d", i,
		                i, i));
		expect_commit(f, p);
	}
	expect_text(fix_path(f, "%s/one", root), "one\n0\n1\n2\n3\n");
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

/* The first batch installs a file of which the used-up upper has another name: that this goes is
 * nobody's edit. */
static void ovl_base_new_link_is_edited_in_the_next_batch(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;

	put_tree(f, root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "ln two l");
	expect_commit(f, p);
	run_ok(f, p, root, "echo more >> l");
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/l", root), "two\nmore\n");
	expect_text(fix_path(f, "%s/two", root), "two\n");
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(ovl_base_changed_before_the_command),
		mtest(ovl_base_changed_while_a_command_runs_before_it_writes),
		mtest(ovl_base_changed_while_a_command_runs_after_it_wrote),
		mtest(ovl_base_changed_between_two_commands),
		mtest(ovl_base_changed_before_the_commit),
		mtest(ovl_base_opened_and_not_changed_is_never_overwritten),
		mtest(ovl_base_clock_went_back_before_the_record),
		mtest(ovl_base_clock_went_back_after_the_record),
		mtest(ovl_base_damaged_stamp_is_an_error),
		mtest(ovl_base_torn_stamp_makes_all_suspect),
		mtest(ovl_base_attributes_of_others_are_not_taken_off),
		mtest(ovl_base_two_plans_same_entry),
		mtest(ovl_base_undo_after_another_plan_came_and_went),
		mtest(ovl_base_two_plans_other_entries),
		mtest(ovl_base_plan_made_between_edit_and_commit),
		mtest(ovl_base_own_batches_do_not_collide),
		mtest(ovl_base_new_link_is_edited_in_the_next_batch),
	};

	become_user(argc, argv);
	return atest_main(argc, argv, tests, children);
}
