/* SPDX-License-Identifier: Apache-2.0 */
/* Rules ERR: one shape for every failure, with its cause and what became of each participant. */
#include "lib/atest.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- a plan that fails in a chosen way ---- */

struct pair {
	struct atoll_plan *p;
	const char *copy, *custom;
	char *before, *inodes;
};

static struct pair make_pair(struct fix *f, const char *name)
{
	struct pair t = { .p = fix_plan(f, name) };

	t.copy = fix_dir(f, fix_path(f, "%s-copy", name));
	t.custom = fix_dir(f, fix_path(f, "%s-custom", name));
	put_random_tree(t.copy, 15, 1);
	put_dir(fix_path(f, "%s/dir", t.copy), 0755);
	put_text(fix_path(f, "%s/dir/file", t.copy), "old\n");
	put_text(fix_path(f, "%s/value", t.custom), "old\n");
	fix_add(f, t.p, t.copy, "copy");
	fix_add(f, t.p, t.custom, "failer");
	put_text(fix_path(f, "%s/dir/file", fix_work(f, t.p, t.copy)), "new\n");
	put_text(fix_path(f, "%s/value", fix_work(f, t.p, t.custom)), "new\n");
	t.before = fix_keep(f, man_take(t.copy));
	return t;
}

static bool has_row(const struct atoll_result *res, const char *root, enum atoll_outcome outcome)
{
	for (size_t i = 0; i < atoll_result_participants(res); i++) {
		const struct atoll_participant_result *row = atoll_result_participant(res, i);

		if (strcmp(row->root, root) == 0 && row->outcome == outcome)
			return true;
	}
	return false;
}

/* ---- ERR-01 ---- */

static int make_immutable(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	set_immutable(user, true);
	return -EIO;
}

/* A failed batch has nothing COMMITTED but what cannot be undone; a sandbox that an earlier batch
 * committed stands for it, as skipped. */
static void err_01_one_batch_with_every_outcome(void **state)
{
	static const char *const names[] = { "earlier", "back",  "stuck", "idle",
		                             "final1",  "fails", "never" };
	static const enum atoll_outcome outcomes[] = {
		ATOLL_OUTCOME_SKIPPED,         ATOLL_OUTCOME_ROLLED_BACK,
		ATOLL_OUTCOME_ROLLBACK_FAILED, ATOLL_OUTCOME_UNCHANGED,
		ATOLL_OUTCOME_NOT_UNDOABLE,    ATOLL_OUTCOME_FAILED,
		ATOLL_OUTCOME_NOT_ATTEMPTED
	};
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "all");
	const char *root[7];
	char *before[7];

	need_root();
	for (size_t i = 0; i < 7; i++) {
		root[i] = fix_dir(f, names[i]);
		put_dir(fix_path(f, "%s/dir", root[i]), 0755);
		put_text(fix_path(f, "%s/dir/file", root[i]), "old\n");
		before[i] = fix_keep(f, man_take(root[i]));
	}
	fix_add(f, p, root[0], "copy");
	put_text(fix_path(f, "%s/dir/file", fix_work(f, p, root[0])), "new\n");
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	for (size_t i = 1; i < 7; i++)
		fix_add(f, p, root[i], i < 4 ? "copy" : "blunt");
	for (size_t i = 1; i < 7; i++)
		if (i != 3)
			put_text(fix_path(f, "%s/dir/file", fix_work(f, p, root[i])), "new\n");
	phase_hook(root[5], PHASE_COMMIT, make_immutable, fix_path(f, "%s/dir", root[2]));
	expect_code(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res), -ATOLL_E_NEEDS_RECOVERY);
	phase_clear();
	expect_eq(atoll_result_participants(f->res), 7);
	for (size_t i = 0; i < 7; i++)
		expect_msg(has_row(f->res, root[i], outcomes[i]), "%s is %s, expected %s", names[i],
		           atoll_outcome_name((enum atoll_outcome)fix_outcome(f, root[i])),
		           atoll_outcome_name(outcomes[i]));
	expect_eq(fix_row(f, root[2])->cause_errno, EPERM);
	expect(*fix_row(f, root[2])->recovery_path != '\0');

	/* And the resources are what it says. */
	expect_text(fix_path(f, "%s/dir/file", root[0]), "new\n");
	expect_man(root[1], before[1]);
	expect_text(fix_path(f, "%s/dir/file", root[2]), "new\n");
	expect_man(root[3], before[3]);
	expect_text(fix_path(f, "%s/dir/file", root[4]), "new\n");
	set_immutable(fix_path(f, "%s/dir", root[2]), false);
	expect_eq(atoll_recover(f->a, "all", false, f->res), 0);
	expect_man(root[2], before[2]);
}

