/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's rows, one kind after another. The file below them is in test-registry-store. */
#include "unit/registry-fixture.h"

#include "unit/expect-abort.h"

#include <errno.h>
#include <stdint.h>

/* Runs CALL, which must fail with CODE; the words stay in ERR. */
#define check_fails(call, want)                                               \
	do {                                                                  \
		int got_code = (call);                                        \
		if (got_code != (want))                                       \
			fail_msg("%s: %s", #call, error_code_name(got_code)); \
		assert_int_equal(e.code, (want));                             \
	} while (0)

static void assert_contains(const char *text, const char *part)
{
	assert_non_null(text);
	if (!strstr(text, part))
		fail_msg("'%s' does not contain '%s'", text, part);
}

static void plan_round_trip(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row row = new_plan("fix-42"), got;

	(void)state;
	row.state = ATOLL_PLAN_OPEN;
	row.owned = true;
	row.epoch = 7;
	row.batch = 0;
	row.retry_at_ms = -5;
	row.attempts = UINT32_MAX;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	check_ok(registry_plan_get(r, row.id, &got, err)); /* inside: sees its own */
	check_ok(registry_commit(r, err));
	assert_int_equal(row.seq, 1);

	memset(&got, 0xff, sizeof(got));
	check_ok(registry_plan_get(r, row.id, &got, err));
	assert_string_equal(got.id, row.id);
	assert_string_equal(got.name, "fix-42");
	assert_int_equal(got.state, ATOLL_PLAN_OPEN);
	assert_int_equal(got.seq, 1);
	assert_true(got.owned);
	assert_false(got.abandoned);
	assert_int_equal(got.epoch, 7);
	assert_int_equal(got.created_ms, 1700000000123);
	assert_int_equal(got.retry_at_ms, -5);
	assert_int_equal(got.attempts, UINT32_MAX);

	got.owned = false;
	got.abandoned = true;
	got.attempts = 3;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_update(r, &got, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_plan_get(r, row.id, &got, err));
	assert_false(got.owned);
	assert_true(got.abandoned);
	assert_int_equal(got.attempts, 3);
}

static void plan_names_are_unique(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row first = add_plan(r, "same"), second = new_plan("same");
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_fails(registry_plan_insert(r, &second, &e), -ATOLL_E_EXISTS);
	assert_contains(e.msg, "'same'");
	error_done(&e);

	/* The same id under another name, too. */
	(void)snprintf(second.name, sizeof(second.name), "other");
	memcpy(second.id, first.id, sizeof(second.id));
	check_fails(registry_plan_insert(r, &second, &e), -ATOLL_E_EXISTS);
	registry_rollback(r);
	assert_int_equal(plans_in(r), 1);
}

static void closed_plan_frees_its_name(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row first = add_plan(r, "again"), second, found;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_set_state(r, first.id, ATOLL_PLAN_CLOSED, 0, err));
	check_ok(registry_commit(r, err));
	second = add_plan(r, "again");
	assert_int_equal(plans_in(r), 1);
	check_ok(registry_plan_resolve(r, "again", &found, err));
	assert_string_equal(found.id, second.id);
	check_ok(registry_plan_get(r, first.id, &found, err));
	assert_int_equal(found.state, ATOLL_PLAN_CLOSED);
}

static void stm_01_refused_step_changes_nothing(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row row = add_plan(r, "steps");
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_fails(registry_plan_set_state(r, row.id, ATOLL_PLAN_COMMITTED, 0, &e),
	            -ATOLL_E_STATE);
	assert_contains(e.msg, "OPEN");
	assert_contains(e.msg, "COMMITTED");
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_PREPARING, 0, err));
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_DECIDED, 0, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_plan_get(r, row.id, &row, err));
	assert_int_equal(row.state, ATOLL_PLAN_DECIDED);
}

