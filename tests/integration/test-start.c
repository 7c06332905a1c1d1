/* SPDX-License-Identifier: Apache-2.0 */
/* Plans started with all their resources: as one unit, whoever races, fails or dies. */
#include "lib/more.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define RACERS 30

static const char *put_root(struct fix *f, const char *name)
{
	const char *root = fix_dir(f, name);

	put_text(fix_path(f, "%s/value", root), "1\n");
	put_text(fix_path(f, "%s/file", root), "old\n");
	return root;
}

/* Of N roots, all with one strategy. */
static int start_over(struct fix *f, const char *name, unsigned flags, const char *const *roots,
                      size_t n, const char *strategy)
{
	struct atoll_resource v[8] = { { 0 } };
	const struct atoll_start start = { .name = name,
		                           .flags = flags,
		                           .resources = v,
		                           .n_resources = n };
	struct atoll_plan *p = NULL;
	int r;

	for (size_t i = 0; i < n; i++)
		v[i] = (struct atoll_resource){ .root = roots[i], .strategy = strategy };
	r = atoll_plan_start_with(f->a, &start, &p, f->res);
	atoll_plan_free(p);
	return r;
}

static int count_made(void *user, const struct atoll_sandbox_info *info)
{
	size_t *made = user;

	expect(info->state == ATOLL_SANDBOX_CREATED || info->state == ATOLL_SANDBOX_ACTIVE);
	(*made)++;
	return 0;
}

/* One plan, whole, and nothing else. */
static void expect_whole(struct fix *f, const char *name, size_t sandboxes)
{
	size_t made = 0;

	expect_eq(atoll_count_plans(f->a, f->res), 1);
	expect_ok(f, atoll_plan_sandboxes(fix_find(f, name), count_made, &made, f->res));
	expect_eq(made, sandboxes);
	expect_eq(atoll_count_paths(f->a, f->res), sandboxes);
	wait_for_helpers();
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), sandboxes);
}

static void expect_nothing(struct fix *f)
{
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	wait_for_helpers();
	expect_eq(count_entries(fix_path(f, "%s/plans", f->home)), 0);
	expect_eq(scanned(f), 0);
}

/* ---- dying and waiting ---- */

static int stop_here(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)user;
	(void)p;
	(void)phase;
	(void)raise(SIGSTOP);
	return 0;
}

/* ARG "creator": stops while it makes the second of three. */
static int child_starts(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	const char *roots[3];

	fix_attach(&f, dir);
	faulty_register();
	for (int i = 0; i < 3; i++)
		roots[i] = fix_path(&f, "%s/r%d", dir, i);
	if (strcmp(arg, "creator") == 0)
		phase_hook(roots[1], PHASE_CREATE, stop_here, NULL);
	expect_ok(&f, start_over(&f, "shared", ATOLL_START_OR_OPEN, roots, 3, "gate"));
	put_text(fix_path(&f, "%s/started-%s", dir, arg), "");
	fix_detach(&f);
	return 0;
}

/* Another command on the plan: it must wait for the whole, too. */
static int child_uses(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	const struct atoll_resource more = { .root = arg, .strategy = "gate" };
	struct atoll_plan *p = NULL;
	int r;

	fix_attach(&f, dir);
	faulty_register();
	expect_ok(&f, atoll_plan_find(f.a, "shared", &p, f.res));
	put_text(fix_path(&f, "%s/found", dir), "");
	r = atoll_plan_add(p, &more, f.res);
	put_text(fix_path(&f, "%s/used", dir), atoll_code_name(r));
	atoll_plan_free(p);
	fix_detach(&f);
	return 0;
}

static int is_starting(void *user, const struct atoll_plan_info *info)
{
	*(int *)user = info->starting ? 1 : info->in_doubt ? 2 : 0;
	return 0;
}

static int shown(struct fix *f)
{
	int how = -1;

	expect_ok(f, atoll_plan_list(f->a, is_starting, &how, f->res));
	return how;
}

static pid_t stopped_creator(struct fix *f)
{
	pid_t creator;
	int status;

	for (int i = 0; i < 3; i++)
		if (!exists(fix_path(f, "%s/r%d", f->dir, i)))
			(void)put_root(f, fix_path(f, "r%d", i));
	creator = child_start(f, "starts", "creator", NULL);
	expect(waitpid(creator, &status, WUNTRACED) == creator && WIFSTOPPED(status));
	return creator;
}

