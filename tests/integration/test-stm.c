/* SPDX-License-Identifier: Apache-2.0 */
/* Rules STM: one table of states, and every strategy obeys it. */
#include "lib/more.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S(name) (1u << ATOLL_SANDBOX_##name)

/* ---- the published table ---- */

struct row {
	unsigned from, to; /* sets of states */
	char by[64];       /* begins with the verb */
};

struct table {
	struct row v[16];
	size_t n;
};

/* docs/design/sandbox-states.md, for where the program that prints it is not at hand. */
static const struct table written = {
	.v = { { S(PENDING), S(CREATED) | S(ERRORED), "create" },
	       { S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ROLLED_BACK), S(ACTIVE), "exec" },
	       { S(CREATED) | S(ACTIVE), S(PREPARED) | S(ERRORED), "prepare" },
	       { S(PREPARED), S(COMMITTED) | S(ERRORED), "commit" },
	       { S(PREPARED), S(ACTIVE), "withdraw" },
	       { S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ERRORED), S(ROLLED_BACK) | S(ERRORED),
	         "rollback" },
	       { S(ERRORED), S(ACTIVE) | S(ROLLED_BACK), "recover" },
	       { S(PENDING) | S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ROLLED_BACK) | S(ERRORED),
	         S(CLEANED_UP), "stop" },
	       { S(ROLLED_BACK), S(COMMITTED), "redo" } },
	.n = 9,
};

static unsigned parse_set(char *text)
{
	unsigned set = 0;

	for (char *save = NULL, *name = strtok_r(text, ", ", &save); name;
	     name = strtok_r(NULL, ", ", &save)) {
		unsigned s = 0;

		while (s < ATOLL_SANDBOX_STATE_END_ &&
		       strcmp(name, atoll_sandbox_state_name((enum atoll_sandbox_state)s)) != 0)
			s++;
		expect(s < ATOLL_SANDBOX_STATE_END_);
		set |= 1u << s;
	}
	return set;
}

/* "| A, B | C | verb, more words |", the first table of the output. */
static void parse_table(FILE *in, struct table *t)
{
	char line[512];

	while (fgets(line, sizeof(line), in)) {
		char *save = NULL, *from, *to, *by;

		if (t->n > 0 && *line != '|')
			return;
		from = *line == '|' ? strtok_r(line, "|\n", &save) : NULL;
		to = from ? strtok_r(NULL, "|", &save) : NULL;
		by = to ? strtok_r(NULL, "|", &save) : NULL;
		if (!by || strstr(from, "from") || strstr(from, "---") || t->n == 16)
			continue;
		t->v[t->n].from = parse_set(from);
		t->v[t->n].to = parse_set(to);
		(void)snprintf(t->v[t->n].by, sizeof(t->v[t->n].by), "%.60s", by + 1);
		t->n++;
	}
}

static const struct table *published(void)
{
	static struct table t;
	const char *program = getenv("ATOLL_GEN_STATES");
	char command[PATH_MAX + 8];
	FILE *in;

	if (!program || !*program || t.n)
		return t.n ? &t : &written;
	(void)snprintf(command, sizeof(command), "'%s'", program);
	in = popen(command, "re");
	expect(in != NULL);
	parse_table(in, &t);
	expect_eq(pclose(in), 0);
	expect(t.n >= 8);
	return &t;
}

static const struct row *row_of(const char *verb)
{
	const struct table *t = published();

	for (size_t i = 0; i < t->n; i++)
		if (strncmp(t->v[i].by, verb, strlen(verb)) == 0)
			return &t->v[i];
	expect_msg(false, "the table has no verb '%s'", verb);
	return NULL;
}

static void stm_01_the_published_table_is_the_one_we_test(void **state)
{
	const struct table *t = published();

	(void)state;
	expect_eq(t->n, written.n);
	for (size_t i = 0; i < written.n; i++) {
		const struct row *r = row_of(written.v[i].by);

		expect_eq(r->from, written.v[i].from);
		expect_eq(r->to, written.v[i].to);
	}
}

