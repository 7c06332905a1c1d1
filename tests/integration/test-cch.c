/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of what is on disk (rules CCH): there is one, the registry, and what it says is true at
 * every moment, for every process.
 */
#include "lib/more.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/file", root), "old\n");
	return root;
}

/* A plan whose owner is dead; its area. */
static const char *make_stale(struct fix *f, const char *name)
{
	const char *root = put_root(f, fix_path(f, "root-%s", name));
	pid_t owner = owner_start(f, name, fix_path(f, "root-%s", name), false);
	const char *area = fix_area(f, fix_find(f, name), root);

	owner_kill(f, owner, name);
	return area;
}

static void cch_01_scan_tells_the_truth_after_purge(void **state)
{
	static const char *const names[] = { "one", "two", "three" };
	struct fix *f = *state;
	const char *areas[3], *fourth;
	struct paths found = { .n = 0 };

	for (int i = 0; i < 3; i++)
		areas[i] = make_stale(f, names[i]);
	paths_scanned(f, &found);
	expect_eq(found.n, 3);
	for (int i = 0; i < 3; i++)
		expect(paths_have(&found, areas[i]));
	paths_done(&found);
	expect_eq(atoll_purge(f->a, 0, f->res), 3);
	expect_eq(scanned(f), 0);
	for (int i = 0; i < 3; i++)
		expect(!exists(areas[i]));
	fourth = make_stale(f, "four");
	paths_scanned(f, &found);
	expect_eq(found.n, 1);
	expect(paths_have(&found, fourth));
	paths_done(&found);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	for (int i = 0; i < 3; i++)
		expect_text(fix_path(f, "%s/root-%s/file", f->dir, names[i]), "old\n");
}

/* A living owner's plan is in no scan. */
static void cch_01_the_living_are_not_scanned(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root-alive");
	char *before = man_take(root);
	pid_t owner = owner_start(f, "alive", "root-alive", false);

	expect_eq(scanned(f), 0);
	expect_eq(atoll_purge(f->a, ATOLL_FORCE, f->res), 0);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	owner_kill(f, owner, "alive");
	expect_eq(scanned(f), 1);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_eq(scanned(f), 0);
	expect_man(root, before);
	free(before);
}

/* ---- CCH-02 ---- */

#define MANY    100
#define READERS 8

struct shared {
	atomic_uint phase; /* even: all recorded or all gone; odd: being added */
	atomic_uint stop;
	atomic_uint seen[2]; /* readings of none and of all */
	char plan[64];
};

static int count_path(void *user, const char *plan, const char *path)
{
	(void)plan;
	(void)path;
	(*(size_t *)user)++;
	return 0;
}

/* A reader process: 0, or 1 when it saw something in between. */
static int read_paths(struct fix *f, struct shared *s)
{
	while (!atomic_load(&s->stop)) {
		unsigned phase = atomic_load(&s->phase);
		struct atoll_plan *p = NULL;
		size_t n = 0;
		int total;

		if (phase % 2 == 1 || phase == 0) {
			sleep_ms(1);
			continue;
		}
		if (atoll_plan_find(f->a, s->plan, &p, f->res) == 0) {
			(void)atoll_plan_paths(p, count_path, &n, f->res);
			atoll_plan_free(p);
		}
		total = atoll_count_paths(f->a, f->res);
		if (atomic_load(&s->phase) != phase)
			continue;
		if ((n != 0 && n != MANY) || (total != 0 && total != MANY))
			return 1;
		atomic_fetch_add(&s->seen[n == MANY], 1);
	}
	return 0;
}

static pid_t start_path_reader(struct fix *f, struct shared *s)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct fix mine = { .a = NULL };
		int r;

		fix_attach(&mine, f->dir);
		r = read_paths(&mine, s);
		fix_detach(&mine);
		_exit(r);
	}
	expect(pid > 0);
	return pid;
}

static void record_many(struct fix *f, struct atoll_plan *p, const char *dir)
{
	for (int i = 0; i < MANY; i++) {
		const char *root = fix_path(f, "%s/r%03d", dir, i);

		if (!exists(root))
			put_dir(root, 0755);
		fix_add(f, p, root, "copy");
	}
}

