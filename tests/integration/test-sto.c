/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage locking (rules STO): find-or-create is one step between processes, the store's lock is
 * held for a moment only, by every writer, and let go on every path.
 */
#include "lib/more.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORE_LOCK "store.lk"
#define CROWD      30
#define WAIT_MS    200

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/file", root), "old\n");
	return root;
}

/* ---- STO-01 ---- */

static char crowd_store[PATH_MAX + 32];

/* One of the crowd: opens a store that may not exist yet, finds or makes the plan and its
 * sandbox, and writes down the id it got. */
static int find_or_create(struct fix *f, size_t i)
{
	const struct atoll_resource r = { .root = fix_path(f, "%s/root", f->dir),
		                          .strategy = "copy" };
	struct atoll_plan *p = NULL;
	struct atoll *a = NULL;
	int code = atoll_open(crowd_store, &a, NULL);

	if (code == 0)
		code = atoll_plan_start(a, "shared", ATOLL_START_OR_OPEN, &p, NULL);
	if (code == 0)
		code = atoll_plan_add(p, &r, NULL);
	if (code == -ATOLL_E_EXISTS)
		code = 0;
	if (code == 0)
		put_text(fix_path(f, "%s/ids/%zu", f->dir, i), atoll_plan_id(p));
	atoll_plan_free(p);
	atoll_close(a);
	return code;
}

static int count_sandboxes(void *user, const struct atoll_plan_info *info)
{
	*(size_t *)user += info->sandboxes;
	return 0;
}

static void expect_one_id(struct fix *f, const char *id)
{
	for (size_t i = 0; i < CROWD; i++) {
		const char *file = fix_path(f, "%s/ids/%zu", f->dir, i);

		expect_text(file, id);
		remove_entry(file);
	}
}

static void crowd_round(struct fix *f, unsigned round)
{
	struct atoll_plan *p = NULL;
	struct atoll *a = NULL;
	size_t sandboxes = 0;

	(void)snprintf(crowd_store, sizeof(crowd_store), "%s/store%u", f->dir, round);
	expect_eq(together(CROWD, find_or_create, f), CROWD);
	expect_ok(f, atoll_open(crowd_store, &a, f->res));
	expect_eq(atoll_count_plans(a, f->res), 1);
	expect_eq(atoll_count_paths(a, f->res), 1);
	expect_ok(f, atoll_plan_list(a, count_sandboxes, &sandboxes, f->res));
	expect_eq(sandboxes, 1);
	expect_ok(f, atoll_plan_find(a, "shared", &p, f->res));
	expect_one_id(f, atoll_plan_id(p));
	wait_for_helpers();
	expect_eq(count_entries(fix_path(f, "%s/plans", crowd_store)), 1);
	expect_ok(f, atoll_plan_stop(p, 0, f->res));
	atoll_plan_free(p);
	atoll_close(a);
	wait_for_helpers();
	remove_entry(crowd_store);
}

static void sto_01_thirty_processes_make_one_sandbox(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	char *before = man_take(root);

	(void)fix_dir(f, "ids");
	for (unsigned i = 0; i < (atest_long() ? 100 : 20); i++)
		crowd_round(f, i);
	expect_man(root, before);
	free(before);
}

/* ---- STO-02 ---- */

/* Runs the script ARG in the plan "busy", beginning in its resource. */
static int child_execs(const char *dir, const char *arg)
{
	const char *const argv[] = { "/bin/sh", "-c", arg, NULL };
	struct fix f = { .a = NULL };
	struct atoll_exec_status status = { .exit_code = -1 };
	struct atoll_plan *p = NULL;
	struct atoll_exec exec = { .argv = argv };

	fix_attach(&f, dir);
	exec.cwd = fix_path(&f, "%s/root", dir);
	expect_ok(&f, atoll_plan_find(f.a, "busy", &p, f.res));
	expect_ok(&f, atoll_plan_exec(p, &exec, &status, f.res));
	atoll_plan_free(p);
	fix_detach(&f);
	return status.exit_code;
}

