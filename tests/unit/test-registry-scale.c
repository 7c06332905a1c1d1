/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command asks does not cost more with every plan there is. SQLite itself says so: each
 * connection of this program is watched, and of each statement that ends we ask how many steps it
 * took, and whether its plan reads a whole table.
 */
#include "unit/registry-fixture.h"

#include <sqlite3.h>

#define MANY 300

static bool watching;
static int64_t steps;     /* of SQLite's machine, while watching */
static char scanned[512]; /* the first statement that reads a whole table */

/* "SCAN x USING INDEX y" of a partial index reads the few rows in it. */
static void look_at_plan(sqlite3 *db, const char *sql)
{
	char *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sql);
	sqlite3_stmt *stmt = NULL;

	assert_int_equal(sqlite3_prepare_v2(db, explain, -1, &stmt, NULL), SQLITE_OK);
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		const char *detail = (const char *)sqlite3_column_text(stmt, 3);

		if (strncmp(detail, "SCAN ", 5) == 0 && !strstr(detail, "INDEX plan_doubtful") &&
		    !strstr(detail, "INDEX plan_starting") &&
		    !strstr(detail, "INDEX sandbox_pending") && !scanned[0])
			(void)snprintf(scanned, sizeof(scanned), "%s: %s", detail, sql);
	}
	(void)sqlite3_finalize(stmt);
	sqlite3_free(explain);
}

static int on_end(unsigned what, void *ctx, void *p, void *x)
{
	sqlite3_stmt *stmt = p;

	(void)what;
	(void)ctx;
	(void)x;
	if (!watching)
		return 0;
	steps += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
	watching = false;
	look_at_plan(sqlite3_db_handle(stmt), sqlite3_sql(stmt));
	watching = true;
	return 0;
}

static int watch(sqlite3 *db, char **error, const struct sqlite3_api_routines *api)
{
	(void)error;
	(void)api;
	return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, on_end, NULL);
}

/* ---- a store with many plans ---- */

static void add_box(struct registry *r, const char *plan, const char *root,
                    enum atoll_sandbox_state state)
{
	char area[128];
	struct sandbox_row row = { 0 };
	char strategy[] = "overlay", id[] = "fs:1:2", none[] = "", boot[] = "boot";
	cleanup_free char *at = strdup(root);

	(void)snprintf(row.plan, sizeof(row.plan), "%s", plan);
	(void)snprintf(area, sizeof(area), "%s/plans/%s", home, plan);
	row.strategy = strategy;
	row.root = at;
	row.root_id = id;
	row.area = area;
	row.work = area;
	row.parent = row.error = none;
	row.boot_id = boot;
	row.state = state;
	check_ok(registry_sandbox_insert(r, &row, err));
	check_ok(registry_path_add(r, plan, row.id, area, err));
}

static void fill(struct registry *r, int from, int to)
{
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	for (int i = from; i < to; i++) {
		char name[32];
		struct plan_row row;
		struct batch_row batch = { .state = BATCH_COMMITTED, .retain_until_ms = INT64_MAX };

		(void)snprintf(name, sizeof(name), "plan-%d", i);
		row = new_plan(name);
		check_ok(registry_plan_insert(r, &row, err));
		add_box(r, row.id, "/srv/app", ATOLL_SANDBOX_ACTIVE);
		(void)snprintf(batch.plan, sizeof(batch.plan), "%s", row.id);
		check_ok(registry_batch_insert(r, &batch, err));
	}
	check_ok(registry_commit(r, err));
}

/* ---- the questions ---- */

static int count_root(void *ctx, const char *root, const char *root_id)
{
	assert_string_equal(root, "/srv/app");
	assert_string_equal(root_id, "fs:1:2");
	++*(int *)ctx;
	return 0;
}

static int count_path(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	(void)plan;
	(void)sandbox;
	(void)path;
	++*(int *)ctx;
	return 0;
}

static int count_batch(void *ctx, const struct batch_row *row)
{
	(void)row;
	++*(int *)ctx;
	return 0;
}

static int count_box(void *ctx, const struct sandbox_row *row)
{
	(void)row;
	++*(int *)ctx;
	return 0;
}

static void ask_all(struct registry *r)
{
	struct plan_row row;
	int none = 0, roots = 0, boxes = 0;

	check_ok(registry_plan_list_doubtful(r, count_plan, &none, err));
	check_ok(registry_root_list_above(r, "/srv", count_root, &none, err));
	check_ok(registry_path_list_below(r, "/srv/app", count_path, &none, err));
	check_ok(registry_batch_list_expired(r, 5, count_batch, &none, err));
	assert_int_equal(none, 0);
	check_ok(registry_root_list_above(r, "/srv/app/in/it", count_root, &roots, err));
	assert_int_equal(roots, 1);
	check_ok(registry_plan_named(r, "plan-0", &row, err));
	assert_string_equal(row.name, "plan-0");
	check_ok(registry_plan_get(r, row.id, &row, err));
	check_ok(registry_sandbox_list(r, row.id, count_box, &boxes, err));
	assert_int_equal(boxes, 1);
}

static int64_t cost(struct registry *r)
{
	steps = 0;
	watching = true;
	ask_all(r);
	watching = false;
	return steps;
}

