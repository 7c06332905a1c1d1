/* SPDX-License-Identifier: Apache-2.0 */
/* registry_version(): another number after every change, by whomever, and the same one without. */
#include "unit/registry-fixture.h"

#include <sqlite3.h>
#include <sys/wait.h>

#define WRITES 3000 /* more than one checkpoint */

static uint64_t version(struct registry *r)
{
	uint64_t v = 0;

	check_ok(registry_version(r, &v, err));
	return v;
}

static void write_plan(struct registry *r, const char *name)
{
	struct plan_row row = new_plan(name);

	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	check_ok(registry_plan_insert(r, &row, err));
	check_ok(registry_commit(r, err));
}

static void changes_are_seen(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	cleanup_registry struct registry *other = open_store();
	uint64_t before;

	(void)state;
	before = version(watch);
	assert_int_equal(version(watch), before);
	write_plan(other, "by-another");
	assert_int_not_equal(version(watch), before);
	before = version(watch);
	assert_int_equal(version(watch), before);
	write_plan(watch, "by-itself");
	assert_int_not_equal(version(watch), before);
}

static void reading_changes_nothing(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	cleanup_registry struct registry *other = NULL;
	struct plan_row row = new_plan("p"), got;
	uint64_t before;

	(void)state;
	check_ok(registry_begin(watch, REGISTRY_NORMAL, err));
	check_ok(registry_plan_insert(watch, &row, err));
	check_ok(registry_commit(watch, err));
	before = version(watch);
	other = open_store();
	check_ok(registry_plan_get(other, row.id, &got, err));
	check_ok(registry_begin(other, REGISTRY_NORMAL, err));
	registry_rollback(other);
	assert_int_equal(version(watch), before);
}

static void what_is_not_committed_is_not_seen(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	cleanup_registry struct registry *other = open_store();
	struct plan_row row = new_plan("p");
	uint64_t before = version(watch);

	(void)state;
	check_ok(registry_begin(other, REGISTRY_NORMAL, err));
	check_ok(registry_plan_insert(other, &row, err));
	assert_int_equal(version(watch), before);
	registry_rollback(other);
	assert_int_equal(version(watch), before);
}

static void every_one_of_many_is_seen(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	cleanup_registry struct registry *other = open_store();
	uint64_t last = version(watch);

	(void)state;
	for (int i = 0; i < WRITES; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "p-%d", i);
		write_plan(other, name);
		assert_int_not_equal(version(watch), last);
		last = version(watch);
	}
}

static void of_another_process(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	uint64_t before = version(watch);
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		struct registry *own;

		in_child = true;
		own = open_store();
		write_plan(own, "by-a-child");
		registry_close(own);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_not_equal(version(watch), before);
}

/* Somebody empties the WAL and begins it anew. */
static void after_a_checkpoint(void **state)
{
	cleanup_registry struct registry *watch = open_store();
	uint64_t before;
	char path[128];
	sqlite3 *db;

	(void)state;
	write_plan(watch, "first");
	(void)version(watch);
	(void)snprintf(path, sizeof(path), "%s/atoll.db", home);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL),
	                 SQLITE_OK);
	before = version(watch);
	assert_int_equal(sqlite3_exec(db, "DELETE FROM plan", NULL, NULL, NULL), SQLITE_OK);
	assert_int_not_equal(version(watch), before);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

#define store_test(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		store_test(changes_are_seen),
		store_test(reading_changes_nothing),
		store_test(what_is_not_committed_is_not_seen),
		store_test(every_one_of_many_is_seen),
		store_test(of_another_process),
		store_test(after_a_checkpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