/* A reader has seen all of them (WHICH 1) or none, once more. */
static void await_look(struct shared *s, int which)
{
	unsigned before = atomic_load(&s->seen[which]);
	int64_t end = now_ms() + 60000;

	while (atomic_load(&s->seen[which]) == before && now_ms() < end)
		sleep_ms(1);
}

static void cch_02_a_plan_s_paths_go_in_one_step(void **state)
{
	struct fix *f = *state;
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned rounds = atest_long() ? 20 : 2;
	const char *dir = fix_dir(f, "roots");
	pid_t readers[READERS];

	expect(s != MAP_FAILED);
	(void)snprintf(s->plan, sizeof(s->plan), "many");
	for (int i = 0; i < READERS; i++)
		readers[i] = start_path_reader(f, s);
	for (unsigned i = 0; i < rounds; i++) {
		struct atoll_plan *p;

		atomic_store(&s->phase, 2 * i + 1);
		p = fix_plan(f, "many");
		record_many(f, p, dir);
		atomic_store(&s->phase, 2 * i + 2);
		await_look(s, 1);
		sleep_ms(20);
		expect_ok(f, atoll_plan_stop(p, 0, f->res));
		fix_forget(f, p);
		await_look(s, 0);
		sleep_ms(20);
	}
	atomic_store(&s->stop, 1);
	for (int i = 0; i < READERS; i++)
		expect_eq(child_wait(readers[i]), 0);
	expect_msg(atomic_load(&s->seen[0]) > 0 && atomic_load(&s->seen[1]) > 0,
	           "nobody looked: %u, %u", atomic_load(&s->seen[0]), atomic_load(&s->seen[1]));
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	(void)munmap(s, sizeof(*s));
}

/* ---- CCH-03 ---- */

static int child_exits(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;

	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_start(f.a, arg, ATOLL_START_OWNED, &p, f.res));
	fix_add(&f, p, fix_path(&f, "%s/root-%s", dir, arg), "copy");
	expect_eq(atoll_count_paths(f.a, f.res), 1);
	exit(0);
}

static void cch_03_every_exit_drops_the_entries(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	char *before = man_take(root);
	struct atoll_plan *p = plan_over(f, root);

	/* stop */
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_ok(f, atoll_plan_stop(p, 0, f->res));
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	/* stop by force, with work */
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	expect_code(f, atoll_plan_stop(p, 0, f->res), -ATOLL_E_STATE);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	/* purge */
	(void)make_stale(f, "stale");
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	/* exit */
	(void)put_root(f, "root-exits");
	expect_eq(child_run(f, "exits", "exits", NULL), 0);
	wait_for_helpers();
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	expect_man(root, before);
	free(before);
}

/* An owner of three, dead. */
static int child_owns_three(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;

	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_start(f.a, arg, ATOLL_START_OWNED, &p, f.res));
	for (int i = 0; i < 3; i++)
		fix_add(&f, p, fix_path(&f, "%s/root%d", dir, i), "copy");
	(void)kill(getpid(), SIGKILL);
	return 1;
}