/* ---- ERR-02, ERR-03: the same lines of code for every kind of failure ---- */

struct cause {
	int code, os_errno;
	const char *path_end; /* of the cause's path */
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

static void expect_failure(struct fix *f, struct pair *t, int r, const struct cause *c)
{
	expect_eq(r, c->code);
	expect_eq(atoll_result_code(f->res), c->code);
	expect(*atoll_result_message(f->res) != '\0');
	expect(atoll_code_exit(c->code) > 0);
	expect_eq(atoll_result_cause_errno(f->res), c->os_errno);
	if (c->path_end) {
		expect(*atoll_result_cause_op(f->res) != '\0');
		expect_msg(ends_with(atoll_result_cause_path(f->res), c->path_end),
		           "the cause's path is '%s', expected ...%s",
		           atoll_result_cause_path(f->res), c->path_end);
	}
	/* The undo report is there as well: nobody is committed, and nobody unaccounted for. */
	for (size_t i = 0; i < atoll_result_participants(f->res); i++)
		expect(atoll_result_participant(f->res, i)->outcome != ATOLL_OUTCOME_COMMITTED);
	expect_man(t->copy, t->before);
	expect_text(fix_path(f, "%s/value", t->custom), "old\n");
}

static void err_02_03_immutable(void **state)
{
	struct fix *f = *state;
	struct pair t;
	int r;

	need_root();
	t = make_pair(f, "imm");
	set_immutable(fix_path(f, "%s/dir", t.copy), true);
	r = atoll_plan_commit(t.p, 0, f->res);
	set_immutable(fix_path(f, "%s/dir", t.copy), false);
	expect_failure(f, &t, r, &(struct cause){ -EPERM, EPERM, "dir/file" });
	expect(has_row(f->res, t.copy, ATOLL_OUTCOME_FAILED));
	expect_eq(fix_row(f, t.copy)->cause_errno, EPERM);
}

static void err_02_03_custom_codes(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	static const struct {
		enum fail_how how;
		int code;
		struct cause cause;
	} kinds[] = { { FAIL_CODE, -7777, { -7777, 0, NULL } },
		      { FAIL_NOMEM, 0, { -ENOMEM, ENOMEM, "custom" } },
		      { FAIL_FSIZE, 0, { -EFBIG, EFBIG, "custom" } },
		      { FAIL_CODE, -EIO, { -EIO, EIO, "custom" } } };
	struct fix *f = *state;
	struct pair t = make_pair(f, "codes");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (size_t j = 0; j < 3; j++) {
			failer_set(t.custom, phases[j], kinds[i].how, kinds[i].code);
			expect_failure(f, &t, atoll_plan_commit(t.p, 0, f->res), &kinds[i].cause);
			expect(has_row(f->res, t.custom, ATOLL_OUTCOME_FAILED));
			expect(has_row(f->res, t.copy, ATOLL_OUTCOME_ROLLED_BACK));
			phase_clear();
		}
	}
}

static void err_02_03_no_space(void **state)
{
	struct fix *f = *state;
	struct atoll_resource resource = { .strategy = "copy", .work_in_store = true };
	struct pair t = { .p = fix_plan(f, "full") };
	const char *mount;

	need_root();
	mount = fix_tmpfs(f, "small", 2u << 20);
	t.copy = fix_path(f, "%s/r", mount);
	put_dir(t.copy, 0755);
	t.custom = fix_dir(f, "custom");
	put_text(fix_path(f, "%s/value", t.custom), "old\n");
	resource.root = t.copy;
	expect_ok(f, atoll_plan_add(t.p, &resource, f->res));
	fix_add(f, t.p, t.custom, "failer");
	t.before = fix_keep(f, man_take(t.copy));
	put_bytes(fix_path(f, "%s/big", fix_work(f, t.p, t.copy)), 4u << 20, 1);
	put_text(fix_path(f, "%s/value", fix_work(f, t.p, t.custom)), "new\n");
	expect_failure(f, &t, atoll_plan_commit(t.p, 0, f->res),
	               &(struct cause){ -ENOSPC, ENOSPC, "big" });
}

