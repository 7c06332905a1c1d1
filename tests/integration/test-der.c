/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the other rules leave open (rules DER), for directories: crashes in the middle of a batch,
 * edits by others, owners that die, waits that end.
 */
#include "lib/more.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/file", root), "old\n");
	put_text(fix_path(f, "%s/gone", root), "gone\n");
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	return root;
}

static void edit(struct fix *f, const char *work)
{
	put_text(fix_path(f, "%s/file", work), "new\n");
	remove_entry(fix_path(f, "%s/gone", work));
	put_dir(fix_path(f, "%s/added", work), 0750);
	put_text(fix_path(f, "%s/added/y", work), "y\n");
	set_mode(fix_path(f, "%s/d", work), 0700);
}

/* ---- DER-01 ---- */

struct two {
	struct fix *f;
	struct atoll_plan *p;
	const char *root[2];
	char *old_man[2], *new_man[2];
};

static void two_init(struct two *t, struct fix *f)
{
	t->f = f;
	t->root[0] = put_root(f, "one");
	t->root[1] = put_root(f, "two");
	t->p = fix_plan(f, "p");
	for (int i = 0; i < 2; i++) {
		fix_add(f, t->p, t->root[i], "copy");
		t->old_man[i] = man_take(t->root[i]);
		t->new_man[i] = NULL;
	}
}

static void two_edit(struct two *t)
{
	for (int i = 0; i < 2; i++) {
		const char *work = fix_work(t->f, t->p, t->root[i]);

		edit(t->f, work);
		free(t->new_man[i]);
		t->new_man[i] = man_take(work);
	}
}

static void two_done(struct two *t)
{
	for (int i = 0; i < 2; i++) {
		free(t->old_man[i]);
		free(t->new_man[i]);
	}
}

/* Both old or both new; true: new. */
static bool two_settled(struct two *t, const char *point)
{
	bool is_old[2], is_new[2];

	for (int i = 0; i < 2; i++) {
		char *now = man_take(t->root[i]);

		is_old[i] = strcmp(now, t->old_man[i]) == 0;
		is_new[i] = strcmp(now, t->new_man[i]) == 0;
		free(now);
	}
	expect_msg((is_old[0] && is_old[1]) || (is_new[0] && is_new[1]),
	           "%s: one is %s, the other %s", point,
	           is_old[0]   ? "old"
	           : is_new[0] ? "new"
	                       : "neither",
	           is_old[1]   ? "old"
	           : is_new[1] ? "new"
	                       : "neither");
	return is_new[0];
}

/* Opens the store and carries ARG out on the plan "p". */
static int child_does(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;
	int r;

	fix_attach(&f, dir);
	if (strcmp(arg, "recover") == 0) {
		r = atoll_recover(f.a, NULL, false, f.res);
	} else {
		expect_ok(&f, atoll_plan_find(f.a, "p", &p, f.res));
		r = strcmp(arg, "commit") == 0 ? atoll_plan_commit(p, 0, f.res)
		                               : atoll_plan_rollback(p, 0, f.res);
		atoll_plan_free(p);
	}
	fix_detach(&f);
	return r != 0;
}

static int crash_at(struct fix *f, const char *verb, const char *point)
{
	const char *const env[] = { fix_path(f, "ATOLL_CRASHPOINT=%s", point), NULL };

	return child_run(f, "does", verb, env);
}

static void expect_recovery_is_final(struct two *t)
{
	char *one, *two;

	expect_eq(child_run(t->f, "does", "recover", NULL), 0);
	one = man_inodes(t->root[0]);
	two = man_inodes(t->root[1]);
	expect_eq(child_run(t->f, "does", "recover", NULL), 0);
	expect_inodes(t->root[0], one);
	expect_inodes(t->root[1], two);
	free(one);
	free(two);
}

/* Whatever was found, the plan goes on: it can be committed, undone, and is old again. */
static void two_back_to_old(struct two *t, bool is_new, const char *point)
{
	if (!is_new) {
		for (int i = 0; i < 2; i++)
			expect_man(fix_work(t->f, t->p, t->root[i]), t->new_man[i]);
		expect_commit(t->f, t->p);
		expect_msg(two_settled(t, point), "%s: the work is lost", point);
	}
	expect_rollback(t->f, t->p);
	for (int i = 0; i < 2; i++)
		expect_man(t->root[i], t->old_man[i]);
}

static const char *const commit_points[] = {
	"txn.after-preparing",   "txn.prepare.participant:1",
	"dir.prepare.staged:2",  "dir.prepare.done:2",
	"txn.prepared",          "txn.after-barrier-1",
	"txn.after-decision",    "dir.apply.staged:1",
	"dir.apply.op:1",        "dir.apply.op:2",
	"dir.apply.op:3",        "dir.apply.attrs:1",
	"txn.apply.participant", "dir.apply.op:5",
	"dir.apply.attrs:2",     "txn.after-apply",
	"txn.after-barrier-3",   "txn.after-committed",
};

static void der_01_killed_in_a_commit(void **state)
{
	struct two t;

	two_init(&t, *state);
	for (size_t i = 0; i < sizeof(commit_points) / sizeof(commit_points[0]); i++) {
		const char *point = commit_points[i];

		two_edit(&t);
		expect_msg(crash_at(t.f, "commit", point) == 128 + SIGKILL, "%s was not reached",
		           point);
		expect_recovery_is_final(&t);
		two_back_to_old(&t, two_settled(&t, point), point);
	}
	two_done(&t);
}