/* ---- every pair of state and verb ---- */

static const char *const strategies[] = { "copy", "failer", "none" };
#define STRATEGIES 3

struct box {
	struct fix *f;
	struct atoll_plan *p;
	const char *root, *strategy;
};

static void edit(struct box *b, const char *text)
{
	put_text(fix_path(b->f, "%s/value", fix_work(b->f, b->p, b->root)), text);
}

static struct box make_box(struct fix *f, const char *strategy)
{
	static unsigned n;
	struct box b = { .f = f, .strategy = strategy };

	b.root = fix_dir(f, fix_path(f, "box%u", n++));
	put_text(fix_path(f, "%s/value", b.root), "first\n");
	b.p = fix_plan(f, NULL);
	fix_add(f, b.p, b.root, strategy);
	return b;
}

static bool is(const struct box *b, const char *strategy)
{
	return strcmp(b->strategy, strategy) == 0;
}

/* Makes it so that rollback cannot do what it should. */
static void break_it(struct box *b)
{
	edit(b, "second\n");
	expect_ok(b->f, atoll_plan_commit(b->p, 0, b->f->res));
	if (is(b, "copy")) {
		wait_for_helpers(); /* they write into it */
		remove_entry(fix_area(b->f, b->p, b->root));
	} else {
		failer_set(b->root, PHASE_PREPARE_UNDO, FAIL_CODE, -ATOLL_E_RECOVERY_MISSING);
	}
	expect_code(b->f, atoll_plan_rollback(b->p, 0, b->f->res), -ATOLL_E_RECOVERY_MISSING);
	phase_clear();
}

/* false: this strategy has no way into that state. */
static bool bring_to(struct box *b, enum atoll_sandbox_state s)
{
	switch (s) {
	case ATOLL_SANDBOX_CREATED:
		break;
	case ATOLL_SANDBOX_ACTIVE:
		edit(b, "second\n");
		break;
	case ATOLL_SANDBOX_COMMITTED:
		edit(b, "second\n");
		expect_ok(b->f, atoll_plan_commit(b->p, 0, b->f->res));
		break;
	case ATOLL_SANDBOX_ROLLED_BACK:
		if (!is(b, "none"))
			edit(b, "second\n");
		expect_ok(b->f, atoll_plan_rollback(b->p, 0, b->f->res));
		break;
	case ATOLL_SANDBOX_ERRORED:
		if (is(b, "none"))
			return false;
		break_it(b);
		break;
	case ATOLL_SANDBOX_PENDING:
	case ATOLL_SANDBOX_PREPARED:
	case ATOLL_SANDBOX_CLEANED_UP:
	case ATOLL_SANDBOX_STATE_END_:
		return false;
	}
	expect_eq(fix_state(b->f, b->p, b->root), s);
	return true;
}

enum call { CALL_PATH, CALL_COMMIT, CALL_ROLLBACK, CALL_RESET, CALL_STOP, CALL_RECOVER, CALL_END };

static int do_call(struct box *b, enum call c)
{
	char *path = NULL;
	int r = 0;

	switch (c) {
	case CALL_PATH:
		r = atoll_sandbox_path(b->p, b->root, &path, b->f->res);
		free(path);
		break;
	case CALL_COMMIT:
		r = atoll_plan_commit(b->p, 0, b->f->res);
		break;
	case CALL_ROLLBACK:
		r = atoll_plan_rollback(b->p, 0, b->f->res);
		break;
	case CALL_RESET:
		r = atoll_plan_reset(b->p, b->f->res);
		break;
	case CALL_STOP:
		r = atoll_plan_stop(b->p, ATOLL_FORCE, b->f->res);
		break;
	case CALL_RECOVER:
		r = atoll_recover(b->f->a, atoll_plan_id(b->p), true, b->f->res);
		break;
	case CALL_END:
		break;
	}
	return r;
}