struct holder {
	struct atoll_plan *p;
	struct gate *g;
	struct atoll_result *res;
	int r;
};

static void *hold(void *user)
{
	struct holder *h = user;

	h->r = atoll_plan_commit(h->p, 0, h->res);
	return NULL;
}

static void err_02_time_out(void **state)
{
	struct fix *f = *state;
	struct pair t = make_pair(f, "held");
	struct holder h = { .p = t.p, .res = atoll_result_new() };
	pthread_t thread;

	h.g = gate_set(t.custom, PHASE_CHECK);
	expect_eq(pthread_create(&thread, NULL, hold, &h), 0);
	expect(gate_wait(h.g, 10000));
	atoll_set_wait(f->a, 100);
	expect_failure(f, &t, atoll_plan_commit(t.p, 0, f->res),
	               &(struct cause){ -ATOLL_E_TIMEOUT, 0, NULL });
	expect(strstr(atoll_result_message(f->res), fix_path(f, "%d", (int)getpid())) != NULL);
	atoll_set_wait(f->a, 0);
	expect_failure(f, &t, atoll_plan_commit(t.p, 0, f->res),
	               &(struct cause){ -ATOLL_E_BUSY, 0, NULL });
	atoll_set_wait(f->a, -1);
	gate_open(h.g);
	expect_eq(pthread_join(thread, NULL), 0);
	expect_eq(h.r, 0);
	gate_free(h.g);
	atoll_result_free(h.res);
}

static void err_03_conflicts_are_all_named(void **state)
{
	struct fix *f = *state;
	struct pair t = make_pair(f, "conflict");
	const char *work = fix_work(f, t.p, t.copy);

	put_text(fix_path(f, "%s/other", work), "mine\n");
	put_text(fix_path(f, "%s/other", t.copy), "theirs\n");
	append_text(fix_path(f, "%s/dir/file", t.copy), "theirs\n");
	t.before = fix_keep(f, man_take(t.copy));
	expect_failure(f, &t, atoll_plan_commit(t.p, 0, f->res),
	               &(struct cause){ -ATOLL_E_CONFLICT, 0, NULL });
	expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), 2);
	for (size_t i = 0; i < atoll_result_notes(f->res); i++) {
		const char *path = atoll_result_note(f->res, i)->path;

		expect(strcmp(path, "other") == 0 || strcmp(path, "dir/file") == 0);
	}
}

/* ---- ERR-04, ERR-05 ---- */

/* There is no host mount to be busy: a workspace that cannot be reset is the custom strategy's. */
static void err_04_restored_and_reset_are_two_facts(void **state)
{
	struct fix *f = *state;
	struct pair t = make_pair(f, "facts");
	const struct atoll_participant_result *row;

	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	failer_set(t.custom, PHASE_RESET, FAIL_CODE, -EBUSY);
	(void)atoll_plan_rollback(t.p, 0, f->res);
	phase_clear();
	row = fix_row(f, t.custom);
	expect(row != NULL);
	expect_eq(row->resource_restored, ATOLL_FACT_YES);
	expect_eq(row->workspace_reset, ATOLL_FACT_NO);
	row = fix_row(f, t.copy);
	expect_eq(row->resource_restored, ATOLL_FACT_YES);
	expect_eq(row->workspace_reset, ATOLL_FACT_YES);
	expect_man(t.copy, t.before);
	expect_text(fix_path(f, "%s/value", t.custom), "old\n");
}

static size_t occurrences(const char *text, const char *what)
{
	size_t n = 0;

	for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
		n++;
	return n;
}