static void others_wait(struct fix *f, bool kill_it)
{
	pid_t creator = stopped_creator(f), others[4], user;
	const char *more = put_root(f, "more");

	expect_eq(shown(f), 1);
	for (int i = 0; i < 4; i++)
		others[i] = child_start(f, "starts", fix_path(f, "%d", i), NULL);
	user = child_start(f, "uses", more, NULL);
	wait_for_file(fix_path(f, "%s/found", f->dir));
	sleep_ms(400);
	for (int i = 0; i < 4; i++)
		expect_msg(!exists(fix_path(f, "%s/started-%d", f->dir, i)),
		           "did not wait for the creator");
	expect_msg(!exists(fix_path(f, "%s/used", f->dir)), "used half a plan");
	expect(kill(creator, kill_it ? SIGKILL : SIGCONT) == 0);
	expect_eq(child_wait(creator), kill_it ? 128 + SIGKILL : 0);
	for (int i = 0; i < 4; i++)
		expect_eq(child_wait(others[i]), 0);
	expect_eq(child_wait(user), 0);
	/* The plan it found is gone with its maker, or it joined the whole one. */
	expect_text(fix_path(f, "%s/used", f->dir), kill_it ? "not-found" : "ok");
	expect_whole(f, "shared", kill_it ? 3 : 4);
	expect_stop(f, fix_find(f, "shared"));
	expect_nothing(f);
}

static void der_13_a_stopped_start_is_waited_for(void **state)
{
	others_wait(*state, false);
}

static void der_13_a_killed_start_is_taken_over(void **state)
{
	others_wait(*state, true);
}

static void der_13_a_name_is_free_again_when_its_maker_died(void **state)
{
	struct fix *f = *state;
	pid_t creator = stopped_creator(f);
	const char *root = fix_path(f, "%s/r0", f->dir);

	expect_code(f, start_over(f, "shared", 0, &root, 1, "gate"), -ATOLL_E_EXISTS);
	expect(strstr(atoll_result_message(f->res), "being made") != NULL);
	kill_child(creator);
	expect_eq(shown(f), 2);
	expect_ok(f, start_over(f, "shared", 0, &root, 1, "gate"));
	expect_whole(f, "shared", 1);
	expect_stop(f, fix_find(f, "shared"));
}

static void der_13_any_command_removes_what_a_killed_start_left(void **state)
{
	struct fix *f = *state;

	kill_child(stopped_creator(f));
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	expect_nothing(f);
	kill_child(stopped_creator(f));
	expect_eq(atoll_recover(f->a, "shared", false, f->res), 0);
	expect_nothing(f);
	kill_child(stopped_creator(f));
	expect_ok(f, atoll_plan_stop(fix_find(f, "shared"), 0, f->res));
	expect_nothing(f);
	kill_child(stopped_creator(f));
	expect(atoll_plan_commit(fix_find(f, "shared"), 0, f->res) == -ATOLL_E_NOT_FOUND);
	expect_nothing(f);
}

static int race(struct fix *f, size_t i)
{
	struct fix own = { .a = NULL };
	const char *roots[3];
	int r;

	fix_attach(&own, f->dir);
	for (int k = 0; k < 3; k++)
		roots[k] = fix_path(&own, "%s/r%zu", f->dir, (i + (size_t)k) % 3);
	r = start_over(&own, "shared", ATOLL_START_OR_OPEN, roots, 3, NULL);
	fix_detach(&own);
	return r < 0;
}

static void der_13_thirty_starts_make_one_whole_plan(void **state)
{
	struct fix *f = *state;

	for (int i = 0; i < 3; i++)
		(void)put_root(f, fix_path(f, "r%d", i));
	expect_eq(together(RACERS, race, f), RACERS);
	expect_whole(f, "shared", 3);
	expect_stop(f, fix_find(f, "shared"));
	expect_nothing(f);
}

/* ---- failing ---- */

static void der_13_a_start_that_fails_leaves_nothing(void **state)
{
	struct fix *f = *state;
	const char *const roots[] = { put_root(f, "r0"), put_root(f, "r1"), put_root(f, "r2") };
	char *before = man_inodes(roots[0]);

	failer_set(roots[2], PHASE_CREATE, FAIL_CODE, -EIO);
	expect_code(f, start_over(f, "p", 0, roots, 3, "failer"), -EIO);
	expect_nothing(f);
	expect_code(f, start_over(f, "p", ATOLL_START_OWNED, roots, 3, "failer"), -EIO);
	expect_nothing(f);
	expect_inodes(roots[0], before);
	phase_clear();
	expect_ok(f, start_over(f, "p", 0, roots, 3, "failer"));
	expect_stop(f, fix_find(f, "p"));
	free(before);
}