/* What the table says a call may lead to from STATE; commit is three verbs in a row. */
static unsigned allowed(enum atoll_sandbox_state state, enum call c)
{
	static const char *const verbs[] = {
		[CALL_PATH] = "exec",     [CALL_COMMIT] = "prepare", [CALL_ROLLBACK] = "rollback",
		[CALL_RESET] = "recover", [CALL_STOP] = "stop",      [CALL_RECOVER] = "recover"
	};
	const struct row *r = row_of(verbs[c]);

	if (!(r->from & (1u << state)))
		return 0;
	if (c == CALL_COMMIT && r->to & S(PREPARED))
		return (r->to & ~S(PREPARED)) | row_of("commit")->to | row_of("withdraw")->to;
	return r->to;
}

static enum atoll_sandbox_state state_after(struct box *b, enum call c)
{
	enum atoll_sandbox_state s = ATOLL_SANDBOX_STATE_END_;
	int r = atoll_sandbox_state(b->p, b->root, &s, b->f->res);

	if (c == CALL_STOP && r == -ATOLL_E_NOT_FOUND)
		return ATOLL_SANDBOX_CLEANED_UP;
	expect_eq(r, 0);
	return s;
}

/* clang-format off */
#define GOES(path, commit, rollback, reset, recover)                                              \
	{                                                                                         \
		[CALL_PATH] = ATOLL_SANDBOX_##path, [CALL_COMMIT] = ATOLL_SANDBOX_##commit,       \
		[CALL_ROLLBACK] = ATOLL_SANDBOX_##rollback, [CALL_RESET] = ATOLL_SANDBOX_##reset, \
		[CALL_STOP] = ATOLL_SANDBOX_CLEANED_UP, [CALL_RECOVER] = ATOLL_SANDBOX_##recover, \
	}
/* clang-format on */
/* What each call must achieve from each state, beyond being allowed: reached, or unchanged. */
static const enum atoll_sandbox_state reached[ATOLL_SANDBOX_STATE_END_][CALL_END] = {
	[ATOLL_SANDBOX_CREATED] = GOES(ACTIVE, CREATED, ROLLED_BACK, CREATED, CREATED),
	[ATOLL_SANDBOX_ACTIVE] = GOES(ACTIVE, COMMITTED, ROLLED_BACK, ACTIVE, ACTIVE),
	[ATOLL_SANDBOX_COMMITTED] = GOES(ACTIVE, COMMITTED, ROLLED_BACK, COMMITTED, COMMITTED),
	[ATOLL_SANDBOX_ROLLED_BACK] =
		GOES(ACTIVE, ROLLED_BACK, ROLLED_BACK, ROLLED_BACK, ROLLED_BACK),
	/* In error because what an undo needs is gone: nothing that recover could finish. */
	[ATOLL_SANDBOX_ERRORED] = GOES(ERRORED, ERRORED, ERRORED, ACTIVE, ERRORED),
};
#undef GOES

/* What is worked on in place has no "no change" and cannot go back; where the cause of an error is
 * gone, the rollback that failed succeeds. */
static enum atoll_sandbox_state reached_by(const struct box *b, enum atoll_sandbox_state from,
                                           enum call c)
{
	if (is(b, "none") && c == CALL_COMMIT && from == ATOLL_SANDBOX_CREATED)
		return ATOLL_SANDBOX_COMMITTED;
	if (is(b, "none") && c == CALL_ROLLBACK &&
	    (from == ATOLL_SANDBOX_ACTIVE || from == ATOLL_SANDBOX_COMMITTED))
		return from;
	if (is(b, "failer") && c == CALL_ROLLBACK && from == ATOLL_SANDBOX_ERRORED)
		return ATOLL_SANDBOX_ROLLED_BACK;
	return reached[from][c];
}