/* A dead batch is settled by the next command that meets it, without being asked to. */
static void der_01_settled_by_the_next_command(void **state)
{
	struct two t;

	two_init(&t, *state);
	two_edit(&t);
	expect_eq(crash_at(t.f, "commit", "dir.apply.op:2"), 128 + SIGKILL);
	{
		/* Another plan on one of the two: first things first. */
		struct atoll_plan *q = plan_over(t.f, t.root[1]);

		expect(two_settled(&t, "another plan"));
		expect_man(fix_work(t.f, q, NULL), t.new_man[1]);
	}
	expect_rollback(t.f, t.p);
	for (int i = 0; i < 2; i++)
		expect_man(t.root[i], t.old_man[i]);
	two_done(&t);
}

static void der_01_killed_in_an_undo(void **state)
{
	static const char *const points[] = {
		"txn.undo.prepared",      "txn.undo.after-decision", "dir.undo.op:1",
		"dir.undo.op:2",          "dir.undo.op:3",           "dir.undo.attrs:1",
		"txn.undo.participant",   "dir.undo.op:5",           "txn.undo.undone",
		"txn.undo.after-barrier", "txn.undo.recorded",       "txn.undo.released",
	};
	struct two t;

	two_init(&t, *state);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		two_edit(&t);
		expect_commit(t.f, t.p);
		expect(two_settled(&t, points[i]));
		expect_msg(crash_at(t.f, "rollback", points[i]) == 128 + SIGKILL,
		           "%s was not reached", points[i]);
		expect_recovery_is_final(&t);
		(void)two_settled(&t, points[i]);
		expect_rollback(t.f, t.p);
		for (int k = 0; k < 2; k++)
			expect_man(t.root[k], t.old_man[k]);
	}
	two_done(&t);
}

/* Killed, and killed again in what repairs it. */
static void der_01_killed_in_recovery(void **state)
{
	static const struct {
		const char *first, *second;
	} cases[] = {
		{ "txn.prepared", "recover.announced" },
		{ "txn.prepared", "recover.undone" },
		{ "txn.after-decision", "recover.announced" },
		{ "txn.after-decision", "dir.apply.op:1" },
		{ "txn.after-decision", "dir.apply.op:4" },
		{ "dir.apply.op:2", "dir.apply.op:2" },
		{ "dir.apply.op:2", "recover.applied" },
		{ "txn.after-apply", "recover.applied" },
		{ "txn.after-barrier-3", "recover.done" },
	};
	struct two t;

	two_init(&t, *state);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *what = fix_path(t.f, "%s, %s", cases[i].first, cases[i].second);

		two_edit(&t);
		expect_msg(crash_at(t.f, "commit", cases[i].first) == 128 + SIGKILL,
		           "%s: the first was not reached", what);
		for (int again = 0; again < 2; again++)
			(void)crash_at(t.f, "recover", cases[i].second);
		expect_recovery_is_final(&t);
		two_back_to_old(&t, two_settled(&t, what), what);
	}
	two_done(&t);
}

/* ---- DER-03, DER-04 ---- */

static void der_03_the_same_file_is_a_conflict(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *inodes, *view;

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/d/x", fix_work(f, p, NULL)), "ours\n");
	view = man_take(fix_work(f, p, NULL));
	put_text(fix_path(f, "%s/file", root), "theirs\n");
	inodes = man_inodes(root);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "file"));
	expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), 1);
	expect_inodes(root, inodes);
	expect_man(fix_work(f, p, NULL), view);
	expect_eq(fix_state(f, p, NULL), ATOLL_SANDBOX_ACTIVE);
	free(inodes);
	free(view);
}

static void der_03_different_files_are_both_kept(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/ours", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/d/x", root), "theirs\n");
	put_text(fix_path(f, "%s/theirs", root), "theirs\n");
	remove_entry(fix_path(f, "%s/gone", root));
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/file", root), "ours\n");
	expect_text(fix_path(f, "%s/ours", root), "ours\n");
	expect_text(fix_path(f, "%s/d/x", root), "theirs\n");
	expect_text(fix_path(f, "%s/theirs", root), "theirs\n");
	expect(!exists(fix_path(f, "%s/gone", root)));
	expect_rollback(f, p);
	expect_text(fix_path(f, "%s/file", root), "old\n");
	expect_text(fix_path(f, "%s/theirs", root), "theirs\n");
	expect(!exists(fix_path(f, "%s/ours", root)));
}