static void der_13_what_an_open_plan_lacks_is_added_whole_or_not(void **state)
{
	struct fix *f = *state;
	const char *const roots[] = { put_root(f, "r0"), put_root(f, "r1"), put_root(f, "r2") };

	expect_eq(start_over(f, "p", ATOLL_START_OR_OPEN, roots, 1, "failer"), 0);
	failer_set(roots[2], PHASE_CREATE, FAIL_CODE, -EIO);
	expect_code(f, start_over(f, "p", ATOLL_START_OR_OPEN, roots, 3, "failer"), -EIO);
	expect_whole(f, "p", 1);
	expect_eq(start_over(f, "p", ATOLL_START_OR_OPEN | ATOLL_START_AS_IS, roots, 3, "failer"),
	          1);
	expect_whole(f, "p", 1);
	phase_clear();
	expect_eq(start_over(f, "p", ATOLL_START_OR_OPEN, roots, 3, "failer"), 1);
	expect_whole(f, "p", 3);
	expect_stop(f, fix_find(f, "p"));
}

/* ---- relations ---- */

static int start_related(struct fix *f, const struct atoll_resource *v, size_t n)
{
	const struct atoll_start start = { .name = "p", .resources = v, .n_resources = n };
	struct atoll_plan *p = NULL;
	int r = atoll_plan_start_with(f->a, &start, &p, f->res);

	atoll_plan_free(p);
	return r;
}

struct wanted_parent {
	const char *root;
	char *id; /* of its parent */
};

static int find_parent(void *user, const struct atoll_sandbox_info *info)
{
	struct wanted_parent *w = user;

	if (strcmp(info->root, w->root) == 0)
		w->id = strdup(info->parent);
	return 0;
}

static void expect_parent(struct fix *f, const char *root, const char *parent)
{
	struct atoll_plan *p = fix_find(f, "p");
	struct wanted_parent w = { .root = root };

	expect_ok(f, atoll_plan_sandboxes(p, find_parent, &w, f->res));
	expect_str(fix_keep(f, w.id), parent ? fix_sandbox_id(f, p, parent) : "");
}

static void der_18_what_lies_in_another_is_its_child(void **state)
{
	struct fix *f = *state;
	const char *outer = put_root(f, "outer");
	const char *mid = put_root(f, "outer/mid");
	const struct atoll_resource v[] = { { .root = put_root(f, "outer/mid/inner") },
		                            { .root = outer },
		                            { .root = mid } };

	expect_ok(f, start_related(f, v, 3));
	expect_eq(fix_notes(f, ATOLL_NOTE_INFO), 2);
	expect_parent(f, v[0].root, mid);
	expect_parent(f, mid, outer);
	expect_parent(f, outer, NULL);
	expect_stop(f, fix_find(f, "p"));
}

static void der_18_circles_and_contradictions_are_refused(void **state)
{
	struct fix *f = *state;
	const char *a = put_root(f, "a"), *b = put_root(f, "b"), *in = put_root(f, "a/in");
	const struct atoll_resource circle[] = { { .root = a, .parent = b },
		                                 { .root = b, .parent = a } };
	const struct atoll_resource itself[] = { { .root = a, .parent = a } };
	const struct atoll_resource reverse[] = { { .root = a, .parent = in }, { .root = in } };
	const struct atoll_resource elsewhere[] = { { .root = a },
		                                    { .root = b },
		                                    { .root = in, .parent = b } };
	const struct atoll_resource unknown[] = { { .root = a, .parent = "nobody" } };

	expect_code(f, start_related(f, circle, 2), -ATOLL_E_INVALID);
	expect_code(f, start_related(f, itself, 1), -ATOLL_E_INVALID);
	expect_code(f, start_related(f, reverse, 2), -ATOLL_E_INVALID);
	expect_code(f, start_related(f, elsewhere, 3), -ATOLL_E_UNSUPPORTED);
	expect_code(f, start_related(f, unknown, 1), -ATOLL_E_NOT_FOUND);
	expect_nothing(f);
}

static void one_root_is_not_taken_twice(void **state)
{
	struct fix *f = *state;
	const char *a = put_root(f, "a");
	const struct atoll_resource linked[] = { { .root = a },
		                                 { .root = fix_path(f, "%s/link", f->dir) } };

	put_link(linked[1].root, "a");
	expect_code(f, start_related(f, linked, 2), -ATOLL_E_EXISTS);
	expect_nothing(f);
}