static void try_pair(struct fix *f, const char *strategy, enum atoll_sandbox_state from,
                     enum call c)
{
	static const char *const names[] = { "path",  "commit", "rollback",
		                             "reset", "stop",   "recover" };
	struct box b = make_box(f, strategy);
	enum atoll_sandbox_state to;
	unsigned may;
	int r;

	if (bring_to(&b, from)) {
		may = allowed(from, c);
		r = do_call(&b, c);
		to = state_after(&b, c);
		expect_msg(to == from || (may & (1u << to)),
		           "%s: %s from %s led to %s, which the table does not know", strategy,
		           names[c], atoll_sandbox_state_name(from), atoll_sandbox_state_name(to));
		expect_msg(to == reached_by(&b, from, c), "%s: %s from %s led to %s (%s)", strategy,
		           names[c], atoll_sandbox_state_name(from), atoll_sandbox_state_name(to),
		           atoll_code_name(r));
		/* What is not in the table is refused, or there was nothing to do. */
		if (from == ATOLL_SANDBOX_ERRORED && to == from && c != CALL_RECOVER)
			expect_msg(r < 0, "%s: %s from ERRORED was not refused", strategy,
			           names[c]);
	}
	phase_clear();
	fix_forget(f, b.p);
}

static void try_strategy(struct fix *f, const char *strategy)
{
	for (unsigned s = 0; s < ATOLL_SANDBOX_STATE_END_; s++)
		for (unsigned c = 0; c < CALL_END; c++)
			try_pair(f, strategy, (enum atoll_sandbox_state)s, (enum call)c);
}

static void stm_01_every_pair_of_state_and_verb_for_copy(void **state)
{
	try_strategy(*state, "copy");
}

static void stm_01_every_pair_of_state_and_verb_for_a_custom_strategy(void **state)
{
	try_strategy(*state, "failer");
}

static void stm_01_every_pair_of_state_and_verb_for_none(void **state)
{
	try_strategy(*state, "none");
}

/* ---- STM-02, STM-03 ---- */

static void stm_02_a_rolled_back_sandbox_can_be_used_again(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < 2; i++) {
		struct box b = make_box(f, strategies[i]);

		edit(&b, "A\n");
		if (i == 0)
			put_text(fix_path(f, "%s/a", fix_work(f, b.p, NULL)), "A\n");
		expect_ok(f, atoll_plan_rollback(b.p, 0, f->res));
		expect_eq(fix_state(f, b.p, NULL), ATOLL_SANDBOX_ROLLED_BACK);
		expect_text(fix_path(f, "%s/value", fix_work(f, b.p, NULL)), "first\n");
		expect_eq(fix_state(f, b.p, NULL), ATOLL_SANDBOX_ACTIVE);
		edit(&b, "B\n");
		expect_ok(f, atoll_plan_commit(b.p, 0, f->res));
		expect_text(fix_path(f, "%s/value", b.root), "B\n");
		expect(!exists(fix_path(f, "%s/a", b.root)));
	}
}

static void stm_03_after_a_rollback_the_workspace_equals_the_original(void **state)
{
	struct fix *f = *state;
	struct box b = make_box(f, "copy");
	const char *work;
	char *before;

	put_random_tree(b.root, 40, 3);
	expect_ok(f, atoll_plan_reset(b.p, f->res));
	before = fix_keep(f, man_take(b.root));
	edit_random_tree(fix_work(f, b.p, NULL), 9);
	expect_ok(f, atoll_plan_commit(b.p, ATOLL_ALLOW_SPECIAL, f->res));
	man_assert_not_equal(before, fix_keep(f, man_take(b.root)));
	expect_ok(f, atoll_plan_rollback(b.p, 0, f->res));
	expect_man(b.root, before);
	work = fix_work(f, b.p, NULL);
	expect_man(work, before);
	expect_ok(f, atoll_plan_commit(b.p, 0, f->res));
	expect_eq(fix_outcome(f, b.root), ATOLL_OUTCOME_UNCHANGED);
	expect_man(b.root, before);
}