/* Each way in which somebody else may have touched a path, against each of ours. */
static void der_03_table_of_conflicts(void **state)
{
	enum { EDIT, DELETE, CHMOD, REPLACE, ADD, KINDS };
	static const char *const names[] = { "edit", "delete", "chmod", "replace", "add" };
	struct fix *f = *state;

	for (int ours = EDIT; ours < KINDS; ours++) {
		for (int theirs = EDIT; theirs < KINDS; theirs++) {
			const char *root, *sides[2];
			struct atoll_plan *p;
			char *inodes;
			bool same_deletion = ours == DELETE && theirs == DELETE;

			if ((ours == ADD) != (theirs == ADD))
				continue;
			root = put_root(f, fix_path(f, "%s-%s", names[ours], names[theirs]));
			p = plan_over(f, root);
			sides[0] = fix_work(f, p, NULL);
			sides[1] = root;
			for (int side = 0; side < 2; side++) {
				const char *path = fix_path(f, "%s/file", sides[side]);
				int how = side == 0 ? ours : theirs;

				if (how == DELETE || how == REPLACE)
					remove_entry(path);
				if (how == REPLACE)
					put_dir(path, side == 0 ? 0755 : 0700);
				if (how == CHMOD)
					set_mode(path, side == 0 ? 0600 : 0640);
				if (how == EDIT)
					append_text(path, side == 0 ? "ours\n" : "theirs\n");
				if (how == ADD)
					put_text(fix_path(f, "%s/fresh", sides[side]),
					         side == 0 ? "ours\n" : "theirs\n");
			}
			inodes = man_inodes(root);
			if (same_deletion) /* nobody disagrees */
				expect_commit(f, p);
			else
				expect_msg(atoll_plan_commit(p, 0, f->res) == -ATOLL_E_CONFLICT,
				           "%s against %s: %s", names[ours], names[theirs],
				           atoll_result_message(f->res));
			expect_inodes(root, inodes);
			free(inodes);
			expect_stop(f, p);
			fix_forget(f, p);
		}
	}
}

/* Inside a directory that we delete whole. */
static void der_03_edits_below_a_deleted_directory(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *inodes;

	remove_entry(fix_path(f, "%s/d", fix_work(f, p, NULL)));
	put_text(fix_path(f, "%s/d/new", root), "theirs\n");
	inodes = man_inodes(root);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "d"));
	expect_inodes(root, inodes);
	free(inodes);
}

static void der_04_undo_keeps_foreign_edits(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *inodes;

	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "ours\n");
	put_text(fix_path(f, "%s/d/x", fix_work(f, p, NULL)), "ours\n");
	expect_commit(f, p);
	append_text(fix_path(f, "%s/file", root), "theirs\n");
	inodes = man_inodes(root);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "file"));
	expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), 1);
	expect_inodes(root, inodes);
	expect_eq(fix_state(f, p, NULL), ATOLL_SANDBOX_COMMITTED);
	/* The rest goes back when asked for. */
	expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_THEIRS, f->res));
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "file"));
	expect_text(fix_path(f, "%s/file", root), "ours\ntheirs\n");
	expect_text(fix_path(f, "%s/d/x", root), "x\n");
	free(inodes);
}

static void der_04_a_created_directory_holds_something_foreign(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *inodes;

	edit(f, fix_work(f, p, NULL));
	expect_commit(f, p);
	put_text(fix_path(f, "%s/added/theirs", root), "theirs\n");
	inodes = man_inodes(root);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "added"));
	expect_inodes(root, inodes);
	expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_THEIRS, f->res));
	expect_text(fix_path(f, "%s/added/theirs", root), "theirs\n");
	expect_text(fix_path(f, "%s/file", root), "old\n");
	expect_text(fix_path(f, "%s/gone", root), "gone\n");
	free(inodes);
}

/* What was deleted by us and made anew by somebody stays his. */
static void der_04_a_deleted_name_taken_by_somebody(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *inodes;

	edit(f, fix_work(f, p, NULL));
	expect_commit(f, p);
	put_text(fix_path(f, "%s/gone", root), "theirs\n");
	inodes = man_inodes(root);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
	expect(has_note(f, ATOLL_NOTE_CONFLICT, "gone"));
	expect_inodes(root, inodes);
	expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_THEIRS, f->res));
	expect_text(fix_path(f, "%s/gone", root), "theirs\n");
	expect_text(fix_path(f, "%s/file", root), "old\n");
	free(inodes);
}

/* ---- DER-05 ---- */

#define SHARED_FILES 3

static int commits_wanted(void)
{
	return atest_long() ? 200 : 50;
}

/* Commits version after version to the shared tree, taking up what the other one did. */
static int child_commits(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p;
	int done = 0;

	fix_attach(&f, dir);
	p = fix_plan(&f, fix_path(&f, "plan-%s", arg));
	fix_add(&f, p, fix_path(&f, "%s/root", dir), "copy");
	while (done < commits_wanted()) {
		char *work = NULL, text[16];
		int r;

		expect_ok(&f, atoll_sandbox_path(p, NULL, &work, f.res));
		(void)snprintf(text, sizeof(text), "%s-%03d\n", arg, done + 1);
		for (int i = 0; i < SHARED_FILES; i++) {
			char file[PATH_MAX];

			(void)snprintf(file, sizeof(file), "%s/f%d", work, i);
			put_text(file, text);
		}
		free(work);
		r = atoll_plan_commit(p, 0, f.res);
		expect_msg(r == 0 || r == -ATOLL_E_CONFLICT, "%s", atoll_result_message(f.res));
		done += r == 0;
		if (r < 0)
			expect_ok(&f, atoll_plan_reset(p, f.res));
	}
	expect_ok(&f, atoll_plan_stop(p, ATOLL_FORCE, f.res));
	fix_forget(&f, p);
	fix_detach(&f);
	return 0;
}