static void what_every_command_asks_reads_no_table(void **state)
{
	struct registry *r = open_store();
	int64_t few, many;

	(void)state;
	scanned[0] = '\0';
	fill(r, 0, 2);
	few = cost(r);
	fill(r, 2, MANY);
	many = cost(r);
	registry_close(r);
	if (scanned[0])
		fail_msg("%s", scanned);
	/* The roots' index holds one entry for each plan on a root, which DISTINCT reads. */
	if (few == 0 || many > few + MANY * 8)
		fail_msg("%lld steps with 2 plans, %lld with %d", (long long)few, (long long)many,
		         MANY);
}

/* ---- and finds what it is asked for ---- */

static int note_name(void *ctx, const struct plan_row *row)
{
	(void)strcat(ctx, row->name);
	(void)strcat(ctx, " ");
	return 0;
}

static void doubtful_plans_are_found(void **state)
{
	struct registry *r = open_store();
	struct plan_row a, b, c;
	char names[256] = "";

	(void)state;
	(void)add_plan(r, "open");
	b = add_plan(r, "pending");
	a = add_plan(r, "preparing");
	c = add_plan(r, "both");
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	add_box(r, b.id, "/b", ATOLL_SANDBOX_PENDING);
	add_box(r, c.id, "/c", ATOLL_SANDBOX_PENDING);
	check_ok(registry_plan_set_state(r, a.id, ATOLL_PLAN_PREPARING, 0, err));
	check_ok(registry_plan_set_state(r, c.id, ATOLL_PLAN_PREPARING, 0, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_plan_list_doubtful(r, note_name, names, err));
	assert_string_equal(names, "pending preparing both ");
	registry_close(r);
}

static void paths_below_a_directory(void **state)
{
	static const char *const paths[] = { "/a/b", "/a/b-c/x", "/a/b/c", "/a/b/c/d", "/a/b0" };
	struct registry *r = open_store();
	struct plan_row p = add_plan(r, "p");
	int n = 0;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		check_ok(registry_path_add(r, p.id, "", paths[i], err));
	check_ok(registry_commit(r, err));
	check_ok(registry_path_list_below(r, "/a/b", count_path, &n, err));
	assert_int_equal(n, 2);
	registry_close(r);
}

static void expired_undo_data_is_found(void **state)
{
	static const struct batch_row rows[] = {
		{ .state = BATCH_COMMITTED, .retain_until_ms = 10 }, /* this one, */
		{ .state = BATCH_COMMITTED, .retain_until_ms = 30 },
		{ .state = BATCH_COMMITTED, .retain_until_ms = 0 },
		{ .state = BATCH_COMMITTED, .retain_until_ms = 10, .released = true },
		{ .state = BATCH_UNDONE, .retain_until_ms = 10 }, /* and what a redo would need */
		{ .state = BATCH_UNDONE, .retain_until_ms = 10, .released = true },
		{ .state = BATCH_WITHDRAWN, .retain_until_ms = 10 },
	};
	struct registry *r = open_store();
	struct plan_row p = add_plan(r, "p");
	int n = 0;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct batch_row row = rows[i];

		(void)snprintf(row.plan, sizeof(row.plan), "%s", p.id);
		check_ok(registry_batch_insert(r, &row, err));
	}
	check_ok(registry_commit(r, err));
	check_ok(registry_batch_list_expired(r, 20, count_batch, &n, err));
	assert_int_equal(n, 2);
	registry_close(r);
}

static void schema_without_indexes_is_migrated(void **state)
{
	struct registry *r = open_store();
	struct plan_row p = add_plan(r, "p");
	char path[128], sql[] = "DROP INDEX plan_doubtful; DROP INDEX plan_starting;"
				"DROP INDEX sandbox_pending;"
				"DROP INDEX sandbox_root; DROP INDEX batch_retained;"
				"ALTER TABLE sandbox DROP COLUMN bytes;"
				"ALTER TABLE sandbox DROP COLUMN entries;"
				"ALTER TABLE exec DROP COLUMN term_signal;"
				"ALTER TABLE exec DROP COLUMN timed_out;"
				"ALTER TABLE exec DROP COLUMN memory_kills;"
				"ALTER TABLE exec DROP COLUMN output;"
				"ALTER TABLE exec DROP COLUMN job; DROP TABLE job;"
				"DROP TABLE ask;"
				"DROP TABLE request;"
				"DROP TABLE credential;"
				"ALTER TABLE plan DROP COLUMN starter;"
				"DROP INDEX batch_turn; ALTER TABLE batch DROP COLUMN turn;"
				"DROP TABLE news; DROP TABLE session;"
				"PRAGMA user_version = 3";
	sqlite3 *db = NULL;
	struct plan_row found;

	(void)state;
	registry_close(r);
	(void)snprintf(path, sizeof(path), "%s/atoll.db", home);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	r = open_store();
	check_ok(registry_plan_named(r, "p", &found, err));
	assert_string_equal(found.id, p.id);
	scanned[0] = '\0';
	fill(r, 0, 2);
	(void)cost(r);
	assert_string_equal(scanned, "");
	check_ok(registry_check(r, err));
	registry_close(r);
}

#define scale_test(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		scale_test(what_every_command_asks_reads_no_table),
		scale_test(doubtful_plans_are_found),
		scale_test(paths_below_a_directory),
		scale_test(expired_undo_data_is_found),
		scale_test(schema_without_indexes_is_migrated),
	};
	union {
		int (*in)(sqlite3 *, char **, const struct sqlite3_api_routines *);
		void (*out)(void);
	} hook = { .in = watch };

	if (sqlite3_auto_extension(hook.out) != SQLITE_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