static void cch_03_what_is_partly_cleaned_keeps_the_rest(void **state)
{
	struct fix *f = *state;
	const char *area, *stuck;
	struct paths left = { .n = 0 };

	need_root();
	for (int i = 0; i < 3; i++)
		(void)put_root(f, fix_path(f, "root%d", i));
	expect_eq(child_run(f, "owns-three", "three", NULL), 128 + SIGKILL);
	wait_for_helpers();
	area = fix_area(f, fix_find(f, "three"), fix_path(f, "%s/root1", f->dir));
	stuck = fix_path(f, "%s/stuck", area);
	put_text(stuck, "stuck\n");
	set_immutable(stuck, true);
	expect_eq(atoll_count_paths(f->a, f->res), 3);
	expect(atoll_purge(f->a, 0, f->res) < 0);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	paths_of_plan(f, fix_find(f, "three"), &left);
	expect_eq(left.n, 1);
	expect(paths_have(&left, area));
	paths_done(&left);
	paths_scanned(f, &left);
	expect_eq(left.n, 1);
	expect(paths_have(&left, area));
	paths_done(&left);
	set_immutable(stuck, false);
	expect_eq(atoll_purge(f->a, 0, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_text(fix_path(f, "%s/root1/file", f->dir), "old\n");
}

/* ---- CCH-04, CCH-05 ---- */

static int ignore_path(void *user, const char *plan, const char *path)
{
	(void)user;
	(void)plan;
	(void)path;
	return 0;
}

static void cch_04_empty_arguments_are_refused(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root), *q = NULL;
	const struct atoll_resource none = { .root = NULL }, empty = { .root = "" };
	const struct atoll_resource no_strategy = { .root = root, .strategy = "" };
	const struct atoll_resource no_parent = { .root = root, .parent = "" };
	enum atoll_sandbox_state s;
	char *inodes = man_inodes(root), *path = NULL;

	expect_code(f, atoll_plan_start(f->a, "", 0, &q, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_start(f->a, "x", 0, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_start(NULL, "x", 0, &q, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_find(f->a, NULL, &q, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_find(f->a, "", &q, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_add(p, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_add(p, &none, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_add(p, &empty, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_add(p, &no_strategy, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_add(p, &no_parent, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_paths(NULL, ignore_path, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_paths(p, NULL, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_sandbox_path(p, "", &path, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_sandbox_state(p, "", &s, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_plan_stop(NULL, 0, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_scan(NULL, ignore_path, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_scan(f->a, NULL, NULL, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_purge(NULL, 0, f->res), -ATOLL_E_INVALID);
	expect_code(f, atoll_recover(f->a, "", false, f->res), -ATOLL_E_INVALID);
	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_eq(atoll_count_paths(f->a, f->res), 1);
	expect_inodes(root, inodes);
	free(inodes);
}

static void cch_05_counts_lists_and_membership(void **state)
{
	struct fix *f = *state;
	struct paths one = { .n = 0 }, two = { .n = 0 };
	const char *r1 = put_root(f, "r1"), *r2 = put_root(f, "r2"), *r3 = put_root(f, "r3");
	struct atoll_plan *p, *q;

	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	p = plan_over(f, r1);
	fix_add(f, p, r2, "copy");
	q = plan_over(f, r3);
	expect_eq(atoll_count_plans(f->a, f->res), 2);
	expect_eq(atoll_count_paths(f->a, f->res), 3);
	paths_of_plan(f, p, &one);
	paths_of_plan(f, q, &two);
	expect_eq(one.n, 2);
	expect_eq(two.n, 1);
	expect(paths_have(&one, fix_area(f, p, r1)) && paths_have(&one, fix_area(f, p, r2)));
	expect(paths_have(&two, fix_area(f, q, r3)) && !paths_have(&one, fix_area(f, q, r3)));
	paths_done(&one);
	paths_done(&two);
	expect_text(fix_path(f, "%s/file", r1), "old\n");
}

/* ---- CCH-06 ---- */

static void commit_in_order(struct fix *f, const char *first, const char *second)
{
	const char *log = fix_path(f, "%s/effects", f->dir);
	const char *parent = fix_path(f, "%s/%s", f->dir, second);
	const char *child = fix_path(f, "%s/%s", f->dir, first);
	struct atoll_plan *p = fix_plan(f, "order");
	char *text, *at_first, *at_second;
	char line[64];

	put_text(log, "");
	fix_add(f, p, parent, "failer");
	fix_add_child(f, p, child, "failer", parent);
	put_text(fix_path(f, "%s/value", fix_work(f, p, parent)), first);
	put_text(fix_path(f, "%s/value", fix_work(f, p, child)), first);
	effect_log(log);
	expect_commit(f, p);
	effect_log(NULL);
	expect_text(fix_path(f, "%s/value", child), first);
	text = get_text(log);
	(void)snprintf(line, sizeof(line), "commit %s\n", first);
	at_first = strstr(text, line);
	(void)snprintf(line, sizeof(line), "commit %s\n", second);
	at_second = strstr(text, line);
	expect_msg(at_first && at_second && at_first < at_second, "order is\n%s", text);
	free(text);
	expect_stop(f, p);
}

static void cch_06_a_new_relation_is_followed(void **state)
{
	struct fix *f = *state;

	put_text(fix_path(f, "%s/value", fix_dir(f, "alpha")), "0");
	put_text(fix_path(f, "%s/value", fix_dir(f, "beta")), "0");
	commit_in_order(f, "alpha", "beta");
	commit_in_order(f, "beta", "alpha");
	commit_in_order(f, "alpha", "beta");
}

/* ---- CCH-07 ---- */

static void cch_07_what_was_removed_outside_is_not_listed(void **state)
{
	struct fix *f = *state;
	const char *one = make_stale(f, "one"), *two = make_stale(f, "two");
	struct paths found = { .n = 0 };

	expect_eq(scanned(f), 2);
	remove_entry(one);
	paths_scanned(f, &found);
	expect_eq(found.n, 1);
	expect(paths_have(&found, two));
	paths_done(&found);
	expect_eq(atoll_purge(f->a, 0, f->res), 2);
	expect_eq(scanned(f), 0);
	expect_text(fix_path(f, "%s/root-one/file", f->dir), "old\n");
}

static int purge_elsewhere(struct fix *f, void *user)
{
	struct fix mine = { .a = NULL };
	int n;

	(void)user;
	fix_attach(&mine, f->dir);
	n = atoll_purge(mine.a, 0, mine.res);
	fix_detach(&mine);
	return n == 1 ? 0 : 1;
}

static void cch_07_another_process_purges(void **state)
{
	struct fix *f = *state;
	const char *area = make_stale(f, "one");

	expect_eq(scanned(f), 1);
	expect_eq(fork_run(f, purge_elsewhere, NULL), 0);
	expect_eq(scanned(f), 0);
	expect(!exists(area));
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_text(fix_path(f, "%s/root-one/file", f->dir), "old\n");
}

/* A directory in the store that no record knows is found and taken. */
static void cch_07_strays_are_found(void **state)
{
	struct fix *f = *state;
	const char *stray = fix_path(f, "%s/plans/0123456789abcdef-1", f->home);
	const char *root = put_root(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	struct paths found = { .n = 0 };

	put_dir(stray, 0700);
	put_text(fix_path(f, "%s/x", stray), "x\n");
	paths_scanned(f, &found);
	expect_eq(found.n, 1);
	expect(paths_have(&found, stray));
	paths_done(&found);
	expect_ok(f, atoll_purge(f->a, 0, f->res));
	expect(!exists(stray));
	expect(exists(fix_area(f, p, root)));
	expect_eq(scanned(f), 0);
	expect_text(fix_path(f, "%s/file", root), "old\n");
}

/* ---- CCH-08 ---- */

static struct paths *collecting;

static int collect_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	if (collecting->n < sizeof(collecting->v) / sizeof(collecting->v[0]))
		collecting->v[collecting->n++] = strdup(path);
	return 0;
}

static void list_all(struct fix *f, const char *mount, struct paths *ret)
{
	wait_for_helpers();
	ret->n = 0;
	collecting = ret;
	expect(nftw(f->dir, collect_path, 16, FTW_PHYS) == 0);
	expect(nftw(mount, collect_path, 16, FTW_PHYS) == 0);
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Listed, below what is listed, or the directory around it; or the registry's own. */
static bool is_covered(struct fix *f, const char *path, const struct paths *listed)
{
	if (below(path, fix_path(f, "%s/locks", f->home)) ||
	    strncmp(path, fix_path(f, "%s/atoll.db", f->home), strlen(f->home) + 9) == 0)
		return true;
	for (size_t i = 0; i < listed->n; i++)
		if (below(path, listed->v[i]) || below(listed->v[i], path))
			return true;
	return false;
}

static void expect_covered(struct fix *f, const char *mount, const struct atoll_resource *r)
{
	struct paths before = { .n = 0 }, after = { .n = 0 }, listed = { .n = 0 };
	struct atoll_plan *p = fix_plan(f, NULL);
	size_t new_entries = 0;

	list_all(f, mount, &before);
	expect_ok(f, atoll_plan_add(p, r, f->res));
	list_all(f, mount, &after);
	paths_of_plan(f, p, &listed);
	expect(listed.n > 0);
	for (size_t i = 0; i < after.n; i++) {
		if (paths_have(&before, after.v[i]))
			continue;
		new_entries++;
		expect_msg(is_covered(f, after.v[i], &listed), "'%s' is on no record", after.v[i]);
	}
	expect(new_entries > 0);
	expect_stop(f, p);
	paths_done(&after);
	list_all(f, mount, &after);
	for (size_t i = 0; i < after.n; i++)
		expect_msg(paths_have(&before, after.v[i]) || is_covered(f, after.v[i], &before),
		           "'%s' was left", after.v[i]);
	paths_done(&before);
	paths_done(&after);
	paths_done(&listed);
}

static void cch_08_what_is_made_is_on_record(void **state)
{
	struct fix *f = *state;
	const char *mount = other_mount(f);
	const char *here = put_root(f, "here"), *there = fix_path(f, "%s/there", mount);

	put_text(fix_path(f, "%s/value", here), "1");
	put_dir(there, 0755);
	put_text(fix_path(f, "%s/file", there), "x\n");
	expect_covered(f, mount, &(struct atoll_resource){ .root = here, .strategy = "copy" });
	expect_covered(f, mount, &(struct atoll_resource){ .root = there, .strategy = "copy" });
	expect_covered(f, mount,
	               &(struct atoll_resource){ .root = there,
	                                         .strategy = "copy",
	                                         .work_in_store = true });
	expect_covered(f, mount, &(struct atoll_resource){ .root = here, .strategy = "failer" });
	expect_covered(f, mount, &(struct atoll_resource){ .root = here, .strategy = "none" });
	expect_text(fix_path(f, "%s/file", there), "x\n");
}

static int child_adds(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	struct atoll_plan *p = NULL;

	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_start(f.a, "dying", ATOLL_START_OWNED, &p, f.res));
	fix_add(&f, p, arg, "copy");
	return 0;
}

/* Killed at every step of creation: purge finds what there is. */
static void cch_08_what_a_dying_creator_made_is_found(void **state)
{
	static const char *const points[] = { "ATOLL_CRASHPOINT=plan.add.after-record",
		                              "ATOLL_CRASHPOINT=plan.add.after-area",
		                              "ATOLL_CRASHPOINT=copy.create.copied",
		                              "ATOLL_CRASHPOINT=plan.add.after-create" };
	struct fix *f = *state;
	const char *mount = other_mount(f), *root = fix_path(f, "%s/root", mount);
	size_t beside;
	char *before;

	put_dir(root, 0755);
	put_text(fix_path(f, "%s/file", root), "x\n");
	before = man_take(root);
	beside = count_entries(mount);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		const char *const env[] = { points[i], NULL };

		expect_eq(child_run(f, "adds", root, env), 128 + SIGKILL);
		wait_for_helpers();
		expect_msg(atoll_count_paths(f->a, f->res) == 1, "%s: not recorded", points[i]);
		if (i > 0)
			expect_eq(scanned(f), 1);
		expect_eq(atoll_purge(f->a, 0, f->res), 1);
		expect_eq(scanned(f), 0);
		expect_eq(atoll_count_paths(f->a, f->res), 0);
		expect_eq(count_entries(mount), beside);
		expect_man(root, before);
	}
	free(before);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "owner", child_owner },
		                                       { "exits", child_exits },
		                                       { "owns-three", child_owns_three },
		                                       { "adds", child_adds },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(cch_01_scan_tells_the_truth_after_purge),
		mtest(cch_01_the_living_are_not_scanned),
		mtest(cch_02_a_plan_s_paths_go_in_one_step),
		mtest(cch_03_every_exit_drops_the_entries),
		mtest(cch_03_what_is_partly_cleaned_keeps_the_rest),
		mtest(cch_04_empty_arguments_are_refused),
		mtest(cch_05_counts_lists_and_membership),
		mtest(cch_06_a_new_relation_is_followed),
		mtest(cch_07_what_was_removed_outside_is_not_listed),
		mtest(cch_07_another_process_purges),
		mtest(cch_07_strays_are_found),
		mtest(cch_08_what_is_made_is_on_record),
		mtest(cch_08_what_a_dying_creator_made_is_found),
	};

	return atest_main(argc, argv, tests, children);
}
