/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule GIT-08: threads that use git for the first time, in an environment full of nonsense. They are
 * those of a process of their own, which ends without looking back: the thread sanitizer loses track of
 * a thread that started a program.
 */
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
	char root[PATH_MAX + 16];
	pthread_t thread;
	atomic_int result;
};

static void make_repository(const char *root)
{
	char command[PATH_MAX + 256];

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
	if (r >= 0)
		r = atoll_plan_stop(p, ATOLL_FORCE, res);
	if (r < 0)
		(void)fprintf(stderr, "# %s: %s\n", m->root, atoll_result_message(res));
	atoll_plan_free(p);
	atoll_result_free(res);
	atomic_store(&m->result, r);
	return NULL;
}

static int child_threads(const char *dir, const char *arg)
{
	static struct maker makers[THREADS];
	static pthread_barrier_t barrier;
	static struct fix f;
	int bad = 0;

	(void)arg;
	fix_attach(&f, dir);
	if (pthread_barrier_init(&barrier, NULL, THREADS) != 0)
		return CHILD_FAILED;
	for (size_t i = 0; i < THREADS; i++) {
		makers[i].f = &f;
		makers[i].barrier = &barrier;
		(void)snprintf(makers[i].root, sizeof(makers[i].root), "%s/repo%zu", dir, i);
	}
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&makers[i].thread, NULL, make, &makers[i]) != 0)
			return CHILD_FAILED;
	for (size_t i = 0; i < THREADS; i++) {
		(void)pthread_join(makers[i].thread, NULL);
		bad += atomic_load(&makers[i].result) < 0;
	}
	_exit(bad ? CHILD_FAILED : 0);
}

static void git_08_threads_and_a_bad_environment(void **state)
{
	static const char *const nonsense[] = {
		"GIT_DIR=/nonsense",         "GIT_INDEX_FILE=/nonsense",
		"GIT_WORK_TREE=/nonsense",   "GIT_OBJECT_DIRECTORY=/nonsense",
		"GIT_CONFIG_COUNT=nonsense", NULL
	};
	struct fix *f = *state;

	for (size_t i = 0; i < THREADS; i++)
		make_repository(fix_dir(f, fix_path(f, "repo%zu", i)));
	expect_eq(child_run(f, "threads", "", nonsense), 0);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "threads", child_threads },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = { atest(git_08_threads_and_a_bad_environment) };

	return atest_main(argc, argv, tests, children);
}