/* ---- STM-04, STM-06: sandboxes of one plan in different states ---- */

struct three {
	struct atoll_plan *p;
	const char *root[3];
	char *before[3];
};

/* Only what changed is committed, so one edit and a commit leave one COMMITTED, two CREATED. */
static void commit_one_of_three(struct fix *f, struct three *t)
{
	t->p = fix_plan(f, NULL);
	for (size_t i = 0; i < 3; i++) {
		t->root[i] = fix_dir(f, fix_path(f, "three%zu", i));
		put_random_tree(t->root[i], 15, (unsigned)i);
		put_text(fix_path(f, "%s/value", t->root[i]), "first\n");
		t->before[i] = fix_keep(f, man_take(t->root[i]));
		fix_add(f, t->p, t->root[i], "copy");
	}
	put_text(fix_path(f, "%s/value", fix_work(f, t->p, t->root[0])), "second\n");
	expect_ok(f, atoll_plan_commit(t->p, 0, f->res));
	expect_eq(fix_state(f, t->p, t->root[0]), ATOLL_SANDBOX_COMMITTED);
	expect_eq(fix_state(f, t->p, t->root[1]), ATOLL_SANDBOX_CREATED);
}

static void stm_04_rollback_covers_every_state_that_can_go_back(void **state)
{
	struct fix *f = *state;
	struct three t;

	commit_one_of_three(f, &t);
	put_text(fix_path(f, "%s/value", fix_work(f, t.p, t.root[2])), "third\n");
	expect_eq(fix_state(f, t.p, t.root[0]), ATOLL_SANDBOX_COMMITTED);
	expect_eq(fix_state(f, t.p, t.root[2]), ATOLL_SANDBOX_ACTIVE);
	expect_ok(f, atoll_plan_rollback(t.p, 0, f->res));
	for (size_t i = 0; i < 3; i++) {
		expect_man(t.root[i], t.before[i]);
		expect_eq(fix_state(f, t.p, t.root[i]), ATOLL_SANDBOX_ROLLED_BACK);
	}
}

static void stm_06_a_committed_sandbox_is_skipped(void **state)
{
	struct fix *f = *state;
	struct three t;

	commit_one_of_three(f, &t);
	put_text(fix_path(f, "%s/value", fix_work(f, t.p, t.root[1])), "second\n");
	expect_ok(f, atoll_plan_commit(t.p, 0, f->res));
	expect_eq(fix_outcome(f, t.root[0]), ATOLL_OUTCOME_SKIPPED);
	expect_eq(fix_outcome(f, t.root[1]), ATOLL_OUTCOME_COMMITTED);
	expect_text(fix_path(f, "%s/value", t.root[0]), "second\n");
	expect_text(fix_path(f, "%s/value", t.root[1]), "second\n");
	expect_man(t.root[2], t.before[2]);
	expect_ok(f, atoll_plan_rollback(t.p, 0, f->res));
	for (size_t i = 0; i < 3; i++)
		expect_man(t.root[i], t.before[i]);
}

/* ---- STM-05 ---- */

struct seen {
	size_t n;
};

static int count_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	(void)info;
	((struct seen *)user)->n++;
	return 0;
}

/* A create that fails takes everything back, so there is no sandbox left that could be ERRORED. */
static void stm_05_a_failed_create_leaves_nothing(void **state)
{
	static const struct {
		enum fail_how how;
		int code, expected;
	} kinds[] = { { FAIL_CODE, -7777, -7777 },
		      { FAIL_CODE, -ETIMEDOUT, -ETIMEDOUT },
		      { FAIL_NOMEM, 0, -ENOMEM },
		      { FAIL_FSIZE, 0, -EFBIG } };
	struct fix *f = *state;
	const char *root = fix_dir(f, "resource");
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *plans = fix_path(f, "%s/plans", f->home);
	size_t entries = count_entries(plans);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct atoll_resource resource = { .root = root, .strategy = "failer" };
		struct seen seen = { 0 };

		failer_set(root, PHASE_CREATE, kinds[i].how, kinds[i].code);
		expect_code(f, atoll_plan_add(p, &resource, f->res), kinds[i].expected);
		phase_clear();
		expect_eq(count_entries(plans), entries);
		expect_ok(f, atoll_plan_sandboxes(p, count_sandbox, &seen, f->res));
		expect_eq(seen.n, 0);
	}
	fix_add(f, p, root, "failer");
	expect_eq(fix_state(f, p, root), ATOLL_SANDBOX_CREATED);
}