static void stale_epoch_is_refused(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row row = add_plan(r, "epochs");
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_PREPARING, 10, err));
	check_fails(registry_plan_set_state(r, row.id, ATOLL_PLAN_OPEN, 9, &e), -ATOLL_E_STATE);
	error_done(&e);
	row.epoch = 9;
	check_fails(registry_plan_update(r, &row, &e), -ATOLL_E_STATE);
	/* 0 does not check and does not lower it. */
	row.epoch = 0;
	check_ok(registry_plan_update(r, &row, err));
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_OPEN, 0, err));
	check_ok(registry_plan_get(r, row.id, &row, err));
	assert_int_equal(row.epoch, 10);
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_PREPARING, 10, err));
	check_ok(registry_plan_set_state(r, row.id, ATOLL_PLAN_OPEN, 11, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_plan_get(r, row.id, &row, err));
	assert_int_equal(row.epoch, 11);
}

struct seen {
	char names[256];
};

static int append_name(void *ctx, const struct plan_row *row)
{
	struct seen *seen = ctx;
	size_t used = strlen(seen->names);

	(void)snprintf(seen->names + used, sizeof(seen->names) - used, "%s ", row->name);
	return 0;
}

static int stop_at_first(void *ctx, const struct plan_row *row)
{
	(void)row;
	++*(int *)ctx;
	return -ECANCELED;
}

static int read_inside(void *ctx, const struct plan_row *row)
{
	struct plan_row again;

	return registry_plan_get(ctx, row->id, &again, NULL);
}

static void plan_list_order_and_callbacks(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct seen seen = { "" };
	int calls = 0;

	(void)state;
	(void)add_plan(r, "zeta");
	(void)add_plan(r, "alpha");
	(void)add_plan(r, "mu");
	check_ok(registry_plan_list(r, append_name, &seen, err));
	assert_string_equal(seen.names, "zeta alpha mu ");
	assert_int_equal(registry_plan_list(r, stop_at_first, &calls, NULL), -ECANCELED);
	assert_int_equal(calls, 1);
	check_ok(registry_plan_list(r, read_inside, r, err));
}

static struct plan_row add_plan_id(struct registry *r, const char *name, const char *id)
{
	struct plan_row row = new_plan(name);

	memcpy(row.id, id, PLAN_ID_LEN);
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	check_ok(registry_plan_insert(r, &row, err));
	check_ok(registry_commit(r, err));
	return row;
}

static void sto_06_resolve(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	struct plan_row got;

	(void)state;
	check_fails(registry_plan_resolve(r, "-", &got, &e), -ATOLL_E_NOT_FOUND);
	error_done(&e);
	(void)add_plan_id(r, "fix-42", "aaaa000000000001");
	check_ok(registry_plan_resolve(r, "-", &got, err));
	assert_string_equal(got.name, "fix-42");

	(void)add_plan_id(r, "fix-421", "aaaa000000000002");
	(void)add_plan_id(r, "deploy", "bbbb000000000003");
	/* Named as another's id: the id wins, or one would pass for the other. */
	(void)add_plan_id(r, "aaaa000000000002", "cccc000000000004");

	check_ok(registry_plan_resolve(r, "fix-42", &got, err)); /* exact before prefix */
	assert_string_equal(got.id, "aaaa000000000001");
	check_ok(registry_plan_resolve(r, "aaaa000000000002", &got, err));
	assert_string_equal(got.name, "fix-421");
	check_ok(registry_plan_resolve(r, "aaaa000000000001", &got, err));
	assert_string_equal(got.name, "fix-42");
	check_ok(registry_plan_resolve(r, "d", &got, err));
	assert_string_equal(got.name, "deploy");
	check_ok(registry_plan_resolve(r, "bbbb", &got, err));
	assert_string_equal(got.name, "deploy");

	check_fails(registry_plan_resolve(r, "fix", &got, &e), -ATOLL_E_AMBIGUOUS);
	assert_contains(e.msg, "fix-42 (aaaa000000000001)");
	assert_contains(e.msg, "fix-421 (aaaa000000000002)");
	error_done(&e);
	check_fails(registry_plan_resolve(r, "-", &got, &e), -ATOLL_E_AMBIGUOUS);
	assert_contains(e.msg, "deploy (bbbb000000000003)");
	error_done(&e);
	check_fails(registry_plan_resolve(r, "", &got, &e), -ATOLL_E_INVALID);
}