static bool is_version(const char *text)
{
	unsigned n;
	char who, end;

	return text && strlen(text) == 6 && sscanf(text, "%c-%3u%c", &who, &n, &end) == 3 &&
	       (who == 'A' || who == 'B' || (who == '0' && n == 0)) && end == '\n' && n <= 200;
}

static int read_versions(void *root)
{
	for (int i = 0; i < SHARED_FILES; i++) {
		char file[PATH_MAX];
		char *text;
		bool good;

		(void)snprintf(file, sizeof(file), "%s/f%d", (const char *)root, i);
		text = get_text(file);
		good = is_version(text);
		free(text);
		if (!good)
			return 1;
	}
	return 0;
}

static void der_05_two_processes_commit_to_one_tree(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct reader *reader;
	pid_t a, b;
	char *first;

	for (int i = 0; i < SHARED_FILES; i++)
		put_text(fix_path(f, "%s/f%d", root, i), "0-000\n");
	reader = reader_start(read_versions, fix_path(f, "%s", root));
	a = child_start(f, "commits", "A", NULL);
	b = child_start(f, "commits", "B", NULL);
	expect_eq(child_wait(a), 0);
	expect_eq(child_wait(b), 0);
	expect_msg(reader_stop(reader) > 0, "the reader saw something that was never committed");
	/* The last batch is there as a whole. */
	first = get_text(fix_path(f, "%s/f0", root));
	expect(is_version(first) && atoi(first + 2) == commits_wanted());
	for (int i = 1; i < SHARED_FILES; i++)
		expect_text(fix_path(f, "%s/f%d", root, i), first);
	free(first);
	expect_eq(count_entries(root), SHARED_FILES);
}

/* ---- DER-06, DER-07 ---- */

static int make_old(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	set_mtime(path, 1000000000, 1);
	return 0;
}

static void der_06_an_idle_owner_is_alive(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	char *before = man_take(root);
	pid_t owner = owner_start(f, "owned", "root", true);

	expect(nftw(fix_path(f, "%s/locks", f->home), make_old, 16, FTW_PHYS) == 0);
	expect(nftw(fix_path(f, "%s/plans", f->home), make_old, 16, FTW_PHYS) == 0);
	expect_eq(scanned(f), 0);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 0);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	owner_kill(f, owner, "owned");
	expect_eq(scanned(f), 1);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_man(root, before);
	free(before);
}

/* A stopped owner is alive as well. */
static void der_06_a_stopped_owner_is_alive(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	char *before = man_take(root);
	pid_t owner = owner_start(f, "owned", "root", false);

	expect(kill(owner, SIGSTOP) == 0);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 0);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect(kill(owner, SIGCONT) == 0);
	owner_kill(f, owner, "owned");
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_man(root, before);
	free(before);
}

/* A process of ours that has the number WANTED, or -errno; EEXIST: somebody else has it already. */
static pid_t take_number(pid_t wanted)
{
	const struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uint64_t)(uintptr_t)&wanted,
		.set_tid_size = 1,
	};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	while (pid == 0)
		pause();
	return pid < 0 ? -errno : pid;
}

static void der_06_a_reused_number_protects_nobody(void **state)
{
	struct fix *f = *state;
	const char *root;
	pid_t owner, foreign;
	char *before;

	need_root();
	root = put_root(f, "root");
	before = man_take(root);
	owner = owner_start(f, "owned", "root", false);
	owner_kill(f, owner, "owned");
	foreign = take_number(owner);
	expect_msg(foreign == owner || foreign == -EEXIST, "the number could not be had again: %s",
	           strerror(-foreign));
	expect_eq(scanned(f), 1);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	if (foreign > 0)
		kill_child(foreign);
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_man(root, before);
	free(before);
}

/* An owner that commits its work, and dies where the environment says. */
static int child_owner_commits(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;

	(void)arg;
	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_start(f.a, "p", ATOLL_START_OWNED, &p, f.res));
	fix_add(&f, p, fix_path(&f, "%s/root", dir), "copy");
	edit(&f, fix_work(&f, p, NULL));
	return atoll_plan_commit(p, 0, f.res) != 0;
}

static void der_07_purge_settles_first(void **state)
{
	static const char *const points[] = { "dir.apply.op:1", "dir.apply.op:2",
		                              "txn.after-decision", "txn.after-apply" };
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		const char *root = put_root(f, "root");
		const char *const env[] = { fix_path(f, "ATOLL_CRASHPOINT=%s", points[i]), NULL };

		expect_eq(child_run(f, "owner-commits", "", env), 128 + SIGKILL);
		wait_for_helpers();
		expect_eq(atoll_purge(f->a, 0, f->res), 1);
		expect_text(fix_path(f, "%s/file", root), "new\n");
		expect_text(fix_path(f, "%s/added/y", root), "y\n");
		expect(!exists(fix_path(f, "%s/gone", root)));
		expect_eq(mode_of(fix_path(f, "%s/d", root)), 0700);
		expect_eq(count_entries(root), 3);
		expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
		expect_eq(atoll_count_plans(f->a, f->res), 0);
		remove_entry(root);
	}
}

