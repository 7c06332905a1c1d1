/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fidelity (rules BKP): what a commit does not touch stays as it was, and an undo gives back the
 * very entries, whatever they are. Run as root and as an ordinary user.
 */
#include "lib/more.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define YEAR_2001 INT64_C(1000000000)

/* ROOT with something to edit; the rest is the test's. */
static const char *root_with_edit(struct fix *f, const char *dir)
{
	const char *root = fix_path(f, "%s/root", dir);

	put_dir(root, 0755);
	put_dir(fix_path(f, "%s/changing", root), 0755);
	put_text(fix_path(f, "%s/changing/file", root), "old\n");
	return root;
}

/* Commits an edit of ROOT/changing/file and takes it back; all else must not notice. */
static void commit_elsewhere_and_undo(struct fix *f, const char *root)
{
	char *before = man_take(root);
	char *rest = man_without(before, "changing");
	const char *file = fix_path(f, "%s/changing/file", root);
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);
	char *after, *rest_after;

	put_text(fix_path(f, "%s/changing/file", work), "new\n");
	expect_commit(f, p);
	expect_eq(fix_outcome(f, root), ATOLL_OUTCOME_COMMITTED);
	expect_text(file, "new\n");
	after = man_take(root);
	rest_after = man_without(after, "changing");
	man_assert_equal(rest_after, rest);
	expect_rollback(f, p);
	expect_man(root, before);
	expect_stop(f, p);
	expect_man(root, before);
	free(before);
	free(rest);
	free(after);
	free(rest_after);
}

static void bkp_01_links_stay_links(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	char target[64];

	put_dir(fix_path(f, "%s/d", root), 0755);
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	put_link(fix_path(f, "%s/to-file", root), "d/x");
	put_link(fix_path(f, "%s/to-dir", root), "d");
	put_link(fix_path(f, "%s/d/up", root), "../changing/file");
	put_link(fix_path(f, "%s/absolute", root), "/etc/hostname");
	put_link(fix_path(f, "%s/outside", root), "../../elsewhere");
	put_link(fix_path(f, "%s/dangling", root), "no/such/thing");
	put_link(fix_path(f, "%s/loop-a", root), "loop-b");
	put_link(fix_path(f, "%s/loop-b", root), "loop-a");
	put_link(fix_path(f, "%s/self", root), ".");
	set_mtime(fix_path(f, "%s/dangling", root), YEAR_2001, 123456789);
	commit_elsewhere_and_undo(f, root);
	expect_eq(readlink(fix_path(f, "%s/to-dir", root), target, sizeof(target)), 1);
}

static void bkp_01_links_of_the_workspace_are_links(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p;
	char *before, *view;
	const char *work;

	put_link(fix_path(f, "%s/dangling", root), "gone");
	put_link(fix_path(f, "%s/to-dir", root), "changing");
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	man_check_now(work, before, false, __FILE__, __LINE__);
	put_link(fix_path(f, "%s/changing/new-link", work), "file");
	put_link(fix_path(f, "%s/changing/new-dangling", work), "nothing");
	put_link(fix_path(f, "%s/changing/new-to-dir", work), "../changing");
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(view);
}

static void bkp_02_modes_of_all_entries(void **state)
{
	static const mode_t files[] = { 0600, 0755, 0444, 0400, 0000, 0666, 0640 };
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *file = fix_path(f, "%s/f%04o", root, files[i]);

		put_text(file, "mode\n");
		set_mode(file, files[i]);
	}
	put_dir(fix_path(f, "%s/d0750", root), 0750);
	put_dir(fix_path(f, "%s/d0700", root), 0700);
	put_dir(fix_path(f, "%s/d1777", root), 0755);
	set_mode(fix_path(f, "%s/d1777", root), 01777);
	put_text(fix_path(f, "%s/d0700/x", root), "x\n");
	set_mode(root, 0711);
	commit_elsewhere_and_undo(f, root);
	expect_eq(mode_of(root), 0711);
}

static void bkp_02_mode_of_a_changed_root(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p;
	char *before;

	set_mode(root, 0711);
	before = man_take(root);
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/beside", fix_work(f, p, NULL)), "new\n");
	expect_eq(mode_of(fix_work(f, p, NULL)), 0711);
	expect_commit(f, p);
	expect_eq(mode_of(root), 0711);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

static void bkp_03_times_of_files(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);

	for (int i = 0; i < 20; i++) {
		const char *file = fix_path(f, "%s/f%02d", root, i);

		put_text(file, "times\n");
		set_mtime(file, YEAR_2001 + i * 86400, 100000001 + i * 31);
	}
	put_link(fix_path(f, "%s/link", root), "f00");
	set_mtime(fix_path(f, "%s/link", root), YEAR_2001 + 7, 7);
	set_mtime(fix_path(f, "%s/changing/file", root), YEAR_2001 + 5, 999999999);
	commit_elsewhere_and_undo(f, root);
}

