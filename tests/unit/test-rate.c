/* SPDX-License-Identifier: Apache-2.0 */
/* The limit on failures: bursts, recovery, networks, and a table that is too small. */
#include "daemon/rate.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#define SECOND INT64_C(1000000000)

static int fill(struct rate *r, const char *address, int64_t now)
{
	unsigned retry = 0;
	int n = 0;

	while (n < 1000 && rate_failed(r, address, now, &retry))
		n++;
	return n;
}

static void rate_burst_then_one_in_a_step(void **state)
{
	struct rate *r = rate_new();
	unsigned retry = 0;
	int64_t now = 5 * SECOND;

	(void)state;
	assert_int_equal(fill(r, "192.0.2.1", now), RATE_BURST);
	assert_false(rate_failed(r, "192.0.2.1", now, &retry));
	assert_int_equal(retry, RATE_STEP_MS / 1000);
	/* Asking too early does not make it longer. */
	for (int i = 0; i < 100; i++)
		assert_false(rate_failed(r, "192.0.2.1", now + SECOND, &retry));
	assert_int_equal(retry, 1);
	assert_true(rate_failed(r, "192.0.2.1", now + retry * SECOND + SECOND, &retry));
	assert_false(rate_failed(r, "192.0.2.1", now + 2 * SECOND, &retry));
	/* All of it is there again after a while. */
	assert_int_equal(fill(r, "192.0.2.1", now + 3600 * SECOND), RATE_BURST);
	rate_free(r);
}

static void rate_addresses_are_apart_and_networks_are_not(void **state)
{
	struct rate *r = rate_new();

	(void)state;
	assert_int_equal(fill(r, "192.0.2.1", SECOND), RATE_BURST);
	assert_int_equal(fill(r, "192.0.2.2", SECOND), RATE_BURST);
	assert_int_equal(fill(r, "::ffff:192.0.2.2", SECOND), 0);
	assert_int_equal(fill(r, "2001:db8:1:2::1", SECOND), RATE_BURST);
	assert_int_equal(fill(r, "2001:db8:1:2:ffff::9", SECOND), 0);
	assert_int_equal(fill(r, "2001:db8:1:3::1", SECOND), RATE_BURST);
	assert_int_equal(fill(r, "key ci", SECOND), RATE_BURST);
	rate_free(r);
}

static void rate_overall_holds_against_many_addresses(void **state)
{
	struct rate *r = rate_new();
	int n = 0;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		unsigned retry;
		char address[32];

		(void)snprintf(address, sizeof(address), "198.51.%d.%d", i / 250, i % 250);
		n += rate_failed(r, address, SECOND, &retry);
	}
	assert_int_equal(n, RATE_ALL_BURST);
	rate_free(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rate_burst_then_one_in_a_step),
		cmocka_unit_test(rate_addresses_are_apart_and_networks_are_not),
		cmocka_unit_test(rate_overall_holds_against_many_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