static void one_root_is_not_taken_twice_through_a_mount(void **state)
{
	struct fix *f = *state;
	const char *a = put_root(f, "a"), *bound = fix_dir(f, "bound");
	const struct atoll_resource v[] = { { .root = a }, { .root = bound } };
	int r;

	need_root();
	expect(mount(a, bound, NULL, MS_BIND, NULL) == 0);
	r = start_related(f, v, 2);
	expect(umount2(bound, MNT_DETACH) == 0);
	expect_eq(r, -ATOLL_E_EXISTS);
	expect(strstr(atoll_result_message(f->res), "is the same as") != NULL);
	expect_nothing(f);
}

/* By names these two have nothing to do with one another. */
static void expect_overlap(struct fix *f, const char *a, const char *b)
{
	const struct atoll_resource v[] = { { .root = a }, { .root = b } };
	const struct atoll_resource later = { .root = b };
	struct atoll_plan *p = NULL;
	int r = start_related(f, v, 2);

	expect_eq(r, -ATOLL_E_UNSUPPORTED);
	expect(strstr(atoll_result_message(f->res), "by another mount") != NULL);
	expect(strstr(atoll_result_hint(f->res), "leave one of them out") != NULL);
	expect_ok(f, start_related(f, v, 1));
	p = fix_find(f, "p");
	expect_eq(atoll_plan_add(p, &later, f->res), -ATOLL_E_UNSUPPORTED);
	expect_stop(f, p);
}

static void roots_do_not_overlap_through_a_mount(void **state)
{
	struct fix *f = *state;
	const char *a = put_root(f, "a"), *in = put_root(f, "a/in"),
		   *deep = put_root(f, "a/in/deep");
	const char *bound = fix_dir(f, "bound");
	const char *below = fix_path(f, "%s/deep", bound);
	const char *store = fix_dir(f, "store");
	const struct atoll_resource apart[] = { { .root = bound }, { .root = put_root(f, "b") } };
	const struct atoll_resource of_store = { .root = store };

	need_root();
	expect(mount(in, bound, NULL, MS_BIND, NULL) == 0);
	expect_overlap(f, a, bound);
	expect_overlap(f, bound, a);
	expect_overlap(f, a, below);
	expect_overlap(f, bound, deep);
	expect_ok(f, start_related(f, apart, 2));
	expect_stop(f, fix_find(f, "p"));
	expect(umount2(bound, MNT_DETACH) == 0);
	expect(mount(f->home, store, NULL, MS_BIND, NULL) == 0);
	expect_code(f, start_related(f, &of_store, 1), -ATOLL_E_UNSUPPORTED);
	expect(umount2(store, MNT_DETACH) == 0);
	expect_nothing(f);
}

/* Plans may overlap: what one of them commits is a conflict to the other where both changed it. */
static void plans_may_overlap_and_conflict(void **state)
{
	struct fix *f = *state;
	const char *outer = put_root(f, "outer"), *inner = put_root(f, "outer/inner");
	struct atoll_plan *x, *y;

	expect_ok(f, start_over(f, "x", 0, &outer, 1, "copy"));
	expect_ok(f, start_over(f, "y", 0, &inner, 1, "copy"));
	x = fix_find(f, "x");
	y = fix_find(f, "y");
	put_text(fix_path(f, "%s/file", fix_work(f, y, NULL)), "y\n");
	put_text(fix_path(f, "%s/inner/file", fix_work(f, x, NULL)), "x\n");
	expect_commit(f, y);
	expect_code(f, atoll_plan_commit(x, 0, f->res), -ATOLL_E_CONFLICT);
	expect_text(fix_path(f, "%s/file", inner), "y\n");
	expect_ok(f, atoll_plan_stop(x, ATOLL_FORCE, f->res));
	expect_stop(f, y);
}

/* ---- areas ---- */

static void areas_lie_on_the_mount_of_their_resource(void **state)
{
	struct fix *f = *state;
	const char *there = other_mount(f);
	const char *const roots[] = { put_root(f, "here"), fix_path(f, "%s/outer", there),
		                      fix_path(f, "%s/outer/inner", there) };
	const char *area;

	put_dir(roots[1], 0755);
	put_dir(roots[2], 0755);
	expect_ok(f, start_over(f, "p", 0, roots, 3, "copy"));
	area = fix_area(f, fix_find(f, "p"), roots[0]);
	expect(strncmp(area, f->home, strlen(f->home)) == 0);
	for (int i = 1; i < 3; i++) {
		area = fix_area(f, fix_find(f, "p"), roots[i]);
		expect_msg(strstr(area, "/.atoll-") != NULL, "%s is in the store", area);
		expect_msg(strncmp(area, roots[1], strlen(roots[1])) != 0, "%s is in a resource",
		           area);
	}
	expect_stop(f, fix_find(f, "p"));
	expect_eq(count_entries(roots[1]), 1);
}