static void resolve_suggests(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	struct plan_row got;
	char name[32];

	(void)state;
	(void)add_plan(r, "fix-42");
	check_fails(registry_plan_resolve(r, "fxi-42", &got, &e), -ATOLL_E_NOT_FOUND);
	assert_string_equal(e.hint, "did you mean 'fix-42'?");
	error_done(&e);
	(void)add_plan(r, "fix-43");
	(void)add_plan(r, "fix-4x");
	(void)add_plan(r, "other");
	check_fails(registry_plan_resolve(r, "fix-44", &got, &e), -ATOLL_E_NOT_FOUND);
	assert_string_equal(e.hint, "did you mean 'fix-42', 'fix-43' or 'fix-4x'?");
	error_done(&e);
	check_fails(registry_plan_resolve(r, "fxi-42", &got, &e), -ATOLL_E_NOT_FOUND);
	assert_string_equal(e.hint, "did you mean 'fix-42'?");
	error_done(&e);
	check_fails(registry_plan_resolve(r, "wholly-else", &got, &e), -ATOLL_E_NOT_FOUND);
	assert_string_equal(e.hint, "atoll list");
	error_done(&e);
	check_fails(registry_plan_resolve(r, "bad\x1b[2J", &got, &e), -ATOLL_E_NOT_FOUND);
	assert_null(strchr(e.msg, '\x1b'));
	error_done(&e);

	for (int i = 0; i < 12; i++) {
		(void)snprintf(name, sizeof(name), "many-%02d", i);
		(void)add_plan(r, name);
	}
	check_fails(registry_plan_resolve(r, "many", &got, &e), -ATOLL_E_AMBIGUOUS);
	assert_contains(e.msg, "and 4 more");
}

static void long_names_resolve(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	char name[LIMIT_NAME + 1], ref[LIMIT_NAME * 3];
	struct plan_row got;

	(void)state;
	memset(name, 'n', LIMIT_NAME);
	name[LIMIT_NAME] = '\0';
	(void)add_plan(r, name);
	name[LIMIT_NAME - 1] = 'm';
	check_fails(registry_plan_resolve(r, name, &got, &e), -ATOLL_E_NOT_FOUND);
	assert_contains(e.hint, "did you mean");
	error_done(&e);
	memset(ref, 'n', sizeof(ref) - 1);
	ref[sizeof(ref) - 1] = '\0';
	check_fails(registry_plan_resolve(r, ref, &got, &e), -ATOLL_E_NOT_FOUND);
}

static struct sandbox_row new_sandbox(const char *plan)
{
	struct sandbox_row row = SANDBOX_ROW_INIT;

	(void)snprintf(row.plan, sizeof(row.plan), "%s", plan);
	row.strategy = strdup("overlay");
	row.root = strdup("/srv/\xff\xfe odd\nname");
	row.root_id = strdup("1:2:3");
	row.area = strdup("/srv/.atoll-0/x");
	row.t0_ns = INT64_MAX;
	row.generation = 1;
	return row;
}

static void sandbox_round_trip(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row plan = add_plan(r, "boxes");
	cleanup_sandbox_row struct sandbox_row row = new_sandbox(plan.id), got = SANDBOX_ROW_INIT;
	char want[SANDBOX_ID_LEN + 1];

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_sandbox_insert(r, &row, err));
	check_ok(registry_commit(r, err));
	(void)snprintf(want, sizeof(want), "%s-0", plan.id);
	assert_string_equal(row.id, want);
	assert_int_equal(row.seq, 1);

	check_ok(registry_sandbox_get(r, row.id, &got, err));
	assert_string_equal(got.plan, plan.id);
	assert_string_equal(got.root, "/srv/\xff\xfe odd\nname");
	assert_string_equal(got.parent, "");
	assert_string_equal(got.error, "");
	assert_int_equal(got.t0_ns, INT64_MAX);
	assert_int_equal(got.state, ATOLL_SANDBOX_PENDING);

	got.exec_n = 5;
	got.stale = true;
	free(got.boot_id);
	got.boot_id = strdup("boot");
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_sandbox_update(r, &got, err));
	check_ok(registry_sandbox_set_state(r, row.id, ATOLL_SANDBOX_ERRORED, "disk full", err));
	check_ok(registry_commit(r, err));
	sandbox_row_done(&got);
	check_ok(registry_sandbox_get(r, row.id, &got, err));
	assert_int_equal(got.exec_n, 5);
	assert_true(got.stale);
	assert_string_equal(got.boot_id, "boot");
	assert_string_equal(got.error, "disk full");
	assert_int_equal(got.state, ATOLL_SANDBOX_ERRORED);
}

