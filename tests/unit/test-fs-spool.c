/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of records, most of which lie in a file. */
#include "fs/spool.h"

#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <atoll.h>
#include <signal.h>
#include <sys/resource.h>

#define MANY 20000u

/* Record I: its number, and as many more bytes as are good for trouble. */
static size_t make(size_t i, char out[512])
{
	size_t len = (size_t)snprintf(out, 512, "%08zu", i);

	memset(out + len, 'a' + (int)(i % 26), i % 300);
	return len + i % 300;
}

static void is_record(const struct spool *s, size_t at, size_t i)
{
	char expected[512];
	size_t len = 0;
	const void *data = NULL;

	assert_int_equal(spool_get(s, at, &data, &len), 0);
	assert_int_equal(len, make(i, expected));
	assert_memory_equal(data, expected, len);
}

static void fill(struct spool *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char data[512];
		size_t len = make(i, data);

		assert_int_equal(spool_add(s, data, len), 0);
	}
	assert_int_equal(s->n, n);
}

static int by_number(const void *a, size_t a_len, const void *b, size_t b_len)
{
	assert_true(a_len >= 8 && b_len >= 8);
	return memcmp(a, b, 8);
}

static int number_against(const void *key, const void *data, size_t len)
{
	assert_true(len >= 8);
	return memcmp(key, data, 8);
}

static void spool_few_stay_in_memory(void **state)
{
	for_each_dir(d, state)
	{
		struct spool s = { 0 };

		spool_spill_to(&s, d->fd);
		fill(&s, 100);
		assert_int_equal(s.file_len, 0);
		for (size_t i = 0; i < 100; i++)
			is_record(&s, i, i);
		spool_done(&s);
		assert_int_equal(s.n, 0);
	}
}

/* Forward, backward, here and there; memory stays, and the directory shows nothing. */
static void spool_many_lie_in_a_file(void **state)
{
	for_each_dir(d, state)
	{
		struct spool s = { 0 };

		spool_spill_to(&s, d->fd);
		fill(&s, MANY);
		assert_true(s.file_len > SPOOL_MEMORY && s.tail_len <= SPOOL_MEMORY);
		assert_true(s.tail_cap <= 2 * SPOOL_MEMORY);
		assert_int_equal(rmdir(d->path), 0); /* nothing is in it */
		assert_int_equal(mkdir(d->path, 0700), 0);
		for (size_t i = 0; i < MANY; i++)
			is_record(&s, i, i);
		for (size_t i = MANY; i-- > 0;)
			is_record(&s, i, i);
		for (size_t i = 0; i < MANY; i++)
			is_record(&s, i * 7919 % MANY, i * 7919 % MANY);
		spool_done(&s);
	}
}

static void spool_records_are_left_out_and_replaced(void **state)
{
	for_each_dir(d, state)
	{
		struct spool s = { 0 };
		char data[512];
		size_t kept = 0;

		spool_spill_to(&s, d->fd);
		fill(&s, MANY);
		for (size_t i = 0; i < MANY; i++)
			if (i % 3 == 0)
				spool_move(&s, i, kept++);
		spool_cut(&s, kept);
		for (size_t i = 0; i < kept; i++)
			if (i % 2)
				assert_int_equal(spool_set(&s, i, data, make(i + MANY, data)), 0);
		for (size_t i = 0; i < kept; i++)
			is_record(&s, i, i % 2 ? i + MANY : i * 3);
		spool_done(&s);
	}
}

/* In order, in long runs, upside down and shuffled; few and many. Equal ones keep their order. */
static void spool_sorts(void **state)
{
	static const size_t counts[] = { 0, 1, 2, 3, 17, 1000, MANY };

	for_each_dir(d, state)
	{
		for (size_t k = 0; k < 4 * sizeof(counts) / sizeof(counts[0]); k++) {
			size_t n = counts[k / 4];
			struct spool s = { 0 };

			spool_spill_to(&s, d->fd);
			for (size_t i = 0; i < n; i++) {
				size_t runs = (i % 7) * (n / 7) + i / 7;
				size_t what[] = { i, n - 1 - i, i * 7919 % n, runs < n ? runs : i };
				char data[512];

				assert_int_equal(spool_add(&s, data, make(what[k % 4], data)), 0);
			}
			assert_int_equal(spool_sort(&s, by_number), 0);
			assert_int_equal(s.n, n);
			for (size_t i = 0; i < n; i++) {
				if (k % 4 < 3)
					is_record(&s, i, i);
				if (i > 0) {
					const void *a, *b;
					size_t len;
					char before[8];

					assert_int_equal(spool_get(&s, i - 1, &a, &len), 0);
					memcpy(before, a, 8);
					assert_int_equal(spool_get(&s, i, &b, &len), 0);
					assert_true(memcmp(before, b, 8) <= 0);
				}
			}
			spool_done(&s);
		}
	}
}

