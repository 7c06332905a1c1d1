/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays (rules OVL, DER-21, and DIF, SEC-03, SEC-04 for them): what commands of a plan see, what
 * a commit makes of it, and what is left. Root also works through the mount that
 * atoll_sandbox_path() makes; an ordinary user has no such path.
 */
#include "lib/views.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define OVERLAY_MAGIC 0x794c7630
#define SECRET        "the bytes nobody else may see"

static void put_small_tree(struct fix *f, const char *root)
{
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_dir(fix_path(f, "%s/d/sub", root), 0755);
	put_text(fix_path(f, "%s/one", root), "one\n");
	put_text(fix_path(f, "%s/two", root), "two\n");
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	put_text(fix_path(f, "%s/d/y", root), "y\n");
	put_text(fix_path(f, "%s/d/sub/z", root), "z\n");
	put_link(fix_path(f, "%s/link", root), "one");
	put_hardlink(fix_path(f, "%s/hard", root), fix_path(f, "%s/two", root));
	set_mtime(fix_path(f, "%s/one", root), 1000000001, 111);
	set_mtime(fix_path(f, "%s/d/sub", root), 1000000002, 222);
	set_mtime(fix_path(f, "%s/d", root), 1000000003, 333);
	set_mtime(root, 1000000004, 444);
}

/* Lines of mountinfo whose mount point is PATH. */
static size_t mounts_at(const char *path)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[8192], point[PATH_MAX];
	size_t n = 0;

	expect(file != NULL);
	while (file && fgets(line, sizeof(line), file))
		n += sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && strcmp(point, path) == 0;
	if (file)
		(void)fclose(file);
	return n;
}

static bool is_overlay(const char *path)
{
	struct statfs st;

	return statfs(path, &st) == 0 && st.f_type == OVERLAY_MAGIC;
}

/* ---- OVL-01, OVL-02 ---- */

static void ovl_01_view_is_the_original_after_rollback(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *before, *view;

	put_small_tree(f, root);
	before = list_plain(f, root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "echo new > one; rm -r d; mkdir d; echo n > d/n; rm link; : > link");
	view = list_view(f, p, root);
	man_assert_not_equal(view, before);
	free(view);
	expect_commit(f, p);
	expect_rollback(f, p);
	view = list_view(f, p, root);
	man_assert_equal(view, before);
	free(view);
	view = list_plain(f, root);
	man_assert_equal(view, before);
	free(view);
	free(before);
}

static void ovl_01_view_is_the_original_after_reset(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *before, *view;

	put_small_tree(f, root);
	before = list_plain(f, root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "rm -r d one; mkdir one");
	expect_ok(f, atoll_plan_reset(p, f->res));
	view = list_view(f, p, root);
	man_assert_equal(view, before);
	free(view);
	free(before);
}

static void ovl_02_still_a_real_overlay_after_rollback(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work, *area;
	struct atoll_plan *p;
	char *before;

	need_root();
	put_small_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	work = fix_work(f, p, NULL);
	expect(is_overlay(work));
	put_text(fix_path(f, "%s/one", work), "changed\n");
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/one", root), "changed\n");
	expect_rollback(f, p);
	expect_man(root, before);
	work = fix_work(f, p, NULL);
	expect(is_overlay(work));
	expect_eq(mounts_at(work), 1);
	expect_man(work, before);
	/* One generation is there, with nothing in it but what hides an area from the view. */
	area = fix_area(f, p, root);
	run_plain(area, "set -- u*; [ $# -eq 1 ]; [ -z \"$(ls -A \"$1\" | grep -v '^.atoll-')\" ]");
	put_text(fix_path(f, "%s/one", work), "in the view\n");
	expect_text(fix_path(f, "%s/one", root), "one\n");
	expect_man(root, before);
	free(before);
}