static int ignore_plan(void *user, const struct atoll_plan_info *info)
{
	(void)user;
	(void)info;
	return 0;
}

static int ignore_event(void *user, const struct atoll_event *event)
{
	(void)user;
	(void)event;
	return 0;
}

static void sto_02_nobody_waits_for_a_running_command(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root"), *other = put_root(f, "other"), *work;
	const char *const argv[] = { "/bin/true", NULL };
	const struct atoll_exec second = { .argv = argv, .cwd = root };
	struct atoll_plan *p = fix_plan(f, "busy"), *q;
	struct atoll_exec_status status;
	char pid_text[32];
	pid_t pid;

	fix_add(f, p, root, "copy");
	work = fix_work(f, p, NULL);
	pid = child_start(f, "execs",
	                  "touch started; while [ ! -e go ]; do sleep 0.01; done; touch ended",
	                  NULL);
	wait_for_file(fix_path(f, "%s/started", work));

	expect_ok(f, atoll_plan_list(f->a, ignore_plan, NULL, f->res));
	expect_ok(f, atoll_plan_show(p, ignore_plan, NULL, f->res));
	expect_ok(f, atoll_plan_history(p, ignore_event, NULL, f->res));
	expect_ok(f, atoll_plan_diff(p, NULL, NULL, f->res));
	q = plan_over(f, other);
	put_text(fix_path(f, "%s/file", fix_work(f, q, NULL)), "new\n");
	expect_commit(f, q);
	expect_text(fix_path(f, "%s/file", other), "new\n");
	/* A second command finds its plan and learns at once who is in front of it. */
	atoll_set_wait(f->a, 0);
	expect_code(f, atoll_plan_exec(p, &second, &status, f->res), -ATOLL_E_BUSY);
	(void)snprintf(pid_text, sizeof(pid_text), "pid %d", (int)pid);
	expect_msg(strstr(atoll_result_message(f->res), pid_text) != NULL, "'%s' lacks '%s'",
	           atoll_result_message(f->res), pid_text);
	expect_msg(!exists(fix_path(f, "%s/ended", work)), "the command was waited for");
	atoll_set_wait(f->a, -1);
	put_text(fix_path(f, "%s/go", work), "");
	expect_eq(child_wait(pid), 0);
	expect(exists(fix_path(f, "%s/ended", work)));
	expect_ok(f, atoll_plan_exec(p, &second, &status, f->res));
	expect_eq(status.exit_code, 0);
}

/* ---- STO-03 ---- */

static void expect_waits(struct fix *f, const struct held *h, int r, const char *what)
{
	char pid_text[32];

	expect_msg(r == -ATOLL_E_TIMEOUT, "%s did not wait: %s, %s", what, atoll_code_name(r),
	           atoll_result_message(f->res));
	(void)snprintf(pid_text, sizeof(pid_text), "pid %d", (int)h->pid);
	expect_msg(strstr(atoll_result_message(f->res), pid_text) != NULL, "%s: '%s' lacks '%s'",
	           what, atoll_result_message(f->res), pid_text);
}

static void expect_writers_wait(struct fix *f, struct atoll_plan *p, const struct held *h)
{
	const struct atoll_resource r = { .root = fix_path(f, "%s/other", f->dir),
		                          .strategy = "copy" };
	const char *const argv[] = { "/bin/true", NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = "/" };
	struct atoll_exec_status status;
	struct atoll_plan *q = NULL;

	expect_waits(f, h, atoll_plan_start(f->a, "new", 0, &q, f->res), "start");
	expect_waits(f, h, atoll_plan_add(p, &r, f->res), "add");
	expect_waits(f, h, atoll_plan_exec(p, &exec, &status, f->res), "exec");
	expect_waits(f, h, atoll_plan_commit(p, 0, f->res), "commit");
	expect_waits(f, h, atoll_plan_reset(p, f->res), "reset");
	expect_waits(f, h, atoll_plan_rollback(p, 0, f->res), "rollback");
	expect_waits(f, h, atoll_plan_stop(p, ATOLL_FORCE, f->res), "stop");
}

