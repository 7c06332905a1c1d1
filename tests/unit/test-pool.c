/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool: every item once, the first failure wins, nothing is leaked. */
#include "util/pool.h"

#include "util/clock.h"
#include "util/mem.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define DEPTH  9
#define FANOUT 3

struct run {
	pthread_t caller;
	atomic_uint done;
	atomic_uint elsewhere; /* items another thread than the caller's worked on */
	atomic_uint unblocked; /* threads in which a signal could arrive */
	unsigned fail_at;
};

static int *item_new(int level)
{
	int *item = xcalloc(1, sizeof(*item));

	*item = level;
	return item;
}

static int visit(struct pool *p, void *ctx, void *item)
{
	struct run *run = ctx;
	int level = *(int *)item;
	unsigned nth = atomic_fetch_add(&run->done, 1) + 1;
	sigset_t mask;

	free(item);
	if (!pthread_equal(pthread_self(), run->caller)) {
		atomic_fetch_add(&run->elsewhere, 1);
		pthread_sigmask(SIG_BLOCK, NULL, &mask);
		if (!sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGINT))
			atomic_fetch_add(&run->unblocked, 1);
	}
	for (int i = 0; i < FANOUT && level > 1; i++)
		pool_push(p, item_new(level - 1));
	return nth == run->fail_at ? -EIO : 0;
}

static unsigned tree_size(void)
{
	unsigned n = 0;

	for (int i = 0; i < DEPTH; i++)
		n = n * FANOUT + 1;
	return n;
}

static void every_item_once(void **state)
{
	static const unsigned threads[] = { 0, 1, 2, 8 };

	(void)state;
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
		struct run run = { .caller = pthread_self() };

		assert_int_equal(pool_run(threads[i], visit, &run, item_new(DEPTH)), 0);
		assert_int_equal(run.done, tree_size());
		assert_int_equal(run.unblocked, 0);
		if (threads[i] < 2)
			assert_int_equal(run.elsewhere, 0);
	}
}

static void first_failure_ends_the_run(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 8; threads *= 2) {
		struct run run = { .caller = pthread_self(), .fail_at = 100 };

		assert_int_equal(pool_run(threads, visit, &run, item_new(DEPTH)), -EIO);
		assert_in_range(run.done, 100, tree_size());
		if (threads == 1)
			assert_int_equal(run.done, 100);
	}
}

static void many_short_runs(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		struct run run = { .caller = pthread_self(), .fail_at = (unsigned)i % 5 };
		int r = pool_run(4, visit, &run, item_new(2));

		assert_int_equal(r, run.fail_at > 0 ? -EIO : 0);
	}
}

static int positive(struct pool *p, void *ctx, void *item)
{
	(void)p;
	(void)ctx;
	free(item);
	return 7;
}

static void positive_is_success(void **state)
{
	(void)state;
	assert_int_equal(pool_run(1, positive, NULL, item_new(1)), 0);
}

/* Each item waits for the other: only two threads at once get through. */
static int meet(struct pool *p, void *ctx, void *item)
{
	atomic_uint *there = ctx;
	int level = *(int *)item;
	int64_t deadline = clock_deadline(60000);

	free(item);
	if (level > 0) {
		pool_push(p, item_new(0));
		pool_push(p, item_new(0));
		return 0;
	}
	atomic_fetch_add(there, 1);
	while (atomic_load(there) < 2) {
		if (clock_left_ms(deadline) == 0)
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

static void items_run_at_the_same_time(void **state)
{
	atomic_uint there = 0;

	(void)state;
	assert_int_equal(pool_run(2, meet, &there, item_new(1)), 0);
}

/* Order of a run in one thread: newest first. */
static int note_order(struct pool *p, void *ctx, void *item)
{
	int **next = ctx;
	int value = *(int *)item;

	free(item);
	*(*next)++ = value;
	for (int i = 1; i <= 2 && value < 10; i++)
		pool_push(p, item_new(10 * value + i));
	return 0;
}

static void newest_first(void **state)
{
	int order[16], *next = order;
	static const int want[] = { 1, 12, 11 };

	(void)state;
	assert_int_equal(pool_run(1, note_order, &next, item_new(1)), 0);
	assert_int_equal(next - order, 3);
	assert_memory_equal(order, want, sizeof(want));
}

static void caller_keeps_its_signals(void **state)
{
	struct run run = { .caller = pthread_self() };
	sigset_t mask;

	(void)state;
	assert_int_equal(pool_run(8, visit, &run, item_new(4)), 0);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
	assert_false(sigismember(&mask, SIGTERM));
}

static void default_is_small(void **state)
{
	(void)state;
	assert_in_range(pool_default_threads(), 1, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_item_once),
		cmocka_unit_test(first_failure_ends_the_run),
		cmocka_unit_test(many_short_runs),
		cmocka_unit_test(positive_is_success),
		cmocka_unit_test(items_run_at_the_same_time),
		cmocka_unit_test(newest_first),
		cmocka_unit_test(caller_keeps_its_signals),
		cmocka_unit_test(default_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
