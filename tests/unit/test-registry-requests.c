/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are made once, and asks for a commit, as rows. */
#include "unit/registry-fixture.h"

#include "registry/ask.h"
#include "registry/request.h"

static struct request_row request_of(const char *sender, const char *key, const char *plan)
{
	struct request_row row = { .created_ms = 1700000000123, .kind = REQUEST_PLAN };

	(void)snprintf(row.sender, sizeof(row.sender), "%s", sender);
	(void)snprintf(row.key, sizeof(row.key), "%s", key);
	(void)snprintf(row.plan, sizeof(row.plan), "%s", plan);
	(void)snprintf(row.name, sizeof(row.name), "p");
	hash_buffer(key, strlen(key), row.digest);
	return row;
}

static int insert(struct registry *r, const struct request_row *row)
{
	int k;

	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	k = registry_request_insert(r, row, NULL);
	if (k < 0)
		registry_rollback(r);
	else
		check_ok(registry_commit(r, err));
	return k;
}

static void requests_belong_to_their_sender(void **state)
{
	struct registry *r = open_store();
	struct request_row a = request_of("socket", "k", "0123456789abcdef"), found;
	struct request_row b = request_of("fedcba9876543210", "k", "1123456789abcdef");

	(void)state;
	assert_int_equal(registry_request_get(r, "socket", "k", &found, NULL), 0);
	assert_int_equal(insert(r, &a), 0);
	assert_int_equal(insert(r, &b), 0);
	assert_int_equal(insert(r, &a), -ATOLL_E_EXISTS);
	assert_int_equal(registry_request_get(r, "socket", "k", &found, NULL), 1);
	assert_string_equal(found.plan, a.plan);
	assert_string_equal(found.digest, a.digest);
	assert_false(found.made);
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_request_plan_made(r, a.plan, err));
	check_ok(registry_request_delete(r, b.sender, b.key, err));
	check_ok(registry_commit(r, err));
	assert_int_equal(registry_request_get(r, "socket", "k", &found, NULL), 1);
	assert_true(found.made);
	assert_int_equal(registry_request_get(r, b.sender, "k", &found, NULL), 0);
	registry_close(r);
}

static void requests_are_kept_for_a_day(void **state)
{
	struct registry *r = open_store();
	struct request_row old = request_of("socket", "old", "0123456789abcdef"), found;
	struct request_row new = request_of("socket", "new", "1123456789abcdef");

	(void)state;
	assert_int_equal(insert(r, &old), 0);
	new.created_ms = old.created_ms + REQUEST_KEPT_MS;
	assert_int_equal(insert(r, &new), 0);
	assert_int_equal(registry_request_get(r, "socket", "old", &found, NULL), 1);
	(void)snprintf(new.key, sizeof(new.key), "newer");
	new.created_ms++;
	assert_int_equal(insert(r, &new), 0);
	assert_int_equal(registry_request_get(r, "socket", "old", &found, NULL), 0);
	registry_close(r);
}

static int count_states(void *ctx, const struct ask_row *row)
{
	((int *)ctx)[row->state]++;
	return 0;
}

static void asks_are_open_one_at_a_time(void **state)
{
	struct registry *r = open_store();
	struct plan_row plan = add_plan(r, "p");
	struct ask_row ask = { .who = "key ci", .digest = "d", .at_ms = 1 };
	char message[] = "please";
	int n[ASK_STATE_END_] = { 0 };

	(void)state;
	ask.message = message;
	(void)snprintf(ask.plan, sizeof(ask.plan), "%s", plan.id);
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_ask_insert(r, &ask, err));
	check_ok(registry_ask_insert(r, &ask, err));
	assert_int_equal(registry_ask_end(r, plan.id, ask.id - 1, ASK_DECLINED, "boss", NULL), 0);
	assert_int_equal(registry_ask_end(r, plan.id, ask.id, ASK_DECLINED, "boss", NULL), 1);
	check_ok(registry_ask_insert(r, &ask, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_ask_list(r, plan.id, false, count_states, n, err));
	assert_int_equal(n[ASK_OPEN], 1);
	assert_int_equal(n[ASK_WITHDRAWN], 1);
	assert_int_equal(n[ASK_DECLINED], 1);
	/* They go with their plan. */
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_delete(r, plan.id, err));
	check_ok(registry_commit(r, err));
	memset(n, 0, sizeof(n));
	check_ok(registry_ask_list(r, NULL, false, count_states, n, err));
	assert_int_equal(n[ASK_OPEN] + n[ASK_WITHDRAWN] + n[ASK_DECLINED], 0);
	registry_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(requests_belong_to_their_sender, store_setup,
		                                store_teardown),
		cmocka_unit_test_setup_teardown(requests_are_kept_for_a_day, store_setup,
		                                store_teardown),
		cmocka_unit_test_setup_teardown(asks_are_open_one_at_a_time, store_setup,
		                                store_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