static int by_first(const void *a, size_t a_len, const void *b, size_t b_len)
{
	(void)a_len;
	(void)b_len;
	return memcmp(a, b, 1);
}

static void spool_sort_is_stable(void **state)
{
	struct fixture *f = *state;
	struct spool s = { 0 };
	size_t at = 0;

	spool_spill_to(&s, f->dir[0].fd);
	for (size_t i = 0; i < MANY; i++) {
		char data[32];
		int len = snprintf(data, sizeof(data), "%zu %08zu", 9 - i % 10, i);

		assert_int_equal(spool_add(&s, data, (size_t)len), 0);
	}
	assert_int_equal(spool_sort(&s, by_first), 0);
	for (size_t first = 0; first < 10; first++)
		for (size_t i = 9 - first; i < MANY; i += 10, at++) {
			char expected[32];
			const void *data;
			size_t len;

			(void)snprintf(expected, sizeof(expected), "%zu %08zu", first, i);
			assert_int_equal(spool_get(&s, at, &data, &len), 0);
			assert_memory_equal(data, expected, len);
		}
	assert_int_equal(at, MANY);
	spool_done(&s);
}

static void spool_searches(void **state)
{
	for_each_dir(d, state)
	{
		struct spool s = { 0 };
		char key[16];
		size_t at = 0;

		assert_int_equal(spool_search(&s, 0, number_against, "00000000", &at), 0);
		spool_spill_to(&s, d->fd);
		for (size_t i = 0; i < MANY; i++) {
			char data[512];

			assert_int_equal(spool_add(&s, data, make(i * 2, data)), 0);
		}
		for (size_t turn = 0; turn < 2; turn++)
			for (size_t i = 0; i < MANY; i++) {
				size_t k = turn ? i * 7919 % MANY : i;

				(void)snprintf(key, sizeof(key), "%08zu", k * 2);
				assert_int_equal(spool_search(&s, MANY, number_against, key, &at),
				                 1);
				assert_int_equal(at, k);
				(void)snprintf(key, sizeof(key), "%08zu", k * 2 + 1);
				assert_int_equal(spool_search(&s, MANY, number_against, key, &at),
				                 0);
			}
		/* Only among the first. */
		assert_int_equal(spool_search(&s, 10, number_against, "00000018", &at), 1);
		assert_int_equal(spool_search(&s, 10, number_against, "00000020", &at), 0);
		spool_done(&s);
	}
}

/* No directory, one that is gone, a file that may not grow: it all stays in memory. */
static void spool_stays_in_memory_where_nothing_can_be_written(void **state)
{
	struct fixture *f = *state;
	struct rlimit was, small = { 100u << 10, RLIM_INFINITY };
	struct spool s = { 0 };

	fill(&s, MANY);
	assert_int_equal(s.file_len, 0);
	is_record(&s, MANY - 1, MANY - 1);
	spool_done(&s);

	spool_spill_to(&s, FD_NONE);
	fill(&s, MANY);
	assert_int_equal(s.file_len, 0);
	for (size_t i = 0; i < MANY; i++)
		is_record(&s, i, i);
	spool_done(&s);

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small.rlim_max = was.rlim_max;
	for (size_t times = 1; times < 24; times += 11) {
		small.rlim_cur = times * (100u << 10);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		spool_spill_to(&s, f->dir[0].fd);
		fill(&s, MANY);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
		assert_true(s.file_len <= small.rlim_cur && s.tail_len > SPOOL_MEMORY);
		assert_int_equal(times > 1, s.file_len > 0);
		assert_int_equal(spool_sort(&s, by_number), 0);
		for (size_t i = 0; i < MANY; i++)
			is_record(&s, i, i);
		spool_done(&s);
	}
	signal(SIGXFSZ, SIG_DFL);
}