/* ---- where `run` was ---- */

static int run_in(struct fix *f, const char *name, const char *dir)
{
	const struct atoll_start start = { .name = name, .run_dir = dir };
	struct atoll_plan *p = NULL;
	int r = atoll_plan_start_with(f->a, &start, &p, f->res);

	atoll_plan_free(p);
	return r;
}

static void expect_last_run(struct fix *f, const char *dir, const char *name)
{
	struct atoll_plan *p = NULL;

	expect_ok(f, atoll_plan_find_run(f->a, dir, &p, f->res));
	expect_str(atoll_plan_name(p), name);
	atoll_plan_free(p);
}

static void the_last_run_of_a_directory_is_known(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = NULL;

	expect_code(f, atoll_plan_find_run(f->a, "/x", &p, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, run_in(f, "relative", "x"), -ATOLL_E_INVALID);
	expect_ok(f, run_in(f, "one", "/x"));
	expect_ok(f, run_in(f, "two", "/x"));
	expect_ok(f, run_in(f, "other", "/x/y"));
	expect_ok(f, run_in(f, "none", NULL));
	expect_last_run(f, "/x", "two");
	expect_last_run(f, "/x/y", "other");
	fix_reopen(f);
	expect_stop(f, fix_find(f, "two"));
	expect_last_run(f, "/x", "one");
	expect_stop(f, fix_find(f, "one"));
	expect_stop(f, fix_find(f, "other"));
	expect_stop(f, fix_find(f, "none"));
	expect_code(f, atoll_plan_find_run(f->a, "/x", &p, f->res), -ATOLL_E_NOT_FOUND);
}

static void start_with_refuses_nonsense(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, "a"), *empty = "";
	struct atoll_resource many[300];
	struct atoll_start start = { .name = "p", .resources = many, .n_resources = 300 };
	struct atoll_plan *p = NULL;

	for (size_t i = 0; i < 300; i++)
		many[i] = (struct atoll_resource){ .root = root };
	expect_code(f, atoll_plan_start_with(f->a, &start, &p, f->res), -ATOLL_E_TOO_BIG);
	expect_code(f, atoll_plan_start_with(f->a, NULL, &p, f->res), -ATOLL_E_INVALID);
	start.resources = NULL;
	expect_code(f, atoll_plan_start_with(f->a, &start, &p, f->res), -ATOLL_E_INVALID);
	expect_code(f, start_over(f, "p", 0x80, &root, 1, NULL), -ATOLL_E_INVALID);
	expect_code(f, start_over(f, "-p", 0, &root, 1, NULL), -ATOLL_E_INVALID);
	expect_code(f, start_over(f, "p", 0, &empty, 1, NULL), -ATOLL_E_INVALID);
	expect_code(f, start_over(f, "p", 0, &root, 1, "magic"), -ATOLL_E_NOT_FOUND);
	expect_nothing(f);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "starts", child_starts },
		                                       { "uses", child_uses },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(der_13_a_stopped_start_is_waited_for),
		mtest(der_13_a_killed_start_is_taken_over),
		mtest(der_13_a_name_is_free_again_when_its_maker_died),
		mtest(der_13_any_command_removes_what_a_killed_start_left),
		mtest(der_13_thirty_starts_make_one_whole_plan),
		mtest(der_13_a_start_that_fails_leaves_nothing),
		mtest(der_13_what_an_open_plan_lacks_is_added_whole_or_not),
		mtest(der_18_what_lies_in_another_is_its_child),
		mtest(der_18_circles_and_contradictions_are_refused),
		mtest(one_root_is_not_taken_twice),
		mtest(one_root_is_not_taken_twice_through_a_mount),
		mtest(roots_do_not_overlap_through_a_mount),
		mtest(plans_may_overlap_and_conflict),
		mtest(areas_lie_on_the_mount_of_their_resource),
		mtest(the_last_run_of_a_directory_is_known),
		mtest(start_with_refuses_nonsense),
	};

	return atest_main(argc, argv, tests, children);
}
