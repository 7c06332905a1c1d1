/* SPDX-License-Identifier: Apache-2.0 */
/* Rule GIT-08: threads that use git for the first time, in an environment full of nonsense. */
#include "lib/atest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 32

struct maker {
	struct fix *f;
	pthread_barrier_t *barrier;
	const char *root;
	pthread_t thread;
	/* Atomic for the thread sanitizer, which loses track of a thread that started a program. */
	atomic_int made, stopped;
};

static const char *const nonsense[] = { "GIT_DIR",          "GIT_INDEX_FILE",
	                                "GIT_WORK_TREE",    "GIT_OBJECT_DIRECTORY",
	                                "GIT_CONFIG_COUNT", "GIT_CEILING_DIRECTORIES" };
#define N_NONSENSE (sizeof(nonsense) / sizeof(nonsense[0]))

static void make_repository(const char *root)
{
	char command[4096];

	(void)snprintf(command, sizeof(command),
	               "cd '%s' && git init -q . && echo a > a && git add a && "
	               "git -c user.name=n -c user.email=e commit -q -m m",
	               root);
	expect_eq(system(command), 0);
}

static void *make(void *user)
{
	struct maker *m = user;
	const struct atoll_resource resource = { .root = m->root, .strategy = "git" };
	struct atoll_result *res = atoll_result_new();
	struct atoll_plan *p = NULL;
	int r;

	(void)pthread_barrier_wait(m->barrier);
	r = atoll_plan_start(m->f->a, NULL, 0, &p, res);
	if (r >= 0)
		r = atoll_plan_add(p, &resource, res);
	if (r < 0)
		(void)fprintf(stderr, "# %s: %s\n", m->root, atoll_result_message(res));
	atomic_store(&m->made, r);
	atomic_store(&m->stopped, p ? atoll_plan_stop(p, ATOLL_FORCE, res) : -1);
	atoll_plan_free(p);
	atoll_result_free(res);
	return NULL;
}

static void git_08_threads_and_a_bad_environment(void **state)
{
	struct fix *f = *state;
	struct maker makers[THREADS];
	static pthread_barrier_t barrier; /* never destroyed, for the same reason as above */

	expect_eq(pthread_barrier_init(&barrier, NULL, THREADS), 0);
	for (size_t i = 0; i < THREADS; i++) {
		makers[i].f = f;
		makers[i].barrier = &barrier;
		makers[i].root = fix_dir(f, fix_path(f, "repo%zu", i));
		make_repository(makers[i].root);
	}
	for (size_t i = 0; i < N_NONSENSE; i++)
		expect_eq(setenv(nonsense[i], "/nonsense", 1), 0);
	for (size_t i = 0; i < THREADS; i++)
		expect_eq(pthread_create(&makers[i].thread, NULL, make, &makers[i]), 0);
	for (size_t i = 0; i < THREADS; i++) {
		expect_eq(pthread_join(makers[i].thread, NULL), 0);
		expect_eq(atomic_load(&makers[i].made), 0);
		expect_eq(atomic_load(&makers[i].stopped), 0);
	}
	for (size_t i = 0; i < N_NONSENSE; i++)
		(void)unsetenv(nonsense[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { atest(git_08_threads_and_a_bad_environment) };

	return atest_main(argc, argv, tests, NULL);
}
