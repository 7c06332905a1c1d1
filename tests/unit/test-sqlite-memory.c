/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of SQLite in the command: what was put into a piece stays there. */
#include "registry/sqlite-impl.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PIECES 200
#define STEPS  20000

struct piece {
	unsigned char *p;
	int len;
	unsigned char mark;
};

static int some_length(unsigned *seed)
{
	static const int upto[] = { 24, 200, 1100, 9000 };

	return 1 + rand_r(seed) % upto[rand_r(seed) % 4];
}

static void fill(struct piece *x, unsigned *seed)
{
	x->mark = (unsigned char)rand_r(seed);
	memset(x->p, x->mark, (size_t)x->len);
}

static int wrong_bytes(const struct piece *x, int len)
{
	int n = (uintptr_t)x->p % 8 != 0 || sqlite_memory.xSize(x->p) < x->len;

	for (int i = 0; i < len; i++)
		n += x->p[i] != x->mark;
	return n;
}

static int step(struct piece *x, unsigned *seed)
{
	int before = x->len, wrong = x->p ? wrong_bytes(x, x->len) : 0;

	if (!x->p) {
		x->len = some_length(seed);
		x->p = sqlite_memory.xMalloc(x->len);
	} else if (rand_r(seed) % 2) {
		sqlite_memory.xFree(x->p);
		x->p = NULL;
		return wrong;
	} else {
		x->len = sqlite_memory.xRoundup(some_length(seed));
		x->p = sqlite_memory.xRealloc(x->p, x->len);
		wrong += x->p ? wrong_bytes(x, x->len < before ? x->len : before) : 1;
	}
	if (!x->p)
		return wrong + 1;
	fill(x, seed);
	return wrong;
}

/* NULL when every piece held what was put into it. */
static void *use(void *ctx)
{
	struct piece pieces[PIECES] = { 0 };
	unsigned seed = *(const unsigned *)ctx;
	int wrong = 0;

	for (int i = 0; i < STEPS; i++)
		wrong += step(&pieces[rand_r(&seed) % PIECES], &seed);
	for (int i = 0; i < PIECES; i++)
		if (pieces[i].p)
			sqlite_memory.xFree(pieces[i].p);
	return wrong ? ctx : NULL;
}

static void pieces_keep_what_they_hold(void **state)
{
	unsigned seed = 1;

	(void)state;
	assert_int_equal(sqlite_memory.xSize(NULL), 0);
	assert_true(use(&seed) == NULL);
}

static void pieces_of_several_threads(void **state)
{
	unsigned seeds[4] = { 2, 3, 4, 5 };
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, &seeds[i]), 0);
	for (int i = 0; i < 4; i++) {
		void *wrong;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_true(wrong == NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_keep_what_they_hold),
		cmocka_unit_test(pieces_of_several_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