static void spool_too_long_is_refused(void **state)
{
	struct spool s = { 0 };
	char *data = calloc(1, SPOOL_RECORD_MAX + 1);
	const void *back;
	size_t len;

	(void)state;
	assert_non_null(data);
	assert_int_equal(spool_add(&s, data, SPOOL_RECORD_MAX + 1), -ATOLL_E_TOO_BIG);
	assert_int_equal(spool_add(&s, data, SPOOL_RECORD_MAX), 0);
	assert_int_equal(spool_add(&s, "", 0), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(spool_get(&s, 0, &back, &len), 0);
	assert_int_equal(len, SPOOL_RECORD_MAX);
	assert_int_equal(spool_get(&s, 1, &back, &len), 0);
	assert_int_equal(len, 0);
	spool_done(&s);
	free(data);
}

/* Records of a file that is there: what was cut off it meanwhile is an error, nothing else. */
static void spool_over_a_file(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = openat(d->fd, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		struct spool s = { 0 };
		const void *data;
		size_t len;

		assert_int_equal(spool_over(&s, fd, 0), -EINVAL);
		for (size_t i = 0; i < 100; i++)
			assert_int_equal(dprintf(fd, "%08zu", i), 8);
		assert_int_equal(spool_over(&s, fd, 800), 0);
		for (size_t i = 0; i < 100; i++)
			assert_int_equal(spool_name(&s, i * 8, 8), 0);
		assert_int_equal(spool_name(&s, 793, 8), -ATOLL_E_TOO_BIG);
		assert_int_equal(spool_name(&s, 801, 0), -ATOLL_E_TOO_BIG);
		for (size_t i = 0; i < 100; i++) {
			char expected[16];

			(void)snprintf(expected, sizeof(expected), "%08zu", i);
			assert_int_equal(spool_get(&s, i, &data, &len), 0);
			assert_int_equal(len, 8);
			assert_memory_equal(data, expected, 8);
		}
		spool_done(&s);
		assert_int_equal(spool_over(&s, fd, 800), 0);
		assert_int_equal(spool_name(&s, 0, 8), 0);
		assert_int_equal(spool_name(&s, 792, 8), 0);
		assert_int_equal(ftruncate(fd, 400), 0);
		assert_int_equal(spool_get(&s, 1, &data, &len), -EIO);
		spool_done(&s);
	}
}

/* What is added to such a list goes to a file of its own. */
static void spool_over_a_file_grows(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = openat(d->fd, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		struct spool s = { 0 };
		off_t at = 0;

		for (size_t i = 0; i < MANY; i++) {
			char data[512];
			size_t len = make(MANY + i, data);

			assert_int_equal(pwrite(fd, data, len, at), len);
			at += (off_t)len;
		}
		assert_int_equal(spool_over(&s, fd, (uint64_t)at), 0);
		at = 0;
		for (size_t i = 0; i < MANY; i++) {
			char data[512];
			size_t len = make(MANY + i, data);

			assert_int_equal(spool_name(&s, (uint64_t)at, len), 0);
			at += (off_t)len;
		}
		spool_spill_to(&s, d->fd);
		for (size_t i = 0; i < MANY; i++) {
			char data[512];

			assert_int_equal(spool_add(&s, data, make(i, data)), 0);
		}
		assert_true(s.file_len > s.over_len && s.tail_len <= SPOOL_MEMORY);
		assert_int_equal(lseek(fd, 0, SEEK_END), at);
		for (size_t i = 0; i < 2 * MANY; i++)
			is_record(&s, i, i < MANY ? MANY + i : i - MANY);
		for (size_t i = 2 * MANY; i-- > 0;)
			is_record(&s, i, i < MANY ? MANY + i : i - MANY);
		assert_int_equal(spool_sort(&s, by_number), 0);
		for (size_t i = 0; i < 2 * MANY; i++)
			is_record(&s, i, i);
		spool_done(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(spool_few_stay_in_memory, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_many_lie_in_a_file, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_records_are_left_out_and_replaced,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_sorts, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_sort_is_stable, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_searches, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_stays_in_memory_where_nothing_can_be_written,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test(spool_too_long_is_refused),
		cmocka_unit_test_setup_teardown(spool_over_a_file, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(spool_over_a_file_grows, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
