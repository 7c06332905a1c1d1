/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and processes that write, threads that follow them: everybody hears the same, once. */
#include "lib/atest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITERS   4 /* threads, and as many processes */
#define FOLLOWERS 3
#define ROUNDS    12
#define EVENTS    8192

static void write_rounds(struct atoll *a, struct atoll_result *res)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct atoll_plan *p = NULL;

		expect(atoll_plan_start(a, NULL, 0, &p, res) >= 0);
		expect(atoll_plan_reset(p, res) >= 0);
		expect(atoll_plan_stop(p, ATOLL_FORCE, res) >= 0);
		atoll_plan_free(p);
	}
}

static void *writer(void *user)
{
	struct fix *f = user;
	struct atoll_result *res = atoll_result_new();

	write_rounds(f->a, res);
	atoll_result_free(res);
	return NULL;
}

static int child_writer(const char *dir, const char *arg)
{
	struct fix f;

	(void)arg;
	fix_attach(&f, dir);
	write_rounds(f.a, f.res);
	fix_detach(&f);
	return 0;
}

struct follower {
	const char *home;
	atomic_bool *over;
	int64_t seq[EVENTS];
	size_t n;
	size_t stops;
	pthread_t thread;
};

static int take(void *user, const struct atoll_news *n)
{
	struct follower *w = user;

	expect(w->n < EVENTS);
	w->seq[w->n++] = n->seq;
	w->stops += strcmp(n->what, "stop") == 0;
	return 0;
}

static void *follow(void *user)
{
	struct follower *w = user;
	struct atoll_result *res = atoll_result_new();
	struct atoll *a = NULL;
	int64_t at = 0, last;
	bool over;

	expect(atoll_open(w->home, &a, res) >= 0);
	do {
		over = atomic_load(w->over);
		expect(atoll_events_wait(a, at, 20, res) >= 0);
		while ((last = atoll_events(a, at, 7, take, w, res)) > at)
			at = last;
		expect_eq(last, at);
	} while (!over);
	atoll_close(a);
	atoll_result_free(res);
	return NULL;
}

static void con_followers_hear_everything_once(void **state)
{
	struct fix *f = *state;
	struct follower *w = calloc(FOLLOWERS, sizeof(*w));
	pthread_t threads[WRITERS];
	pid_t pids[WRITERS];
	atomic_bool over = false;

	expect(w != NULL);
	for (size_t i = 0; i < WRITERS; i++)
		pids[i] = child_start(f, "writer", "", NULL);
	for (size_t i = 0; i < FOLLOWERS; i++) {
		w[i].home = f->home;
		w[i].over = &over;
		expect_eq(pthread_create(&w[i].thread, NULL, follow, &w[i]), 0);
	}
	for (size_t i = 0; i < WRITERS; i++)
		expect_eq(pthread_create(&threads[i], NULL, writer, f), 0);
	for (size_t i = 0; i < WRITERS; i++) {
		expect_eq(pthread_join(threads[i], NULL), 0);
		expect_eq(child_wait(pids[i]), 0);
	}
	atomic_store(&over, true);
	for (size_t i = 0; i < FOLLOWERS; i++) {
		expect_eq(pthread_join(w[i].thread, NULL), 0);
		expect_eq(w[i].stops, 2 * WRITERS * ROUNDS);
		expect_eq(w[i].n, w[0].n);
		expect_eq(memcmp(w[i].seq, w[0].seq, w[0].n * sizeof(w[0].seq[0])), 0);
	}
	for (size_t i = 1; i < w[0].n; i++)
		expect(w[0].seq[i] > w[0].seq[i - 1]);
	free(w);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = { atest(con_followers_hear_everything_once) };
	static const struct atest_child children[] = { { "writer", child_writer }, { NULL, NULL } };

	return atest_main(argc, argv, tests, children);
}