/* What was edited gets the view's time, to the nanosecond, not that of the commit. */
static void bkp_03_times_of_committed_files(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);
	char *view;

	put_text(fix_path(f, "%s/changing/file", work), "new\n");
	set_mtime(fix_path(f, "%s/changing/file", work), YEAR_2001, 987654321);
	put_dir(fix_path(f, "%s/changing/d", work), 0755);
	put_text(fix_path(f, "%s/changing/d/x", work), "x\n");
	set_mtime(fix_path(f, "%s/changing/d/x", work), YEAR_2001 + 1, 13);
	set_mtime(fix_path(f, "%s/changing/d", work), YEAR_2001 + 2, 17);
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	free(view);
}

static void bkp_04_times_of_directories(void **state)
{
	static const char *const dirs[] = { "a/b/c", "a/b", "a", "changing", "" };
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);

	put_dir(fix_path(f, "%s/a", root), 0755);
	put_dir(fix_path(f, "%s/a/b", root), 0755);
	put_dir(fix_path(f, "%s/a/b/c", root), 0755);
	put_text(fix_path(f, "%s/a/b/c/x", root), "x\n");
	for (int i = 0; i < 5; i++)
		set_mtime(fix_path(f, "%s/%s", root, dirs[i]), YEAR_2001 + i * 3600, 500000003 + i);
	commit_elsewhere_and_undo(f, root);
}

/* Entries come and go on every level: undo gives each directory its own time back. */
static void bkp_04_times_of_changed_directories(void **state)
{
	static const char *const dirs[] = { "a/b/c", "a/b", "a", "changing", "" };
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p;
	const char *work;
	char *before, *view;

	put_dir(fix_path(f, "%s/a", root), 0755);
	put_dir(fix_path(f, "%s/a/b", root), 0755);
	put_dir(fix_path(f, "%s/a/b/c", root), 0755);
	put_text(fix_path(f, "%s/a/b/c/x", root), "x\n");
	for (int i = 0; i < 5; i++)
		set_mtime(fix_path(f, "%s/%s", root, dirs[i]), YEAR_2001 + i * 3600, 500000003 + i);
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	man_check_now(work, before, false, __FILE__, __LINE__);
	put_text(fix_path(f, "%s/new", work), "n\n");
	put_text(fix_path(f, "%s/a/new", work), "n\n");
	remove_entry(fix_path(f, "%s/a/b/c/x", work));
	put_dir(fix_path(f, "%s/a/b/d", work), 0755);
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(view);
}

/* A tree as its owner may have locked it. Unlocked again at the end, else nobody could remove it. */
static const char *const locked_dirs[] = { "closed", "read-only/inner", "read-only" };

static const char *locked_tree(struct fix *f, bool with_closed)
{
	const char *root = root_with_edit(f, f->dir);
	const char *ro = fix_path(f, "%s/read-only", root);

	put_dir(ro, 0755);
	put_dir(fix_path(f, "%s/inner", ro), 0755);
	put_text(fix_path(f, "%s/x", ro), "x\n");
	put_text(fix_path(f, "%s/inner/y", ro), "y\n");
	set_mode(fix_path(f, "%s/x", ro), 0444);
	put_text(fix_path(f, "%s/changing/locked", root), "locked\n");
	set_mode(fix_path(f, "%s/changing/locked", root), 0444);
	set_mode(fix_path(f, "%s/inner", ro), 0500);
	set_mode(ro, 0500);
	if (with_closed) {
		put_dir(fix_path(f, "%s/closed", root), 0755);
		put_text(fix_path(f, "%s/closed/z", root), "z\n");
		set_mode(fix_path(f, "%s/closed", root), 0000);
	}
	return root;
}

static void unlock_tree(struct fix *f, const char *root)
{
	for (size_t i = 3; i-- > 0;)
		if (exists(fix_path(f, "%s/%s", root, locked_dirs[i])))
			set_mode(fix_path(f, "%s/%s", root, locked_dirs[i]), 0755);
}

static void bkp_05_locked_directories_of_their_owner(void **state)
{
	struct fix *f = *state;
	const char *root = locked_tree(f, true);

	commit_elsewhere_and_undo(f, root);
	unlock_tree(f, root);
	expect_text(fix_path(f, "%s/closed/z", root), "z\n");
}