static void der_07_purge_withdraws_the_undecided(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	const char *const env[] = { "ATOLL_CRASHPOINT=txn.prepared", NULL };
	char *before = man_take(root);

	expect_eq(child_run(f, "owner-commits", "", env), 128 + SIGKILL);
	wait_for_helpers();
	/* Withdrawn, so there is work: kept until somebody says otherwise. */
	expect_eq(atoll_purge(f->a, 0, f->res), 0);
	expect_man(root, before);
	expect_eq(fix_plan_state(f, fix_find(f, "p")), ATOLL_PLAN_OPEN);
	expect(tree_holds(fix_path(f, "%s/plans", f->home), "new\n"));
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	expect_man(root, before);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	free(before);
}

static void der_07_purge_never_crosses_a_mount(void **state)
{
	struct fix *f = *state;
	const char *root, *inside;
	pid_t owner;
	char *text;
	int r;

	need_root();
	root = put_root(f, "root");
	owner = owner_start(f, "owned", "root", false);
	inside = fix_path(f, "%s/mounted", fix_area(f, fix_find(f, "owned"), root));
	owner_kill(f, owner, "owned");
	put_dir(inside, 0755);
	expect(mount("none", inside, "tmpfs", 0, "size=64k") == 0);
	put_text(fix_path(f, "%s/kept", inside), "kept\n");
	r = atoll_purge(f->a, ATOLL_FORCE, f->res);
	text = get_text(fix_path(f, "%s/kept", inside));
	expect(umount2(inside, MNT_DETACH) == 0);
	expect_msg(r < 0, "purge said that all went well");
	expect_msg(text && strcmp(text, "kept\n") == 0, "deleted across a mount");
	free(text);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

/* ---- DER-13 ---- */

static int stop_here(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)user;
	(void)p;
	(void)phase;
	(void)raise(SIGSTOP);
	return 0;
}

/* Finds or makes the one plan and its one sandbox. ARG "creator": stops in the middle. */
static int child_joins(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;
	struct atoll_resource r = { .strategy = "gate" };
	int code;

	fix_attach(&f, dir);
	faulty_register();
	r.root = fix_path(&f, "%s/root", dir);
	if (strcmp(arg, "creator") == 0)
		phase_hook(r.root, PHASE_CREATE, stop_here, NULL);
	expect_ok(&f, atoll_plan_start(f.a, "shared", ATOLL_START_OR_OPEN, &p, f.res));
	code = atoll_plan_add(p, &r, f.res);
	expect_msg(code == 0 || code == -ATOLL_E_EXISTS, "%s", atoll_result_message(f.res));
	put_text(fix_path(&f, "%s/joined-%s", dir, arg), atoll_plan_id(p));
	atoll_plan_free(p);
	fix_detach(&f);
	return 0;
}

static int count_sandboxes(void *user, const struct atoll_plan_info *info)
{
	*(size_t *)user += info->sandboxes;
	return 0;
}

static void others_wait_for_a_creator(struct fix *f, bool kill_it)
{
	const char *root = fix_dir(f, "root");
	size_t sandboxes = 0;
	pid_t creator, others[4];
	int status;
	char *id;

	put_text(fix_path(f, "%s/value", root), "1\n");
	creator = child_start(f, "joins", "creator", NULL);
	expect(waitpid(creator, &status, WUNTRACED) == creator && WIFSTOPPED(status));
	for (int i = 0; i < 4; i++)
		others[i] = child_start(f, "joins", fix_path(f, "%d", i), NULL);
	sleep_ms(400);
	for (int i = 0; i < 4; i++)
		expect_msg(!exists(fix_path(f, "%s/joined-%d", f->dir, i)),
		           "did not wait for the creator");
	expect(kill(creator, kill_it ? SIGKILL : SIGCONT) == 0);
	expect_eq(child_wait(creator), kill_it ? 128 + SIGKILL : 0);
	for (int i = 0; i < 4; i++)
		expect_eq(child_wait(others[i]), 0);
	id = get_text(fix_path(f, "%s/joined-0", f->dir));
	for (int i = 1; i < 4; i++)
		expect_text(fix_path(f, "%s/joined-%d", f->dir, i), id);
	free(id);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_ok(f, atoll_plan_list(f->a, count_sandboxes, &sandboxes, f->res));
	expect_eq(sandboxes, 1);
	wait_for_helpers();
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 1);
	expect_text(fix_path(f, "%s/value", root), "1\n");
	expect_stop(f, fix_find(f, "shared"));
}

static void der_13_a_stopped_creator_is_waited_for(void **state)
{
	others_wait_for_a_creator(*state, false);
}

static void der_13_a_dead_creator_is_taken_over(void **state)
{
	others_wait_for_a_creator(*state, true);
}

/* ---- DER-14, DER-15 ---- */

static int run_script(struct fix *f, struct atoll_plan *p, const char *root, const char *script)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = root };
	struct atoll_exec_status status = { .exit_code = -1 };

	expect_ok(f, atoll_plan_exec(p, &exec, &status, f->res));
	return status.exit_code;
}

static bool is_sleep(const char *pid, const char *seconds)
{
	char path[64], line[256] = "";
	size_t n;
	FILE *in;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
	in = fopen(path, "re");
	if (!in)
		return false;
	n = fread(line, 1, sizeof(line) - 1, in); /* nothing of a zombie */
	(void)fclose(in);
	return n > 6 && strcmp(line, "sleep") == 0 && strcmp(line + 6, seconds) == 0;
}