static void stm_01_sandbox_refused_step(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row plan = add_plan(r, "boxes");
	cleanup_sandbox_row struct sandbox_row row = new_sandbox(plan.id), got = SANDBOX_ROW_INIT;
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_sandbox_insert(r, &row, err));
	check_fails(registry_sandbox_set_state(r, row.id, ATOLL_SANDBOX_COMMITTED, NULL, &e),
	            -ATOLL_E_STATE);
	check_ok(registry_sandbox_set_state(r, row.id, ATOLL_SANDBOX_CREATED, NULL, err));
	check_ok(registry_commit(r, err));
	check_ok(registry_sandbox_get(r, row.id, &got, err));
	assert_int_equal(got.state, ATOLL_SANDBOX_CREATED);
}

static int count_sandbox(void *ctx, const struct sandbox_row *row)
{
	(void)row;
	++*(int *)ctx;
	return 0;
}

static void sandbox_numbers_and_limit(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row plan = add_plan(r, "boxes");
	cleanup_sandbox_row struct sandbox_row row = new_sandbox(plan.id);
	cleanup_error struct error e = ERROR_INIT;
	char fifth[SANDBOX_ID_LEN + 1];
	int n = 0;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	for (int i = 0; i < LIMIT_SANDBOXES; i++) {
		row.id[0] = '\0';
		check_ok(registry_sandbox_insert(r, &row, err));
	}
	row.id[0] = '\0';
	check_fails(registry_sandbox_insert(r, &row, &e), -ATOLL_E_TOO_BIG);
	error_done(&e);
	/* A number given back is used again. */
	(void)snprintf(fifth, sizeof(fifth), "%s-5", plan.id);
	check_ok(registry_sandbox_delete(r, fifth, err));
	check_fails(registry_sandbox_delete(r, fifth, &e), -ATOLL_E_NOT_FOUND);
	error_done(&e);
	check_ok(registry_sandbox_insert(r, &row, err));
	assert_string_equal(row.id, fifth);
	check_fails(registry_sandbox_insert(r, &row, &e), -ATOLL_E_EXISTS);
	check_ok(registry_commit(r, err));
	check_ok(registry_sandbox_list(r, plan.id, count_sandbox, &n, err));
	assert_int_equal(n, LIMIT_SANDBOXES);
}

static void sandbox_of_no_plan(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_sandbox_row struct sandbox_row row = new_sandbox("0123456789abcdef");
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_fails(registry_sandbox_insert(r, &row, &e), -ATOLL_E_NOT_FOUND);
	registry_rollback(r);
}

struct answers {
	int n;
	struct part_row last;
};

static int note_part(void *ctx, const struct part_row *row)
{
	struct answers *a = ctx;

	a->n++;
	a->last = *row;
	return 0;
}

static int count_batch(void *ctx, const struct batch_row *row)
{
	assert_int_equal(row->number, ++*(int *)ctx);
	return 0;
}