/* The agent opens what is locked, edits it and locks it again. */
static void bkp_05_edits_inside_locked_directories(void **state)
{
	struct fix *f = *state;
	const char *root = locked_tree(f, false);
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);
	char *before = man_take(root), *view;

	set_mode(fix_path(f, "%s/read-only", work), 0700);
	set_mode(fix_path(f, "%s/read-only/inner", work), 0700);
	put_text(fix_path(f, "%s/read-only/inner/y", work), "edited\n");
	put_text(fix_path(f, "%s/read-only/inner/new", work), "new\n");
	remove_entry(fix_path(f, "%s/read-only/x", work));
	remove_entry(fix_path(f, "%s/changing/locked", work));
	put_text(fix_path(f, "%s/changing/locked", work), "edited\n");
	set_mode(fix_path(f, "%s/changing/locked", work), 0444);
	set_mode(fix_path(f, "%s/read-only/inner", work), 0500);
	set_mode(fix_path(f, "%s/read-only", work), 0500);
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	unlock_tree(f, root);
	free(before);
	free(view);
}

/* A locked directory goes, another comes: both are moved whole, and back. */
static void bkp_05_locked_directories_come_and_go(void **state)
{
	struct fix *f = *state;
	const char *root = locked_tree(f, false);
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);
	char *before = man_take(root), *view;

	unlock_tree(f, work);
	remove_entry(fix_path(f, "%s/read-only", work));
	put_dir(fix_path(f, "%s/brought", work), 0755);
	put_text(fix_path(f, "%s/brought/x", work), "x\n");
	put_dir(fix_path(f, "%s/brought/inner", work), 0755);
	put_text(fix_path(f, "%s/brought/inner/y", work), "y\n");
	set_mode(fix_path(f, "%s/brought/inner", work), 0500);
	set_mode(fix_path(f, "%s/brought", work), 0500);
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	unlock_tree(f, root);
	free(before);
	free(view);
}

/* Nothing of a locked workspace is left when the plan is dropped, committed or not. */
static void bkp_05_locked_workspaces_can_be_removed(void **state)
{
	struct fix *f = *state;
	const char *root = locked_tree(f, true);
	struct atoll_plan *p = plan_over(f, root);
	const char *area = fix_area(f, p, root);
	const char *work = fix_work(f, p, NULL);
	char *before = man_take(root);

	put_dir(fix_path(f, "%s/changing/deep", work), 0755);
	put_dir(fix_path(f, "%s/changing/deep/er", work), 0755);
	put_text(fix_path(f, "%s/changing/deep/er/x", work), "x\n");
	set_mode(fix_path(f, "%s/changing/deep/er", work), 0000);
	set_mode(fix_path(f, "%s/changing/deep", work), 0500);
	expect(exists(area));
	expect_ok(f, atoll_plan_reset(p, f->res));
	expect(strcmp(work, fix_work(f, p, NULL)) != 0);
	expect(!exists(work));
	expect_stop(f, p);
	expect(!exists(area));
	expect_man(root, before);
	unlock_tree(f, root);
	free(before);
}

static void put_specials(struct fix *f, const char *root)
{
	put_fifo(fix_path(f, "%s/fifo", root));
	put_socket(fix_path(f, "%s/socket", root));
	if (am_root())
		put_device(fix_path(f, "%s/null", root));
}

static void bkp_06_special_files_are_never_opened(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	int64_t begun;

	put_specials(f, root);
	begun = now_ms();
	commit_elsewhere_and_undo(f, root);
	expect_msg(now_ms() - begun < 60000, "took %lld ms", (long long)(now_ms() - begun));
}

/* They go and come back as themselves, too. */
static void bkp_06_special_files_deleted_and_restored(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p;
	char *before;

	put_specials(f, root);
	before = man_take(root);
	p = plan_over(f, root);
	remove_entry(fix_path(f, "%s/fifo", fix_work(f, p, NULL)));
	remove_entry(fix_path(f, "%s/socket", fix_work(f, p, NULL)));
	expect_commit(f, p);
	expect(!exists(fix_path(f, "%s/fifo", root)));
	expect(!exists(fix_path(f, "%s/socket", root)));
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

static void bkp_06_new_special_files_are_named_and_refused(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	char *inodes = man_inodes(root), *view;
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);

	put_dir(fix_path(f, "%s/changing/d", work), 0755);
	put_fifo(fix_path(f, "%s/changing/d/fifo", work));
	put_fifo(fix_path(f, "%s/fifo", work));
	view = man_take(work);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_POLICY);
	expect(has_note(f, ATOLL_NOTE_SPECIAL, "fifo"));
	expect(has_note(f, ATOLL_NOTE_SPECIAL, "changing/d/fifo"));
	expect_inodes(root, inodes);
	expect_man(work, view);
	expect_eq(fix_state(f, p, NULL), ATOLL_SANDBOX_ACTIVE);
	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_SPECIAL, f->res));
	expect_man(root, view);
	free(inodes);
	free(view);
}