static int ignore_path(void *user, const char *plan, const char *path)
{
	(void)user;
	(void)plan;
	(void)path;
	return 0;
}

static void expect_readers_do_not(struct fix *f, struct atoll_plan *p)
{
	struct atoll_plan *q = NULL;

	expect_ok(f, atoll_plan_find(f->a, "p", &q, f->res));
	atoll_plan_free(q);
	expect_ok(f, atoll_plan_list(f->a, ignore_plan, NULL, f->res));
	expect_ok(f, atoll_plan_show(p, ignore_plan, NULL, f->res));
	expect_ok(f, atoll_plan_history(p, ignore_event, NULL, f->res));
	expect_ok(f, atoll_plan_paths(p, ignore_path, NULL, f->res));
	expect_ok(f, atoll_scan(f->a, ignore_path, NULL, f->res));
	expect_eq(atoll_plan_diff(p, NULL, NULL, f->res), 1);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
}

static void sto_03_every_writer_takes_the_lock(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = fix_plan(f, "p");
	char *before = man_take(root), *view;
	struct held h;

	(void)put_root(f, "other");
	fix_add(f, p, root, "copy");
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	view = man_take(fix_work(f, p, NULL));
	h = hold_lock(f, STORE_LOCK);
	atoll_set_wait(f->a, WAIT_MS);
	expect_readers_do_not(f, p);
	expect_writers_wait(f, p, &h);
	expect_readers_do_not(f, p);
	expect_man(root, before);
	let_go(&h);
	atoll_set_wait(f->a, -1);
	expect_man(fix_work(f, p, NULL), view);
	expect_commit(f, p);
	expect_man(root, view);
	free(before);
	free(view);
}