static void batches_and_parts(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row plan = add_plan(r, "batches");
	struct batch_row batch = { .flags = 0x80000001u, .retain_until_ms = 99 }, got;
	struct part_row part = { .position = 2, .manifest = "0123456789abcdef0123456789abcdef" };
	cleanup_error struct error e = ERROR_INIT;
	struct answers answers = { 0 };
	int n = 0;

	(void)state;
	memcpy(batch.plan, plan.id, sizeof(batch.plan));
	memcpy(part.plan, plan.id, sizeof(part.plan));
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_batch_insert(r, &batch, err));
	assert_int_equal(batch.number, 1);
	check_ok(registry_batch_insert(r, &batch, err));
	assert_int_equal(batch.number, 2);

	part.batch = 2;
	(void)snprintf(part.sandbox, sizeof(part.sandbox), "%s-7", plan.id);
	check_ok(registry_part_put(r, &part, err));
	part.answer = PART_NO_CHANGE;
	part.changes = 12;
	check_ok(registry_part_put(r, &part, err)); /* replaced, not doubled */
	(void)snprintf(part.sandbox, sizeof(part.sandbox), "%s-8", plan.id);
	part.position = 1;
	check_ok(registry_part_put(r, &part, err));

	check_fails(registry_batch_set_state(r, plan.id, 2, BATCH_COMMITTED, &e), -ATOLL_E_STATE);
	error_done(&e);
	check_ok(registry_batch_set_state(r, plan.id, 2, BATCH_DECIDED, err));
	batch.released = true;
	check_ok(registry_batch_update(r, &batch, err));
	part.batch = 3;
	check_fails(registry_part_put(r, &part, &e), -ATOLL_E_NOT_FOUND);
	error_done(&e);
	check_ok(registry_commit(r, err));

	check_ok(registry_batch_get(r, plan.id, 2, &got, err));
	assert_int_equal(got.state, BATCH_DECIDED);
	assert_int_equal(got.flags, 0x80000001u);
	assert_int_equal(got.retain_until_ms, 99);
	assert_true(got.released);
	check_fails(registry_batch_get(r, plan.id, 9, &got, &e), -ATOLL_E_NOT_FOUND);
	check_ok(registry_batch_list(r, plan.id, count_batch, &n, err));
	assert_int_equal(n, 2);
	check_ok(registry_part_list(r, plan.id, 2, note_part, &answers, err));
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.last.position, 2);
	assert_int_equal(answers.last.answer, PART_NO_CHANGE);
	assert_int_equal(answers.last.changes, 12);
	assert_string_equal(answers.last.manifest, part.manifest);
}

static int count_path(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	assert_int_equal(strlen(plan), PLAN_ID_LEN);
	assert_non_null(sandbox);
	assert_int_equal(path[0], '/');
	++*(int *)ctx;
	return 0;
}

static int paths_of(struct registry *r, const char *plan)
{
	int n = 0;

	check_ok(registry_path_list(r, plan, count_path, &n, err));
	return n;
}

static void paths(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row a = add_plan(r, "a"), b = add_plan(r, "b");
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_path_add(r, a.id, "", "/x/1", err));
	check_ok(registry_path_add(r, a.id, "", "/x/1", err)); /* repeated by recovery */
	check_ok(registry_path_add(r, b.id, NULL, "/x/2", err));
	check_fails(registry_path_add(r, b.id, "", "/x/1", &e), -ATOLL_E_EXISTS);
	check_ok(registry_path_add(r, a.id, "", "/x/3", err));
	check_ok(registry_path_remove(r, "/x/3", err));
	check_ok(registry_path_remove(r, "/x/3", err));
	check_ok(registry_commit(r, err));
	assert_int_equal(paths_of(r, NULL), 2);
	assert_int_equal(paths_of(r, a.id), 1);
}

static int note_event(void *ctx, const struct event_row *row)
{
	struct seen *seen = ctx;
	size_t used = strlen(seen->names);

	(void)snprintf(seen->names + used, sizeof(seen->names) - used, "%s:%d:%s ", row->what,
	               row->code, row->message);
	assert_true(row->at_ms > 1600000000000);
	return 0;
}