static void bkp_07_extended_attributes_and_acls(void **state)
{
	static const char *const entries[] = { "f", "d", "d/x", "changing", "changing/file", "" };
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);

	put_text(fix_path(f, "%s/f", root), "f\n");
	put_dir(fix_path(f, "%s/d", root), 0750);
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		const char *path = fix_path(f, "%s/%s", root, entries[i]);

		put_xattr(path, "user.x", entries[i]);
		put_xattr(path, "user.second", "another");
		put_acl_user_read(path, 65534);
	}
	commit_elsewhere_and_undo(f, root);
}

/* Those of what the workspace made arrive with it. */
static void bkp_07_attributes_of_committed_entries(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	char *before, *view;
	struct atoll_plan *p;
	const char *work;

	put_xattr(fix_path(f, "%s/changing/file", root), "user.x", "old");
	put_acl_user_read(fix_path(f, "%s/changing", root), 65534);
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	expect_man(work, before);
	put_xattr(fix_path(f, "%s/changing/file", work), "user.x", "new");
	put_xattr(fix_path(f, "%s/changing", work), "user.dir", "new");
	put_dir(fix_path(f, "%s/d", work), 0755);
	put_acl_user_read(fix_path(f, "%s/d", work), 65534);
	put_text(fix_path(f, "%s/d/x", work), "x\n");
	put_acl_user_read(fix_path(f, "%s/d/x", work), 1000);
	view = man_take(work);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(view);
}

static void bkp_08_owners_survive(void **state)
{
	struct fix *f = *state;
	const char *root;
	struct atoll_plan *p;
	char *before;

	need_root();
	root = root_with_edit(f, f->dir);
	put_text(fix_path(f, "%s/theirs", root), "1000\n");
	put_dir(fix_path(f, "%s/nobody", root), 0755);
	put_text(fix_path(f, "%s/nobody/x", root), "x\n");
	put_link(fix_path(f, "%s/link", root), "theirs");
	expect(chown(fix_path(f, "%s/theirs", root), 1000, 1001) == 0);
	expect(chown(fix_path(f, "%s/nobody", root), 65534, 65534) == 0);
	expect(chown(fix_path(f, "%s/nobody/x", root), 65534, 1001) == 0);
	expect(lchown(fix_path(f, "%s/link", root), 1000, 1001) == 0);
	expect(chown(fix_path(f, "%s/changing/file", root), 1000, 65534) == 0);
	commit_elsewhere_and_undo(f, root);

	/* And those of the entries that change. */
	before = man_take(root);
	p = plan_over(f, root);
	expect_man(fix_work(f, p, NULL), before);
	append_text(fix_path(f, "%s/theirs", fix_work(f, p, NULL)), "more\n");
	remove_entry(fix_path(f, "%s/nobody", fix_work(f, p, NULL)));
	expect_commit(f, p);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

/* Whatever an old workspace left behind, the new one is the resource, or there is none. */
static void reset_gives_a_fresh_workspace(struct fix *f, struct atoll_plan *p, const char *root,
                                          const char *before)
{
	int r = atoll_plan_rollback(p, 0, f->res);
	const char *work;

	expect_man(root, before);
	if (r < 0) {
		expect_eq(atoll_result_code(f->res), r);
		return;
	}
	work = fix_work(f, p, NULL);
	expect_man(work, before);
	expect_commit(f, p);
	expect_eq(fix_outcome(f, root), ATOLL_OUTCOME_UNCHANGED);
	expect_man(root, before);
}

static void bkp_09_reset_past_an_immutable_leftover(void **state)
{
	struct fix *f = *state;
	const char *root, *stuck;
	struct atoll_plan *p;
	char *before;

	need_root();
	root = root_with_edit(f, f->dir);
	before = man_take(root);
	p = plan_over(f, root);
	put_dir(fix_path(f, "%s/d", fix_work(f, p, NULL)), 0755);
	stuck = fix_path(f, "%s/d/stuck", fix_work(f, p, NULL));
	put_text(stuck, "leftover\n");
	set_immutable(stuck, true);
	reset_gives_a_fresh_workspace(f, p, root, before);
	expect(exists(stuck));
	set_immutable(stuck, false);
	reset_gives_a_fresh_workspace(f, p, root, before);
	free(before);
}

static void bkp_09_reset_past_a_locked_leftover(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, f->dir);
	struct atoll_plan *p;
	char *before = man_take(root);

	p = plan_over(f, root);
	put_dir(fix_path(f, "%s/d", fix_work(f, p, NULL)), 0755);
	put_text(fix_path(f, "%s/d/stuck", fix_work(f, p, NULL)), "leftover\n");
	set_mode(fix_path(f, "%s/d", fix_work(f, p, NULL)), 0000);
	put_text(fix_path(f, "%s/changing/file", fix_work(f, p, NULL)), "dropped\n");
	reset_gives_a_fresh_workspace(f, p, root, before);
	free(before);
}