/* Found by what it was told: the number it has among the commands of a plan is not ours. */
static bool sleeps(const char *seconds)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	bool found = false;

	expect(proc != NULL);
	while (proc && !found && (entry = readdir(proc)))
		found = is_sleep(entry->d_name, seconds);
	(void)closedir(proc);
	return found;
}

static void der_14_nothing_outlives_its_command(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *work;
	struct atoll_plan *p = plan_over(f, root);
	const char *seconds = fix_path(f, "%d.%d", 1000, (int)getpid());
	char *before = man_take(root);

	work = fix_work(f, p, NULL);
	expect_eq(run_script(f, p, root,
	                     fix_path(f, "setsid sleep %s & echo $! > daemon; exit 7", seconds)),
	          7);
	expect(exists(fix_path(f, "%s/daemon", work)));
	for (int64_t end = now_ms() + 30000; sleeps(seconds) && now_ms() < end;)
		sleep_ms(5); /* it is killed, and may not have had the time to die */
	expect_msg(!sleeps(seconds), "the daemon lives on");
	/* The lock is free: no waiting. */
	atoll_set_wait(f->a, 0);
	expect_eq(run_script(f, p, root, "exit 0"), 0);
	expect_commit(f, p);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

/* The command has what it was given, and nothing of ours. */
static void der_14_the_command_gets_no_descriptors(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	const char *work = fix_work(f, p, NULL);
	char *text;

	expect_eq(run_script(f, p, root,
	                     "for l in /proc/$$/fd/*; do readlink $l; done | grep atest > fds; "
	                     "readlink /proc/$$/fd/* | wc -l > count; true"),
	          0);
	text = get_text(fix_path(f, "%s/fds", work));
	/* What the command itself opened is the only thing of the test's directory. */
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		expect_msg(strstr(line, "/locks") == NULL && strstr(line, "atoll.db") == NULL,
		           "the command holds %s", line);
	expect(text != NULL);
	free(text);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

#define COUNT_THREADS 4
#define COUNT_PROCS   4

static int count_each(void)
{
	return atest_long() ? 25 : 4;
}

struct counter {
	struct fix *f;
	int failures;
};

static void *count_up(void *arg)
{
	struct counter *c = arg;
	const char *const argv[] = { "/bin/sh", "-c", "n=$(cat n); echo $((n + 1)) > n", NULL };
	struct atoll_exec exec = { .argv = argv };
	char root[PATH_MAX + 8];

	(void)snprintf(root, sizeof(root), "%s/root", c->f->dir);
	exec.cwd = root;
	for (int i = 0; i < count_each(); i++) {
		struct atoll_exec_status status = { .exit_code = -1 };
		struct atoll_plan *p = NULL;

		if (atoll_plan_find(c->f->a, "counter", &p, NULL) < 0 ||
		    atoll_plan_exec(p, &exec, &status, NULL) < 0 || status.exit_code != 0)
			c->failures++;
		atoll_plan_free(p);
	}
	return NULL;
}

static int child_counts(const char *dir, const char *arg)
{
	struct counter counters[COUNT_THREADS];
	pthread_t threads[COUNT_THREADS];
	struct fix f = { .a = NULL };
	int failures = 0;

	(void)arg;
	fix_attach(&f, dir);
	for (int i = 0; i < COUNT_THREADS; i++) {
		counters[i] = (struct counter){ .f = &f };
		expect(pthread_create(&threads[i], NULL, count_up, &counters[i]) == 0);
	}
	for (int i = 0; i < COUNT_THREADS; i++) {
		expect(pthread_join(threads[i], NULL) == 0);
		failures += counters[i].failures;
	}
	fix_detach(&f);
	return failures != 0;
}

static void der_15_threads_and_processes_lose_no_update(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p = fix_plan(f, "counter");
	pid_t pids[COUNT_PROCS];
	char wanted[16];

	put_text(fix_path(f, "%s/n", root), "0\n");
	fix_add(f, p, root, "copy");
	for (int i = 0; i < COUNT_PROCS; i++)
		pids[i] = child_start(f, "counts", "", NULL);
	for (int i = 0; i < COUNT_PROCS; i++)
		expect_eq(child_wait(pids[i]), 0);
	(void)snprintf(wanted, sizeof(wanted), "%d\n", COUNT_PROCS * COUNT_THREADS * count_each());
	expect_text(fix_path(f, "%s/n", fix_work(f, p, NULL)), wanted);
	expect_text(fix_path(f, "%s/n", root), "0\n");
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/n", root), wanted);
}

/* ---- DER-20 ---- */

/* Forked from the owner: ends in each ordinary way, having tried to use what is not its own. */
static int use_and_exit(struct fix *f, void *user)
{
	struct atoll_plan *p = user;

	if (atoll_plan_commit(p, 0, NULL) != -ATOLL_E_STATE)
		return 1;
	if (atoll_plan_stop(p, ATOLL_FORCE, NULL) != -ATOLL_E_STATE)
		return 2;
	if (atoll_count_plans(f->a, NULL) != -ATOLL_E_STATE)
		return 3;
	atoll_close(f->a); /* lets go of memory, cleans nothing */
	return 0;
}

static void der_20_a_forked_child_cleans_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = NULL;
	char *before = man_take(root), *view;
	pid_t pid;

	expect_ok(f, atoll_plan_start(f->a, "owned", ATOLL_START_OWNED, &p, f->res));
	fix_add(f, p, root, "copy");
	edit(f, fix_work(f, p, NULL));
	view = man_take(fix_work(f, p, NULL));
	expect_eq(fork_run(f, use_and_exit, p), 0);
	pid = fork();
	if (pid == 0) {
		/* With all exit handlers, which must not act here. */
		(void)fclose(stdout);
		exit(0);
	}
	expect(pid > 0);
	(void)child_wait(pid);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_man(fix_work(f, p, NULL), view);
	expect_eq(scanned(f), 0); /* still owned, by us */
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	expect_stop(f, p);
	atoll_plan_free(p);
	free(before);
	free(view);
}

/* A child that outlives the owner does not keep the plan alive. */
static void der_20_a_child_does_not_inherit_ownership(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	char *before = man_take(root);
	int go[2];
	pid_t owner, lasting = 0;

	expect(pipe2(go, O_CLOEXEC) == 0);
	owner = fork();
	if (owner == 0) {
		struct fix mine = { .a = NULL };
		struct atoll_plan *p = NULL;

		fix_attach(&mine, f->dir);
		expect_ok(&mine,
		          atoll_plan_start(mine.a, "owned", ATOLL_START_OWNED, &p, mine.res));
		fix_add(&mine, p, root, "copy");
		lasting = fork();
		if (lasting == 0) {
			for (;;)
				pause();
		}
		(void)!write(go[1], &lasting, sizeof(lasting));
		(void)kill(getpid(), SIGKILL);
	}
	expect(owner > 0 && read(go[0], &lasting, sizeof(lasting)) == sizeof(lasting));
	expect_eq(child_wait(owner), 128 + SIGKILL);
	close(go[0]);
	close(go[1]);
	wait_for_helpers();
	expect_eq(scanned(f), 1);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	kill_child(lasting);
	expect_man(root, before);
	free(before);
}

/* ---- DER-22 ---- */

static void expect_only(struct fix *f, const char *name, void (*change)(const char *path),
                        unsigned what)
{
	static const char *const targets[] = { "file", "d" };

	for (int i = 0; i < 2; i++) {
		const char *root = put_root(f, fix_path(f, "%s-%s", name, targets[i])), *target;
		struct atoll_plan *p;
		struct listing *l;
		char *before, *view;

		if (i == 1 && what == ATOLL_CHANGE_MTIME)
			continue; /* a directory's time follows its entries */
		before = man_take(root);
		p = plan_over(f, root);
		target = fix_path(f, "%s/%s", fix_work(f, p, NULL), targets[i]);
		change(target);
		view = man_take(fix_work(f, p, NULL));
		l = diff_take(f, p);
		expect_eq(l->n, 1);
		expect_str(l->v[0].path, targets[i]);
		expect_eq(l->v[0].kind, ATOLL_CHANGE_CHANGED);
		expect_eq(l->v[0].what, what);
		diff_free(l);
		expect_commit(f, p);
		expect_man(root, view);
		expect_rollback(f, p);
		expect_man(root, before);
		free(before);
		free(view);
	}
}

static void change_mode(const char *path)
{
	set_mode(path, 0700);
}
static void change_xattr(const char *path)
{
	put_xattr(path, "user.colour", "green");
}
static void change_mtime(const char *path)
{
	set_mtime(path, 1000000000, 123456789);
}
static void change_owner(const char *path)
{
	expect(lchown(path, 1000, 1001) == 0);
}

static void der_22_metadata_changes_are_changes(void **state)
{
	struct fix *f = *state;

	expect_only(f, "mode", change_mode, ATOLL_CHANGE_MODE);
	expect_only(f, "xattr", change_xattr, ATOLL_CHANGE_XATTR);
	expect_only(f, "mtime", change_mtime, ATOLL_CHANGE_MTIME);
	if (am_root())
		expect_only(f, "owner", change_owner, ATOLL_CHANGE_OWNER);
}

static void der_22_metadata_of_the_root(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	char *before = man_take(root), *view;
	struct listing *l;

	set_mode(fix_work(f, p, NULL), 0711);
	put_xattr(fix_work(f, p, NULL), "user.colour", "green");
	view = man_take(fix_work(f, p, NULL));
	l = diff_take(f, p);
	expect_eq(l->n, 1);
	expect_str(l->v[0].path, "");
	expect_eq(l->v[0].what, ATOLL_CHANGE_MODE | ATOLL_CHANGE_XATTR);
	diff_free(l);
	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(view);
}

/* ---- DER-23 ---- */

#define LIMIT_MS 200

/* A commit of P runs into the lock that HOLDER has: time-out, named, in time, nothing changed. */
static void expect_named_timeout(struct fix *f, struct atoll_plan *p, const char *root,
                                 pid_t holder, const char *kind)
{
	char *inodes = man_inodes(root), text[32];
	int64_t begun = now_ms(), took;
	int r;

	atoll_set_wait(f->a, LIMIT_MS);
	r = atoll_plan_commit(p, 0, f->res);
	took = now_ms() - begun;
	atoll_set_wait(f->a, -1);
	expect_msg(r == -ATOLL_E_TIMEOUT, "%s: %s, %s", kind, atoll_code_name(r),
	           atoll_result_message(f->res));
	(void)snprintf(text, sizeof(text), "pid %d", (int)holder);
	expect_msg(strstr(atoll_result_message(f->res), text) != NULL, "%s: '%s' lacks '%s'", kind,
	           atoll_result_message(f->res), text);
	expect_msg(took >= LIMIT_MS - 20 && took < 20000, "%s: took %lld ms", kind,
	           (long long)took);
	expect_inodes(root, inodes);
	free(inodes);
}

static const char *lock_with_suffix(struct fix *f, const char *suffix)
{
	const char *found = NULL;
	DIR *d = opendir(fix_path(f, "%s/locks", f->home));
	struct dirent *e;

	expect(d != NULL);
	while (d && (e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		if (dot && strcmp(dot, suffix) == 0)
			found = fix_path(f, "%s", e->d_name);
	}
	if (d)
		closedir(d);
	expect_msg(found != NULL, "there is no lock '*%s'", suffix);
	return found ? found : "";
}

static void der_23_every_lock_names_its_holder(void **state)
{
	static const char *const suffixes[] = { ".plan", ".res", ".lk" };
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);

	/* Once through, so that there is a lock of each kind. */
	edit(f, fix_work(f, p, NULL));
	expect_commit(f, p);
	expect_rollback(f, p);
	edit(f, fix_work(f, p, NULL));
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		struct held h = hold_lock(f, lock_with_suffix(f, suffixes[i]));

		expect_named_timeout(f, p, root, h.pid, suffixes[i]);
		let_go(&h);
	}
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/file", root), "new\n");
}

