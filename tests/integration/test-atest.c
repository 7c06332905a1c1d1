/* SPDX-License-Identifier: Apache-2.0 */
/* Rules TST-04, TST-06: the harness itself fails tests that prove nothing or leave things behind. */
#include "lib/atest.h"
#include "lib/inventory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- tests that must not pass; each is run by a child ---- */

static void asserts_nothing(void **state)
{
	(void)state;
}

static void leaves_a_descriptor(void **state)
{
	(void)state;
	expect(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
}

static void leaves_a_process(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	expect(pid > 0);
}

/* Nobody's child any more, and still found. */
static void leaves_an_orphan(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		if (fork() == 0)
			(void)pause();
		_exit(0);
	}
	expect(child_wait(pid) == 0);
}

static void leaves_an_area(void **state)
{
	struct fix *f = *state;

	put_dir(fix_path(f, "%s/.atoll-77", f->dir), 0700);
}

static void leaves_an_area_in_the_store(void **state)
{
	struct fix *f = *state;

	put_dir(fix_path(f, "%s/plans/stray", f->home), 0700);
}

static void leaves_a_mount(void **state)
{
	struct fix *f = *state;

	(void)fix_tmpfs(f, "mount", 1u << 20);
	f->n_mounts = 0; /* as if it had been made by other means */
}

static void leaves_a_busy_mount(void **state)
{
	struct fix *f = *state;
	char *path = fix_path(f, "%s/x", fix_tmpfs(f, "mount", 1u << 20));

	put_text(path, "x");
	expect(open(path, O_RDONLY | O_CLOEXEC) >= 0);
}

static void *fail_in_a_thread(void *user)
{
	expect(user != NULL);
	return NULL;
}

static void fails_in_a_thread(void **state)
{
	pthread_t t;

	(void)state;
	expect_eq(pthread_create(&t, NULL, fail_in_a_thread, NULL), 0);
	expect_eq(pthread_join(t, NULL), 0);
}

static void finds_another_tree(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	char *before;

	put_text(fix_path(f, "%s/file", root), "x\n");
	before = fix_keep(f, man_take(root));
	set_mtime(fix_path(f, "%s/file", root), 1000, 1);
	expect_man(root, before);
}

static void is_good(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root = fix_dir(f, "root");

	put_random_tree(root, 30, 1);
	fix_add(f, p, root, "copy");
	edit_random_tree(fix_work(f, p, root), 2);
	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_SPECIAL, f->res));
}

static const struct CMUnitTest samples[] = {
	atest(is_good),
	atest(asserts_nothing),
	atest(leaves_a_descriptor),
	atest(leaves_a_process),
	atest(leaves_an_orphan),
	atest(leaves_an_area),
	atest(leaves_an_area_in_the_store),
	atest(fails_in_a_thread),
	atest(finds_another_tree),
	atest(leaves_a_mount),
	atest(leaves_a_busy_mount),
};
#define SAMPLES     (sizeof(samples) / sizeof(samples[0]))
#define WITH_MOUNTS 9 /* from here on */

/* Silent: what it says about its failures would be taken for ours. */
static int run_sample(const char *dir, const char *arg)
{
	const struct CMUnitTest one[] = { samples[strtoul(arg, NULL, 10)] };
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	inventory_patience_ms = 1000; /* it waits in vain */
	(void)setenv("ATOLL_TEST_DIR", dir, 1);
	(void)dup2(null_fd, 1);
	(void)dup2(null_fd, 2);
	(void)close(null_fd);
	return cmocka_run_group_tests(one, NULL, NULL);
}

static int sample(struct fix *f, size_t i)
{
	return child_run(f, "sample", fix_path(f, "%zu", i), NULL);
}

static void tst_04_06_a_good_test_passes(void **state)
{
	expect_eq(sample(*state, 0), 0);
}

static void tst_04_06_bad_tests_fail(void **state)
{
	for (size_t i = 1; i < WITH_MOUNTS; i++)
		expect_msg(sample(*state, i) == 1, "%s passed", samples[i].name);
}

static void tst_06_mounts_left_behind_are_found(void **state)
{
	need_root();
	for (size_t i = WITH_MOUNTS; i < SAMPLES; i++)
		expect_msg(sample(*state, i) == 1, "%s passed", samples[i].name);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "sample", run_sample }, { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		atest(tst_04_06_a_good_test_passes),
		atest(tst_04_06_bad_tests_fail),
		atest(tst_06_mounts_left_behind_are_found),
	};

	return atest_main(argc, argv, tests, children);
}