/* ---- where staging lies ---- */

static dev_t wanted_dev;
static size_t elsewhere, looked_at;

static int look_at_dev(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)type;
	(void)ftw;
	looked_at++;
	elsewhere += st->st_dev != wanted_dev;
	return 0;
}

/* Runs when everybody has prepared and nothing is decided. */
static int look_at_staging(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	(void)nftw(user, look_at_dev, 16, FTW_PHYS);
	return 0;
}

static void commit_with_tmpdir(struct fix *f, const char *root, const char *tmpdir)
{
	const char *gate_root = fix_path(f, "%s/gate", f->dir);
	char *before = man_take(root);
	struct atoll_plan *p = fix_plan(f, NULL);
	struct stat st;

	expect(setenv("TMPDIR", tmpdir, 1) == 0);
	put_dir(gate_root, 0755);
	put_text(fix_path(f, "%s/value", gate_root), "1\n");
	fix_add(f, p, root, "copy");
	fix_add(f, p, gate_root, "gate");
	put_text(fix_path(f, "%s/changing/file", fix_work(f, p, root)), "new\n");
	put_text(fix_path(f, "%s/value", fix_work(f, p, gate_root)), "2\n");
	expect(stat(root, &st) == 0);
	wanted_dev = st.st_dev;
	elsewhere = looked_at = 0;
	phase_hook(gate_root, PHASE_CHECK, look_at_staging,
	           fix_path(f, "%s", fix_area(f, p, root)));
	expect_commit(f, p);
	phase_clear();
	expect(looked_at > 2);
	expect_eq(elsewhere, 0);
	expect_text(fix_path(f, "%s/changing/file", root), "new\n");
	expect_rollback(f, p);
	expect_man(root, before);
	expect_stop(f, p);
	remove_entry(gate_root);
	expect(unsetenv("TMPDIR") == 0);
	free(before);
}

static void bkp_10_staging_lies_beside_the_original(void **state)
{
	struct fix *f = *state;
	const char *root = root_with_edit(f, other_mount(f));
	const char *tmp = fix_dir(f, "tmp");

	commit_with_tmpdir(f, root, tmp);
	set_mode(tmp, 0555);
	commit_with_tmpdir(f, root, tmp);
	commit_with_tmpdir(f, root, "/nonexistent");
	set_mode(tmp, 0755);
	expect_eq(count_entries(tmp), 0);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(bkp_01_links_stay_links),
		mtest(bkp_01_links_of_the_workspace_are_links),
		mtest(bkp_02_modes_of_all_entries),
		mtest(bkp_02_mode_of_a_changed_root),
		mtest(bkp_03_times_of_files),
		mtest(bkp_03_times_of_committed_files),
		mtest(bkp_04_times_of_directories),
		mtest(bkp_04_times_of_changed_directories),
		mtest(bkp_05_locked_directories_of_their_owner),
		mtest(bkp_05_edits_inside_locked_directories),
		mtest(bkp_05_locked_directories_come_and_go),
		mtest(bkp_05_locked_workspaces_can_be_removed),
		mtest(bkp_06_special_files_are_never_opened),
		mtest(bkp_06_special_files_deleted_and_restored),
		mtest(bkp_06_new_special_files_are_named_and_refused),
		mtest(bkp_07_extended_attributes_and_acls),
		mtest(bkp_07_attributes_of_committed_entries),
		mtest(bkp_08_owners_survive),
		mtest(bkp_09_reset_past_an_immutable_leftover),
		mtest(bkp_09_reset_past_a_locked_leftover),
		mtest(bkp_10_staging_lies_beside_the_original),
	};

	return atest_main(argc, argv, tests, children);
}