/* The lock on the resource itself, where two stores meet. */
static void der_23_another_store_is_named_too(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *ready = fix_path(f, "%s/flocked", f->dir);
	struct atoll_plan *p = plan_over(f, root);
	pid_t pid;

	edit(f, fix_work(f, p, NULL));
	pid = fork();
	if (pid == 0) {
		int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0 || flock(fd, LOCK_EX) < 0)
			_exit(1);
		put_text(ready, "");
		for (;;)
			pause();
	}
	expect(pid > 0);
	wait_for_file(ready);
	expect_named_timeout(f, p, root, pid, "flock");
	kill_child(pid);
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/file", root), "new\n");
}

static int held_by_command(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;
	const char *const argv[] = { "/bin/sh", "-c", "touch started; sleep 1000", NULL };
	struct atoll_exec exec = { .argv = argv };
	struct atoll_exec_status status;

	fix_attach(&f, dir);
	exec.cwd = fix_path(&f, "%s/root", dir);
	expect_ok(&f, atoll_plan_find(f.a, arg, &p, f.res));
	return atoll_plan_exec(p, &exec, &status, f.res) != 0;
}

/* The plan's lock, held by a command; the caller is named, and its death frees the lock. */
static void der_23_a_running_command_is_named(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *work;
	struct atoll_plan *p = fix_plan(f, "busy");
	pid_t pid;

	fix_add(f, p, root, "copy");
	work = fix_work(f, p, NULL);
	pid = child_start(f, "command", "busy", NULL);
	wait_for_file(fix_path(f, "%s/started", work));
	expect_named_timeout(f, p, root, pid, "command");
	kill_child(pid);
	atoll_set_wait(f->a, 10000);
	expect_commit(f, p);
	expect(exists(fix_path(f, "%s/started", root)));
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = {
		{ "owner", child_owner },       { "does", child_does },
		{ "commits", child_commits },   { "owner-commits", child_owner_commits },
		{ "joins", child_joins },       { "counts", child_counts },
		{ "command", held_by_command }, { NULL, NULL },
	};
	const struct CMUnitTest tests[] = {
		mtest(der_01_killed_in_a_commit),
		mtest(der_01_settled_by_the_next_command),
		mtest(der_01_killed_in_an_undo),
		mtest(der_01_killed_in_recovery),
		mtest(der_03_the_same_file_is_a_conflict),
		mtest(der_03_different_files_are_both_kept),
		mtest(der_03_table_of_conflicts),
		mtest(der_03_edits_below_a_deleted_directory),
		mtest(der_04_undo_keeps_foreign_edits),
		mtest(der_04_a_created_directory_holds_something_foreign),
		mtest(der_04_a_deleted_name_taken_by_somebody),
		mtest(der_05_two_processes_commit_to_one_tree),
		mtest(der_06_an_idle_owner_is_alive),
		mtest(der_06_a_stopped_owner_is_alive),
		mtest(der_06_a_reused_number_protects_nobody),
		mtest(der_07_purge_settles_first),
		mtest(der_07_purge_withdraws_the_undecided),
		mtest(der_07_purge_never_crosses_a_mount),
		mtest(der_13_a_stopped_creator_is_waited_for),
		mtest(der_13_a_dead_creator_is_taken_over),
		mtest(der_14_nothing_outlives_its_command),
		mtest(der_14_the_command_gets_no_descriptors),
		mtest(der_15_threads_and_processes_lose_no_update),
		mtest(der_20_a_forked_child_cleans_nothing),
		mtest(der_20_a_child_does_not_inherit_ownership),
		mtest(der_22_metadata_changes_are_changes),
		mtest(der_22_metadata_of_the_root),
		mtest(der_23_every_lock_names_its_holder),
		mtest(der_23_another_store_is_named_too),
		mtest(der_23_a_running_command_is_named),
	};

	return atest_main(argc, argv, tests, children);
}