/* exec and path are one view. */
static void ovl_02_commands_see_the_host_mount(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;

	need_root();
	put_small_tree(f, root);
	p = plan_overlay(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/by-path", work), "1\n");
	run_ok(f, p, root, "grep -q 1 by-path; echo 2 > by-exec; echo 3 > one");
	expect_text(fix_path(f, "%s/by-exec", work), "2\n");
	expect_text(fix_path(f, "%s/one", work), "3\n");
	expect(!exists(fix_path(f, "%s/by-exec", root)));
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/by-path", root), "1\n");
	expect_text(fix_path(f, "%s/by-exec", root), "2\n");
	expect_eq(mounts_at(work), 0);
}

static void ovl_02_an_ordinary_user_has_no_path(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *path = NULL;

	if (am_root())
		atest_skip("is about ordinary users");
	p = plan_overlay(f, root);
	expect_code(f, atoll_sandbox_path(p, NULL, &path, f->res), -ATOLL_E_UNSUPPORTED);
	expect(strlen(atoll_result_hint(f->res)) > 0);
	expect(path == NULL);
}

/* ---- OVL-03 ---- */

static pid_t sit_in(const char *dir, bool is_writer)
{
	int ready[2];
	char c;
	pid_t pid;

	expect(pipe2(ready, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		bool ok = chdir(dir) == 0 &&
		          (!is_writer || open("held", O_CREAT | O_WRONLY | O_CLOEXEC, 0644) >= 0);

		if (!ok || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	expect(read(ready[0], &c, 1) == 1);
	(void)close(ready[0]);
	return pid;
}

static void ovl_03_busy_mount_stops_a_rollback(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	char *before;
	size_t n;
	pid_t pid;
	int r;

	need_root();
	put_small_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/one", work), "changed\n");
	expect_commit(f, p);
	work = fix_work(f, p, NULL);
	pid = sit_in(work, false);
	r = atoll_plan_rollback(p, 0, f->res);
	n = mounts_at(work);
	kill_child(pid);
	expect(fix_row(f, root) != NULL);
	expect_eq(fix_row(f, root)->cause_errno, EBUSY);
	expect_eq(fix_row(f, root)->resource_restored, ATOLL_FACT_YES);
	expect_eq(fix_row(f, root)->workspace_reset, ATOLL_FACT_NO);
	expect_eq(n, 1);
	expect_man(root, before);
	expect_eq(r, -EBUSY);
	expect_rollback(f, p);
	expect_eq(mounts_at(work), 0);
	expect_man(root, before);
	expect_man(fix_work(f, p, NULL), before);
	free(before);
}

/* A writer is not overtaken: the commit is refused, and nothing is lost. */
static void ovl_03_writer_in_the_mount_stops_a_commit(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	char *before;
	pid_t pid;

	need_root();
	put_small_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/one", work), "changed\n");
	pid = sit_in(work, true);
	expect(atoll_plan_commit(p, 0, f->res) < 0);
	expect_man(root, before);
	expect_text(fix_path(f, "%s/one", work), "changed\n");
	/* The mount is as it was: others may write again. */
	put_text(fix_path(f, "%s/two", work), "also\n");
	kill_child(pid);
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/one", root), "changed\n");
	expect_text(fix_path(f, "%s/two", root), "also\n");
	free(before);
}

/* ---- OVL-04, OVL-05 ---- */

/*
 * Mounts are made by the helper only, in a namespace that ends with it, from directories of one
 * filesystem that answers (FUSE and network ones are refused), so MHANG and UHANG have nothing to
 * hang. What remains to be bounded is the command itself; then all of it is gone at once.
 */
static void ovl_04_05_a_command_that_hangs_is_bounded(void **state)
{
	static const char *const argv[] = { "/bin/sh", "-c",
		                            "trap '' TERM; echo > f; sleep 600 & sleep 600", NULL };
	struct fix *f = *state;
	struct atoll_exec_status status = { 0 };
	struct atoll_plan *p[3];
	int64_t began;

	for (size_t i = 0; i < 3; i++)
		p[i] = plan_overlay(f, fix_dir(f, fix_path(f, "root%zu", i)));
	const struct atoll_exec e = { .argv = argv,
		                      .cwd = fix_path(f, "%s/root1", f->dir),
		                      .timeout_ms = 300 };
	began = now_ms();
	expect_ok(f, atoll_plan_exec(p[1], &e, &status, f->res));
	expect(status.timed_out);
	expect_eq(status.exit_code, 124);
	expect_msg(now_ms() - began < 120000, "took %lld ms", (long long)(now_ms() - began));
	for (size_t i = 0; i < 3; i++)
		expect_ok(f, atoll_plan_stop(p[i], ATOLL_FORCE, f->res));
	expect_msg(now_ms() - began < 120000, "took %lld ms", (long long)(now_ms() - began));
	expect_eq(atoll_count_plans(f->a, f->res), 0);
}

/* ---- OVL-06, OVL-07 ---- */

static void ovl_06_any_path_works(void **state)
{
	static const char *const names[] = { "a,b:c\\d,volatile",
		                             "a b\nc",
		                             "lowerdir=x,upperdir=y",
		                             "\\134",
		                             "\"quoted\" 'too'",
		                             "-rf",
		                             "%s%n",
		                             "\xff\xfe" };
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *root = fix_dir(f, names[i]);
		struct atoll_plan *p;
		char *before, *view;

		put_small_tree(f, root);
		before = man_take(root);
		p = plan_overlay(f, root);
		run_ok(f, p, root,
		       "set -e; rm one; echo 1 > new; mkdir 'x,y:z\\w'; : > 'x,y:z\\w/f'");
		view = list_view(f, p, root);
		expect_commit(f, p);
		char *now = list_plain(f, root);
		man_assert_equal(now, view);
		expect_rollback(f, p);
		expect_man(root, before);
		if (am_root()) {
			const char *work = fix_work(f, p, NULL);

			expect(is_overlay(work));
			expect_man(work, before);
		}
		expect_stop(f, p);
		free(before);
		free(view);
		free(now);
	}
}

static void ovl_07_links_stay_links(void **state)
{
	static const char *const strategies[] = { "copy", "overlay" };
	struct fix *f = *state;
	const char *secret = fix_path(f, "%s/secret", f->dir);

	put_text(secret, SECRET "\n");
	for (size_t i = 0; i < 2; i++) {
		const char *root = fix_dir(f, strategies[i]);
		struct atoll_plan *p = fix_plan(f, NULL);
		char *before;

		put_link(fix_path(f, "%s/out", root), secret);
		put_link(fix_path(f, "%s/out-too", root), "../secret");
		put_text(fix_path(f, "%s/f", root), "f\n");
		before = man_take(root);
		fix_add(f, p, root, strategies[i]);
		run_ok(f, p, root, "[ -L out ]; [ -L out-too ]; echo g > f; mv out moved");
		expect(!tree_holds(f->home, SECRET));
		expect_commit(f, p);
		expect(!tree_holds(f->home, SECRET) && !tree_holds(root, SECRET));
		run_plain(root, "[ -L moved ]; [ -L out-too ]; [ ! -e out ]");
		expect_rollback(f, p);
		expect_man(root, before);
		expect_stop(f, p);
		free(before);
	}
}

/* ---- DER-21, DIF-06 ---- */

static const char *const scripts[] = {
	/* whiteouts and opaque directories */
	"rm one",
	"rm -r d; mkdir d; echo other > d/other",
	"rm -r d; mkdir d",
	"rm -r d; mkdir d; echo x > d/x",
	"rm -r d/sub; mkdir d/sub; echo w > d/sub/w; rm d/x",
	"rm d/x; echo x > d/x",
	"rm -r d; mkdir d; rmdir d",
	/* renames of lower entries */
	"mv d moved",
	"mv d/sub up",
	"mv d t; mkdir d; mv t d/inner",
	"mv one d/x",
	"mv one two",
	"mv d t; mv one d; mv t one",
	/* hard links */
	"ln one again; echo both >> again",
	"ln two three",
	"rm hard; ln one hard",
	/* the six changes of type */
	"rm one; mkdir one; : > one/in",
	"rm one; ln -s d one",
	"rm -r d; : > d",
	"rm -r d; ln -s one d",
	"rm link; : > link",
	"rm link; mkdir link; : > link/in",
	/* attributes */
	"chmod 600 one; chmod 700 d",
	"touch -d 2011-01-01 one; touch -h -d 2012-01-01 link",
	"setfattr -n user.k -v v one; setfattr -n user.k -v v d",
	"chmod 711 .",
	/* undone by the command itself */
	"cp -p one t; mv t one",
	"chmod 600 one; chmod 644 one",
	"mkdir n; rmdir n; : > n; rm n",
	/* any name, and holes */
	": > 'a\nb'; mkdir \"$(printf '\\377')\"; : > \"$(printf '%0255d' 7)\"",
	"truncate -s 3M sparse; printf end >> sparse",
	"rm link; ln -s two link; ln -s /nowhere dangling",
	"mkdir -p a/b/c/d/e/f; : > a/b/c/d/e/f/g",
	":",
};

/* The view before the commit is the resource after it; and with a copy it would be the same. */
static void der_21_dif_06_result_is_the_view(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		const char *root = fix_dir(f, fix_path(f, "o%zu", i));
		const char *twin = fix_dir(f, fix_path(f, "c%zu", i));
		struct atoll_plan *p, *q;
		struct listing *l, *m;
		char *before, *view, *now;
		uint64_t inode;
		size_t n;

		put_small_tree(f, root);
		put_small_tree(f, twin);
		before = man_take(root);
		inode = inode_of(fix_path(f, "%s/one", root));
		p = plan_overlay(f, root);
		q = plan_over(f, twin);
		run_ok(f, p, root, scripts[i]);
		run_ok(f, q, twin, scripts[i]);
		view = list_view(f, p, root);
		l = diff_take(f, p);
		m = diff_take(f, q);
		expect_msg(l->n == m->n, "%zu changes, a copy has %zu: %s", l->n, m->n, scripts[i]);
		for (size_t k = 0; k < l->n && k < m->n; k++) {
			expect_str(l->v[k].path, m->v[k].path);
			expect_msg(l->v[k].kind == m->v[k].kind && l->v[k].what == m->v[k].what,
			           "'%s' differs after: %s", l->v[k].path, scripts[i]);
		}
		n = l->n;
		diff_free(l);
		diff_free(m);
		expect_commit(f, p);
		now = list_plain(f, root);
		/* Times of directories alone are no change. */
		if (n)
			man_assert_equal(now, view);
		free(now);
		expect_rollback(f, p);
		expect_man(root, before);
		expect(inode_of(fix_path(f, "%s/one", root)) == inode);
		expect_stop(f, p);
		expect_stop(f, q);
		free(view);
		free(before);
		remove_entry(root);
		remove_entry(twin);
	}
}

/* The other name of a file that a command wrote to keeps its content: a copy-up breaks the link. */
static void der_21_hard_linked_lower_file_edited(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *before;

	put_small_tree(f, root);
	before = man_take(root);
	p = plan_overlay(f, root);
	run_ok(f, p, root, "echo edited > two; [ \"$(cat hard)\" = two ]");
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/two", root), "edited\n");
	expect_text(fix_path(f, "%s/hard", root), "two\n");
	expect_rollback(f, p);
	expect_man(root, before);
	expect(inode_of(fix_path(f, "%s/two", root)) == inode_of(fix_path(f, "%s/hard", root)));
	free(before);
}

/* Marks of the overlay never reach the resource, nor do forged ones. */
static void der_21_no_marks_in_the_resource(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;

	put_small_tree(f, root);
	p = plan_overlay(f, root);
	run_ok(f, p, root,
	       "echo 1 > one; rm -r d; mkdir d; mkdir -p new/er; : > new/f; mv link new/; "
	       "setfattr -n user.overlay.opaque -v y new 2>/dev/null; "
	       "setfattr -n user.overlay.redirect -v /d new/f 2>/dev/null; "
	       "setfattr -n trusted.overlay.opaque -v y new/er 2>/dev/null; true");
	expect_commit(f, p);
	run_plain(root, "! getfattr -R -h -d -m - . 2>/dev/null | grep -a overlay");
	expect_rollback(f, p);
}

/* ---- SEC ---- */

struct flip {
	const char *path, *beside, *secret;
	atomic_bool over;
};

static void *flip(void *user)
{
	struct flip *fl = user;

	while (!atomic_load(&fl->over)) {
		int fd = open(fl->beside, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

		if (fd >= 0) {
			(void)!write(fd, "plain\n", 6);
			(void)close(fd);
		}
		(void)rename(fl->beside, fl->path);
		if (symlink(fl->secret, fl->beside) == 0)
			(void)rename(fl->beside, fl->path);
	}
	return NULL;
}

static void expect_no_secret(struct fix *f, const char *root)
{
	expect(!tree_holds(f->home, SECRET));
	expect(!tree_holds(root, SECRET));
}

/* Through root's host mount, which may be written to while it is committed. */
static void sec_03_flipper_in_the_host_mount(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct flip fl = { 0 };
	struct atoll_plan *p;
	pthread_t thread;

	need_root();
	put_text(fix_path(f, "%s/file", root), "original\n");
	put_text(fix_path(f, "%s/secret", f->dir), SECRET);
	set_mode(fix_path(f, "%s/secret", f->dir), 0600);
	p = plan_overlay(f, root);
	fl.secret = fix_path(f, "%s/secret", f->dir);
	for (int round = 0; round < (atest_long() ? 400 : 40); round++) {
		int r;

		work = fix_work(f, p, NULL);
		fl.path = fix_path(f, "%s/file", work);
		fl.beside = fix_path(f, "%s/.beside", work);
		atomic_store(&fl.over, false);
		expect(pthread_create(&thread, NULL, flip, &fl) == 0);
		sleep_ms(round % 7);
		r = atoll_plan_commit(p, 0, f->res);
		atomic_store(&fl.over, true);
		expect(pthread_join(thread, NULL) == 0);
		expect_msg(r == 0 || r == -EBUSY, "commit: %d %s", r, atoll_result_message(f->res));
		expect_no_secret(f, root);
	}
}

/* In a command, while others look at the plan. */
static void sec_03_flipper_in_a_command(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *secret = fix_path(f, "%s/secret", f->dir);
	struct atoll_plan *p;

	put_text(fix_path(f, "%s/file", root), "original\n");
	put_text(secret, SECRET);
	set_mode(secret, 0600);
	p = plan_overlay(f, root);
	for (int round = 0; round < 3; round++) {
		run_ok(f, p, root,
		       fix_path(f,
		                "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo plain > b; "
		                "mv b file; ln -s '%s' b; mv b file; done",
		                secret));
		struct listing *l = diff_take(f, p);

		expect(l->n == 1);
		diff_free(l);
		expect_commit(f, p);
		expect_no_secret(f, root);
	}
}

static void sec_04_links_that_leave_the_tree(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char *before;

	put_link(fix_path(f, "%s/old", root), "/etc/passwd");
	put_link(fix_path(f, "%s/old-too", root), "../../x");
	put_dir(fix_path(f, "%s/d", root), 0755);
	before = man_take(root);
	p = plan_overlay(f, root);
	run_ok(f, p, root,
	       "ln -s /etc/passwd new; ln -s ../../x d/new; ln -s ../old d/fine; "
	       "touch -h -d 2011-11-11 old; mkdir -p n/m; ln -s ../../../up n/m/l");
	expect_code(f, atoll_plan_commit(p, ATOLL_DENY_ESCAPING_LINKS, f->res), -ATOLL_E_POLICY);
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "new"));
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "d/new"));
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "n/m/l"));
	expect_eq(fix_notes(f, ATOLL_NOTE_ESCAPING_LINK), 3);
	expect_man(root, before);
	expect_commit(f, p);
	expect_eq(fix_notes(f, ATOLL_NOTE_ESCAPING_LINK), 3);
	run_plain(root,
	          "[ \"$(readlink new)\" = /etc/passwd ]; [ \"$(readlink old)\" = /etc/passwd ]");
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(ovl_01_view_is_the_original_after_rollback),
		mtest(ovl_01_view_is_the_original_after_reset),
		mtest(ovl_02_still_a_real_overlay_after_rollback),
		mtest(ovl_02_commands_see_the_host_mount),
		mtest(ovl_02_an_ordinary_user_has_no_path),
		mtest(ovl_03_busy_mount_stops_a_rollback),
		mtest(ovl_03_writer_in_the_mount_stops_a_commit),
		mtest(ovl_04_05_a_command_that_hangs_is_bounded),
		mtest(ovl_06_any_path_works),
		mtest(ovl_07_links_stay_links),
		mtest(der_21_dif_06_result_is_the_view),
		mtest(der_21_hard_linked_lower_file_edited),
		mtest(der_21_no_marks_in_the_resource),
		mtest(sec_03_flipper_in_the_host_mount),
		mtest(sec_03_flipper_in_a_command),
		mtest(sec_04_links_that_leave_the_tree),
	};

	become_user(argc, argv);
	return atest_main(argc, argv, tests, children);
}