/* Everything of a plan goes with it; its history stays. */
static void plan_delete(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row keep = add_plan(r, "keep"), plan = add_plan(r, "gone");
	cleanup_sandbox_row struct sandbox_row box = new_sandbox(plan.id);
	struct batch_row batch = { 0 };
	struct part_row part = { .batch = 1 };
	struct exec_row exec = { .argv = "make", .exit_code = 2 };
	cleanup_error struct error e = ERROR_INIT;
	struct seen seen = { "" };
	int n = 0;

	(void)state;
	memcpy(batch.plan, plan.id, sizeof(batch.plan));
	memcpy(part.plan, plan.id, sizeof(part.plan));
	memcpy(exec.plan, plan.id, sizeof(exec.plan));
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_sandbox_insert(r, &box, err));
	check_ok(registry_batch_insert(r, &batch, err));
	check_ok(registry_part_put(r, &part, err));
	check_ok(registry_path_add(r, plan.id, box.id, "/area/x", err));
	check_ok(registry_path_add(r, keep.id, "", "/area/y", err));
	check_ok(registry_event_add(r, plan.id, "start", 0, NULL, err));
	check_ok(registry_event_add(r, plan.id, "commit", -ENOSPC, "disk full", err));
	check_ok(registry_event_add(r, keep.id, "start", 0, "", err));
	check_ok(registry_exec_add(r, &exec, err));
	check_ok(registry_commit(r, err));

	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_delete(r, plan.id, err));
	check_fails(registry_plan_delete(r, plan.id, &e), -ATOLL_E_NOT_FOUND);
	check_ok(registry_commit(r, err));

	check_ok(registry_sandbox_list(r, NULL, count_sandbox, &n, err));
	assert_int_equal(n, 0);
	check_ok(registry_batch_list(r, NULL, count_batch, &n, err));
	assert_int_equal(n, 0);
	assert_int_equal(paths_of(r, NULL), 1);
	check_ok(registry_event_list(r, plan.id, note_event, &seen, err));
	assert_string_equal(seen.names, "start:0: commit:-28:disk full ");
	check_ok(registry_check(r, err));
}

static void highwater(void **state)
{
	cleanup_registry struct registry *r = open_store();
	int64_t highest = 0;

	(void)state;
	check_ok(registry_begin(r, REGISTRY_NORMAL, err));
	check_ok(registry_highwater(r, "fs1", 1000, &highest, err));
	assert_int_equal(highest, 1000);
	check_ok(registry_highwater(r, "fs1", 900, &highest, err));
	assert_int_equal(highest, 1000);
	check_ok(registry_highwater(r, "fs1", 1100, &highest, err));
	assert_int_equal(highest, 1100);
	check_ok(registry_highwater(r, "fs2", -3, &highest, err));
	assert_int_equal(highest, -3);
	check_ok(registry_commit(r, err));
}

static void rollback_drops_everything(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row row = new_plan("never");

	(void)state;
	registry_rollback(r); /* none is open */
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	assert_int_equal(plans_in(r), 1);
	registry_rollback(r);
	registry_rollback(r);
	assert_int_equal(plans_in(r), 0);
	assert_int_equal(try_store_lock(), 0);
}

static void write_outside(void *arg)
{
	struct plan_row row = new_plan("bug");

	(void)arg;
	(void)registry_plan_insert(open_store(), &row, NULL);
}

static void begin_twice(void *arg)
{
	struct registry *r = open_store();

	(void)arg;
	(void)registry_begin(r, REGISTRY_NORMAL, NULL);
	(void)registry_begin(r, REGISTRY_NORMAL, NULL);
}

static void commit_without_begin(void *arg)
{
	(void)arg;
	(void)registry_commit(open_store(), NULL);
}

static void misuse_is_a_bug(void **state)
{
	(void)state;
	expect_abort(write_outside, NULL);
	expect_abort(begin_twice, NULL);
	expect_abort(commit_without_begin, NULL);
}

#define store_test(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		store_test(plan_round_trip),
		store_test(plan_names_are_unique),
		store_test(closed_plan_frees_its_name),
		store_test(stm_01_refused_step_changes_nothing),
		store_test(stale_epoch_is_refused),
		store_test(plan_list_order_and_callbacks),
		store_test(sto_06_resolve),
		store_test(resolve_suggests),
		store_test(long_names_resolve),
		store_test(sandbox_round_trip),
		store_test(stm_01_sandbox_refused_step),
		store_test(sandbox_numbers_and_limit),
		store_test(sandbox_of_no_plan),
		store_test(batches_and_parts),
		store_test(paths),
		store_test(plan_delete),
		store_test(highwater),
		store_test(rollback_drops_everything),
		store_test(misuse_is_a_bug),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