static void sto_03_purge_takes_the_lock(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	pid_t owner = owner_start(f, "owned", "root", false);
	struct held h;

	owner_kill(f, owner, "owned");
	h = hold_lock(f, STORE_LOCK);
	atoll_set_wait(f->a, WAIT_MS);
	expect_waits(f, &h, atoll_purge(f->a, 0, f->res), "purge");
	expect_eq(scanned(f), 1);
	let_go(&h);
	atoll_set_wait(f->a, -1);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

/* Plans of its own, every third stopped again, mixed with looks at all. */
static int mixed_commands(struct fix *f, size_t i)
{
	const struct atoll_resource r = { .root = fix_path(f, "%s/root", f->dir),
		                          .strategy = "copy" };
	unsigned n = atest_long() ? 60 : 12;
	struct fix mine = { .a = NULL };
	int code = 0;

	fix_attach(&mine, f->dir);
	for (unsigned k = 0; code >= 0 && k < n; k++) {
		char name[32];
		struct atoll_plan *p = NULL;

		(void)snprintf(name, sizeof(name), "p%zu-%u", i, k);
		code = atoll_plan_start(mine.a, name, 0, &p, mine.res);
		if (code == 0 && k % 4 == 0)
			code = atoll_plan_add(p, &r, mine.res);
		if (code == 0)
			code = atoll_plan_list(mine.a, ignore_plan, NULL, mine.res);
		if (code == 0 && k % 3 == 0)
			code = atoll_plan_stop(p, 0, mine.res);
		atoll_plan_free(p);
	}
	fix_detach(&mine);
	return code < 0;
}

static void sto_03_no_record_is_lost(void **state)
{
	struct fix *f = *state;
	unsigned n = atest_long() ? 60 : 12, crowd = 8;
	const char *root = put_root(f, "root");
	char *before = man_take(root);

	expect_eq(together(crowd, mixed_commands, f), crowd);
	expect_eq(atoll_count_plans(f->a, f->res), crowd * (n - (n + 2) / 3));
	for (unsigned i = 0; i < crowd; i++) {
		for (unsigned k = 0; k < n; k++) {
			struct atoll_plan *p = NULL;
			int r = atoll_plan_find(f->a, fix_path(f, "p%u-%u", i, k), &p, f->res);

			/* A name that is a prefix of others may be ambiguous once it is gone. */
			if (k % 3 == 0)
				expect(r == -ATOLL_E_NOT_FOUND || r == -ATOLL_E_AMBIGUOUS ||
				       (r == 0 && strcmp(atoll_plan_name(p),
				                         fix_path(f, "p%u-%u", i, k)) != 0));
			else
				expect_ok(f, r);
			atoll_plan_free(p);
		}
	}
	expect_man(root, before);
	free(before);
}

/* ---- STO-04 ---- */

struct thread_args {
	struct fix *f;
	int code, exit_code;
};

static void *exec_on_empty(void *arg)
{
	struct thread_args *t = arg;
	const struct atoll_resource r = { .root = fix_path(t->f, "%s/root", t->f->dir),
		                          .strategy = "copy" };
	const char *const argv[] = { "/bin/true", NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = r.root };
	struct atoll_exec_status status = { .exit_code = -1 };
	struct atoll_plan *p = NULL;

	t->code = atoll_plan_start(t->f->a, "shared", ATOLL_START_OR_OPEN, &p, NULL);
	if (t->code == 0)
		t->code = atoll_plan_add(p, &r, NULL);
	if (t->code == 0 || t->code == -ATOLL_E_EXISTS)
		t->code = atoll_plan_exec(p, &exec, &status, NULL);
	t->exit_code = status.exit_code;
	atoll_plan_free(p);
	return NULL;
}

static void sto_04_exec_on_an_empty_store_ends(void **state)
{
	struct fix *f = *state;
	struct thread_args args[2] = { { .f = f }, { .f = f } };
	const char *root = put_root(f, "root");
	char *before = man_take(root);
	int64_t begun = now_ms();
	pthread_t threads[2];

	atoll_set_wait(f->a, 60000); /* whoever waited for itself would run into this */
	for (int i = 0; i < 2; i++)
		expect(pthread_create(&threads[i], NULL, exec_on_empty, &args[i]) == 0);
	for (int i = 0; i < 2; i++)
		expect(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < 2; i++) {
		expect_eq(args[i].code, 0);
		expect_eq(args[i].exit_code, 0);
	}
	expect(now_ms() - begun < 60000);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_man(root, before);
	expect_stop(f, fix_find(f, "shared"));
	free(before);
}

/* ---- STO-05 ---- */

static void expect_all_locks_free(struct fix *f)
{
	const char *dir = fix_path(f, "%s/locks", f->home);
	DIR *d = opendir(dir);
	struct dirent *e;

	expect(d != NULL);
	while (d && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			expect_msg(lock_is_free(f, e->d_name), "'%s' is still held", e->d_name);
	if (d)
		closedir(d);
}

static void sto_05_every_error_exit_lets_go(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	const struct atoll_resource missing = { .root = "/nonexistent/x", .strategy = "copy" };
	const struct atoll_resource again = { .root = root, .strategy = "copy" };
	const struct atoll_resource failing = { .root = fix_dir(f, "failing"),
		                                .strategy = "failer" };
	struct atoll_plan *p = fix_plan(f, "p-one"), *q = NULL;
	size_t fds;

	(void)fix_plan(f, "p-two");
	fix_add(f, p, root, "copy");
	failer_set(failing.root, PHASE_CREATE, FAIL_CODE, -7777);
	put_fifo(fix_path(f, "%s/fifo", fix_work(f, p, NULL)));
	wait_for_helpers();
	fds = count_fds();
	expect_code(f, atoll_plan_find(f->a, "p-", &q, f->res), -ATOLL_E_AMBIGUOUS);
	expect_code(f, atoll_plan_find(f->a, "none", &q, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, atoll_plan_start(f->a, "p-one", 0, &q, f->res), -ATOLL_E_EXISTS);
	expect_code(f, atoll_plan_start(f->a, "../x", 0, &q, f->res), -ATOLL_E_INVALID);
	expect_all_locks_free(f);
	expect_code(f, atoll_plan_add(p, &missing, f->res), -ENOENT);
	expect_code(f, atoll_plan_add(p, &again, f->res), -ATOLL_E_EXISTS);
	expect_code(f, atoll_plan_add(p, &failing, f->res), -7777);
	expect_all_locks_free(f);
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_POLICY);
	expect_code(f, atoll_plan_stop(p, 0, f->res), -ATOLL_E_STATE);
	expect_all_locks_free(f);
	expect_eq(count_fds(), fds);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

static void sto_05_a_damaged_registry_lets_go(void **state)
{
	struct fix *f = *state;
	const char *home = fix_path(f, "%s/damaged", f->dir), *root = put_root(f, "root");
	struct atoll *a = NULL;
	char *before = man_take(root);
	size_t fds;

	expect_ok(f, atoll_open(home, &a, f->res));
	atoll_close(a);
	fds = count_fds();
	remove_entry(fix_path(f, "%s/atoll.db", home));
	if (exists(fix_path(f, "%s/atoll.db-wal", home)))
		remove_entry(fix_path(f, "%s/atoll.db-wal", home));
	put_bytes(fix_path(f, "%s/atoll.db", home), 16384, 99);
	set_mode(fix_path(f, "%s/atoll.db", home), 0600);
	for (int i = 0; i < 3; i++)
		expect_code(f, atoll_open(home, &a, f->res), -ATOLL_E_DAMAGED);
	expect_eq(count_fds(), fds);
	{
		struct fix view = { .a = NULL };

		(void)snprintf(view.home, sizeof(view.home), "%s", home);
		expect_msg(lock_is_free(&view, STORE_LOCK), "the store's lock is still held");
		for (size_t i = 0; i < view.n_strings; i++)
			free(view.strings[i]);
	}
	expect_man(root, before);
	remove_entry(home);
	free(before);
}

static void sto_05_a_full_disk_lets_go(void **state)
{
	struct fix *f = *state;
	const char *mount, *home, *root;
	struct atoll_plan *p = NULL;
	struct atoll *a = NULL;
	char *before;
	size_t fds;
	int r = 0;

	need_root();
	mount = fix_tmpfs(f, "small", (size_t)2 << 20);
	home = fix_path(f, "%s/home", mount);
	root = put_root(f, "root");
	before = man_take(root);
	expect_ok(f, atoll_open(home, &a, f->res));
	fill_up(mount, "filler", 0);
	fds = count_fds();
	for (int i = 0; i < 200 && r == 0; i++) { /* what the files have room for already */
		r = atoll_plan_start(a, NULL, 0, &p, f->res);
		if (r == 0)
			atoll_plan_free(p);
	}
	expect_msg(r < 0, "the disk did not fill up");
	expect_eq(count_fds(), fds);
	{
		struct fix view = { .a = NULL };

		(void)snprintf(view.home, sizeof(view.home), "%s", home);
		expect_msg(lock_is_free(&view, STORE_LOCK), "the store's lock is still held");
		for (size_t i = 0; i < view.n_strings; i++)
			free(view.strings[i]);
	}
	remove_entry(fix_path(f, "%s/filler", mount));
	expect_ok(f, atoll_plan_start(a, "after", 0, &p, f->res));
	atoll_plan_free(p);
	atoll_close(a);
	expect_man(root, before);
	free(before);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "owner", child_owner },
		                                       { "execs", child_execs },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(sto_01_thirty_processes_make_one_sandbox),
		mtest(sto_02_nobody_waits_for_a_running_command),
		mtest(sto_03_every_writer_takes_the_lock),
		mtest(sto_03_purge_takes_the_lock),
		mtest(sto_03_no_record_is_lost),
		mtest(sto_04_exec_on_an_empty_store_ends),
		mtest(sto_05_every_error_exit_lets_go),
		mtest(sto_05_a_damaged_registry_lets_go),
		mtest(sto_05_a_full_disk_lets_go),
	};

	return atest_main(argc, argv, tests, children);
}