static void err_05_each_cause_is_told_once(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_COMMIT };
	struct fix *f = *state;
	struct pair t = make_pair(f, "once");

	for (size_t i = 0; i < 2; i++) {
		failer_set(t.custom, phases[i], FAIL_FSIZE, 0);
		expect_code(f, atoll_plan_commit(t.p, 0, f->res), -EFBIG);
		expect_eq(occurrences(atoll_result_message(f->res), strerror(EFBIG)), 1);
		expect_eq(occurrences(fix_row(f, t.custom)->message, strerror(EFBIG)), 1);
		phase_clear();
	}
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	failer_set(t.custom, PHASE_UNDO, FAIL_FSIZE, 0);
	expect(atoll_plan_rollback(t.p, 0, f->res) < 0);
	phase_clear();
	expect_eq(occurrences(atoll_result_message(f->res), strerror(EFBIG)), 1);
	expect_eq(occurrences(fix_row(f, t.custom)->message, strerror(EFBIG)), 1);
	expect_ok(f, atoll_plan_rollback(t.p, 0, f->res));
	expect_man(t.copy, t.before);
}

/* ---- ERR-06 ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch-enum"
/* No default: a code missing here, or one that is not in the header, does not compile. */
static int known(enum atoll_code c)
{
	switch (c) {
	case ATOLL_OK:
	case ATOLL_E_INVALID:
	case ATOLL_E_NOT_FOUND:
	case ATOLL_E_EXISTS:
	case ATOLL_E_AMBIGUOUS:
	case ATOLL_E_STATE:
	case ATOLL_E_BUSY:
	case ATOLL_E_TIMEOUT:
	case ATOLL_E_WOULD_DEADLOCK:
	case ATOLL_E_CONFLICT:
	case ATOLL_E_POLICY:
	case ATOLL_E_UNSUPPORTED:
	case ATOLL_E_CANNOT_PREPARE:
	case ATOLL_E_NOT_UNDOABLE:
	case ATOLL_E_RECOVERY_MISSING:
	case ATOLL_E_NEEDS_RECOVERY:
	case ATOLL_E_DENIED:
	case ATOLL_E_LOCK_UNSUPPORTED:
	case ATOLL_E_TOO_BIG:
	case ATOLL_E_DAMAGED:
	case ATOLL_E_NEWER:
	case ATOLL_E_STALE:
	case ATOLL_E_UNREACHABLE:
	case ATOLL_E_NO_FENCE:
		return 1;
	case ATOLL_E_END_:
		break;
	}
	return 0;
}
#pragma GCC diagnostic pop

static void err_06_every_code_is_in_the_header_and_has_a_name(void **state)
{
	(void)state;
	for (int c = ATOLL_E_INVALID; c < ATOLL_E_END_; c++) {
		expect(known((enum atoll_code)c));
		expect(*atoll_code_name(c) != '\0');
		expect_str(atoll_code_name(c), atoll_code_name(-c));
		expect(atoll_code_exit(-c) >= 1 && atoll_code_exit(-c) <= 7);
		for (int d = ATOLL_E_INVALID; d < c; d++)
			expect(strcmp(atoll_code_name(c), atoll_code_name(d)) != 0);
	}
	expect_eq(atoll_code_exit(0), 0);
	expect_str(atoll_code_name(-ENOSPC), "ENOSPC");
}

/* ---- ERR-07 ---- */

static void err_07_weakened_atomicity_is_a_field_and_one_warning(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);

	for (int i = 0; i < 4; i++) {
		const char *root = fix_dir(f, fix_path(f, "r%d", i));

		fix_add(f, p, root, i < 2 ? "failer" : "blunt");
		put_text(fix_path(f, "%s/value", fix_work(f, p, root)), "new\n");
	}
	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res));
	expect_eq(atoll_result_atomicity(f->res), ATOLL_ATOMICITY_NONE);
	expect_eq(fix_notes(f, ATOLL_NOTE_WARNING), 1);
	/* The field belongs to the call, not to the plan. */
	put_text(fix_path(f, "%s/value", fix_work(f, p, fix_path(f, "%s/r0", f->dir))), "newer\n");
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_eq(atoll_result_atomicity(f->res), ATOLL_ATOMICITY_FULL);
	expect_eq(fix_notes(f, ATOLL_NOTE_WARNING), 0);
}

/* ---- ERR-08 ---- */

struct times {
	int64_t last;
	size_t n;
	bool sorted, utc;
	int64_t from, to;
};

static int look_at_time(void *user, const struct atoll_event *event)
{
	struct times *t = user;

	t->sorted &= event->at_ms >= t->last;
	t->utc &= event->at_ms >= t->from && event->at_ms <= t->to;
	t->last = event->at_ms;
	t->n++;
	return 0;
}

