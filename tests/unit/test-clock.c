/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines, stamps and the boot id. */
#include "util/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#define NS_PER_MS INT64_C(1000000)

static void deadlines(void **state)
{
	int64_t now = clock_boot_ns();
	int64_t soon = clock_deadline(60000);

	(void)state;
	assert_true(soon >= now + 60000 * NS_PER_MS);
	assert_in_range(clock_left_ms(soon), 1, 60000);
	assert_int_equal(clock_left_ms(clock_deadline(0)), 0);
	assert_int_equal(clock_left_ms(now - 1), 0);
	assert_true(clock_deadline(-1) == CLOCK_NEVER);
	assert_true(clock_deadline(INT64_MAX) == CLOCK_NEVER);
	assert_true(clock_deadline(INT64_MAX / NS_PER_MS) == CLOCK_NEVER);
	assert_int_equal(clock_left_ms(CLOCK_NEVER), -1);
	assert_int_equal(clock_left_ms(CLOCK_NEVER - 1), INT_MAX);
}

/* Rounded up: what is left of the last millisecond is a millisecond. */
static void left_is_rounded_up(void **state)
{
	int64_t deadline = clock_boot_ns() + 20 * NS_PER_MS;
	int left;

	(void)state;
	while ((left = clock_left_ms(deadline)) > 0)
		assert_true(left <= 20);
	assert_true(clock_boot_ns() >= deadline);
}

/* No sleep of ours is a suspend, however long it lasts. Who is kept waiting between two clocks may see one
 * now and then. */
static void suspends_are_none_of_ours(void **state)
{
	int64_t since = INT64_MAX;

	(void)state;
	for (int i = 0; i < 10 && (since <= -500 * NS_PER_MS || since >= 500 * NS_PER_MS); i++) {
		int64_t before = clock_suspended_ns();

		clock_sleep_ns(600 * NS_PER_MS);
		since = clock_suspended_ns() - before;
	}
	assert_true(since > -500 * NS_PER_MS && since < 500 * NS_PER_MS);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* A signal does not shorten a sleep. */
static void sleep_outlasts_signals(void **state)
{
	const struct sigaction act = { .sa_handler = on_alarm };
	const struct itimerval every = { { 0, 2000 }, { 0, 2000 } }, off = { 0 };
	int64_t before;

	(void)state;
	assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
	before = clock_boot_ns();
	assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
	clock_sleep_ns(30 * NS_PER_MS);
	assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
	assert_true(clock_boot_ns() - before >= 30 * NS_PER_MS);
	clock_sleep_ns(0);
	clock_sleep_ns(-1);
}

static void stamps(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ 1, "1970-01-01T00:00:00.001Z" },
		{ -1, "1969-12-31T23:59:59.999Z" },
		{ -1000, "1969-12-31T23:59:59.000Z" },
		{ 1794718035123, "2026-11-15T04:47:15.123Z" },
		{ 253402300799999, "9999-12-31T23:59:59.999Z" },
		{ INT64_MAX, "292278994-08-17T07:12:55.807Z" },
		{ INT64_MIN, "-292275055-05-16T16:47:04.192Z" },
	};
	char text[CLOCK_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		clock_format(rows[i].ms, text);
		assert_string_equal(text, rows[i].text);
	}
}

static void real_time_agrees(void **state)
{
	int64_t ms = clock_real_ms();

	(void)state;
	assert_in_range(ms / 1000 + 2 - time(NULL), 0, 4);
	assert_in_range(clock_real_ns() / NS_PER_MS - ms, 0, 2000);
	assert_true(timespec_ns(&(struct timespec){ 3, 7 }) == 3000000007);
}

static void *ask_boot_id(void *ret)
{
	*(const char **)ret = clock_boot_id();
	return NULL;
}

static void boot_id_is_read_once(void **state)
{
	const char *ids[4];
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_boot_id, &ids[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_ptr_equal(ids[i], ids[0]);
	}
	assert_int_equal(strlen(ids[0]), 36);
	assert_int_equal(ids[0][8], '-');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deadlines),
		cmocka_unit_test(left_is_rounded_up),
		cmocka_unit_test(suspends_are_none_of_ours),
		cmocka_unit_test(sleep_outlasts_signals),
		cmocka_unit_test(stamps),
		cmocka_unit_test(real_time_agrees),
		cmocka_unit_test(boot_id_is_read_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