static void stm_05_a_failed_rollback_can_be_tried_again(void **state)
{
	static const enum fail_how hows[] = { FAIL_NOMEM, FAIL_FSIZE, FAIL_CODE };
	struct fix *f = *state;

	for (size_t i = 0; i < 3; i++) {
		struct box b = make_box(f, "failer");
		enum atoll_sandbox_state s;

		edit(&b, "second\n");
		failer_set(b.root, PHASE_RESET, hows[i], -7777);
		expect(atoll_plan_rollback(b.p, 0, f->res) < 0);
		phase_clear();
		s = fix_state(f, b.p, NULL);
		expect(s == ATOLL_SANDBOX_ERRORED || s == ATOLL_SANDBOX_ACTIVE);
		expect_text(fix_path(f, "%s/value", b.root), "first\n");
		expect_ok(f, s == ATOLL_SANDBOX_ERRORED ? atoll_plan_reset(b.p, f->res)
		                                        : atoll_plan_rollback(b.p, 0, f->res));
		expect_text(fix_path(f, "%s/value", fix_work(f, b.p, NULL)), "first\n");
		expect_eq(fix_state(f, b.p, NULL), ATOLL_SANDBOX_ACTIVE);
	}
}

static void stm_05_a_failed_undo_leaves_a_table_state(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE_UNDO, PHASE_UNDO };
	static const enum fail_how hows[] = { FAIL_NOMEM, FAIL_CODE };
	struct fix *f = *state;

	for (size_t i = 0; i < 4; i++) {
		struct box b = make_box(f, "failer");

		edit(&b, "second\n");
		expect_ok(f, atoll_plan_commit(b.p, 0, f->res));
		failer_set(b.root, phases[i / 2], hows[i % 2], -7777);
		expect(atoll_plan_rollback(b.p, 0, f->res) < 0);
		phase_clear();
		expect_eq(fix_state(f, b.p, NULL), ATOLL_SANDBOX_COMMITTED);
		expect_eq(fix_plan_state(f, b.p), ATOLL_PLAN_COMMITTED);
		expect_text(fix_path(f, "%s/value", b.root), "second\n");
		expect_ok(f, atoll_plan_rollback(b.p, 0, f->res));
		expect_text(fix_path(f, "%s/value", b.root), "first\n");
		expect_eq(fix_state(f, b.p, NULL), ATOLL_SANDBOX_ROLLED_BACK);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(stm_01_the_published_table_is_the_one_we_test),
		atest(stm_01_every_pair_of_state_and_verb_for_copy),
		atest(stm_01_every_pair_of_state_and_verb_for_a_custom_strategy),
		atest(stm_01_every_pair_of_state_and_verb_for_none),
		atest(stm_02_a_rolled_back_sandbox_can_be_used_again),
		atest(stm_03_after_a_rollback_the_workspace_equals_the_original),
		atest(stm_04_rollback_covers_every_state_that_can_go_back),
		atest(stm_05_a_failed_create_leaves_nothing),
		atest(stm_05_a_failed_rollback_can_be_tried_again),
		atest(stm_05_a_failed_undo_leaves_a_table_state),
		atest(stm_06_a_committed_sandbox_is_skipped),
	};

	return atest_main(argc, argv, tests, NULL);
}