static int64_t real_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void err_08_a_success_after_a_failure_is_a_success(void **state)
{
	struct fix *f = *state;
	struct times times = { .sorted = true, .utc = true, .from = real_ms() };
	struct pair t;
	int code = 0;

	expect_eq(setenv("TZ", "Asia/Kolkata", 1), 0);
	tzset();
	t = make_pair(f, "history");
	failer_set(t.custom, PHASE_PREPARE, FAIL_CODE, -EIO);
	expect_code(f, atoll_plan_commit(t.p, 0, f->res), -EIO);
	phase_clear();
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	expect_eq(atoll_result_code(f->res), 0);
	expect_str(atoll_result_message(f->res), "");
	expect_eq(atoll_result_cause_errno(f->res), 0);
	expect_eq(fix_history(f, t.p, "commit", &code), 2);
	expect_eq(code, 0);
	times.to = real_ms();
	expect_ok(f, atoll_plan_history(t.p, look_at_time, &times, f->res));
	expect(times.n >= 4);
	expect(times.sorted);
	expect(times.utc);
	(void)unsetenv("TZ");
	tzset();
}

/* ---- ERR-09 ---- */

static void err_09_rollback_visits_everybody(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root[3];

	for (size_t i = 0; i < 3; i++) {
		root[i] = fix_dir(f, fix_path(f, "r%zu", i));
		put_text(fix_path(f, "%s/value", root[i]), "old\n");
		fix_add(f, p, root[i], "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, root[i])), "new\n");
	}
	failer_set(root[1], PHASE_RESET, FAIL_CODE, -7777);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -7777);
	phase_clear();
	expect_eq(fix_outcome(f, root[0]), ATOLL_OUTCOME_ROLLED_BACK);
	expect_eq(fix_outcome(f, root[1]), ATOLL_OUTCOME_ROLLBACK_FAILED);
	expect_eq(fix_row(f, root[1])->code, -7777);
	expect_eq(fix_outcome(f, root[2]), ATOLL_OUTCOME_ROLLED_BACK);
	expect_eq(fix_state(f, p, root[0]), ATOLL_SANDBOX_ROLLED_BACK);
	expect_eq(fix_state(f, p, root[1]), ATOLL_SANDBOX_ERRORED);
	expect_eq(fix_state(f, p, root[2]), ATOLL_SANDBOX_ROLLED_BACK);
}

/* A copy is made anew beside what is there, so that a workspace replaced by an immutable file, the
 * rule's own fixture, does not even fail. */
static void err_09_a_ruined_workspace_does_not_stop_a_rollback(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root[3], *work[3];

	need_root();
	for (size_t i = 0; i < 3; i++) {
		root[i] = fix_dir(f, fix_path(f, "r%zu", i));
		put_text(fix_path(f, "%s/value", root[i]), "old\n");
		fix_add(f, p, root[i], "copy");
		work[i] = fix_work(f, p, root[i]);
		put_text(fix_path(f, "%s/value", work[i]), "new\n");
	}
	remove_entry(work[1]);
	put_text(work[1], "not a directory\n");
	set_immutable(work[1], true);
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	for (size_t i = 0; i < 3; i++) {
		expect_eq(fix_outcome(f, root[i]), ATOLL_OUTCOME_ROLLED_BACK);
		expect_text(fix_path(f, "%s/value", root[i]), "old\n");
	}
	for (size_t i = 0; i < 3; i++)
		expect_text(fix_path(f, "%s/value", fix_work(f, p, root[i])), "old\n");
	set_immutable(work[1], false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(err_01_one_batch_with_every_outcome),
		atest(err_02_03_immutable),
		atest(err_02_03_custom_codes),
		atest(err_02_03_no_space),
		atest(err_02_time_out),
		atest(err_03_conflicts_are_all_named),
		atest(err_04_restored_and_reset_are_two_facts),
		atest(err_05_each_cause_is_told_once),
		atest(err_06_every_code_is_in_the_header_and_has_a_name),
		atest(err_07_weakened_atomicity_is_a_field_and_one_warning),
		atest(err_08_a_success_after_a_failure_is_a_success),
		atest(err_09_rollback_visits_everybody),
		atest(err_09_a_ruined_workspace_does_not_stop_a_rollback),
	};

	return atest_main(argc, argv, tests, NULL);
}
