/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract for every strategy over directories: each verb in each state, each kind of undo, and
 * batches of two to five participants of several strategies, one of which may fail. A strategy is a
 * row, a case a cell; a cell that nothing filled fails the run (rule TST-02).
 */
#include "lib/views.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- rows ---- */

enum way { BY_PATH, BY_EXEC };

static const struct row {
	const char *name;
	const char *strategy;
	bool in_store;
	enum way way;
	bool root_only;
} rows[] = {
	{ "copy", "copy", false, BY_PATH, false },
	{ "copy-in-store", "copy", true, BY_PATH, false },
	{ "copy-exec", "copy", false, BY_EXEC, false },
	{ "overlay-path", "overlay", false, BY_PATH, true },
	{ "overlay-exec", "overlay", false, BY_EXEC, false },
	{ "git-exec", "git", false, BY_EXEC, false },
	{ "worktree", "worktree", false, BY_PATH, false },
};
#define ROWS COUNT(rows)

static bool row_runs(const struct row *row)
{
	return !row->root_only || am_root();
}

/* ---- one sandbox ---- */

struct box {
	struct fix *f;
	const struct row *row;
	const char *root;
	struct atoll_plan *p;
	char *before; /* MAN */
	char *after;  /* of the resource with the work in it */
};

/* An empty repository: to the others a directory like any other. */
static void put_repository(const char *root)
{
	static const struct {
		const char *name, *text; /* NULL: a directory */
	} entries[] = {
		{ ".git", NULL },
		{ ".git/objects", NULL },
		{ ".git/refs", NULL },
		{ ".git/HEAD", "ref: refs/heads/main\n" },
		{ ".git/config", "[core]\n\trepositoryformatversion = 0\n" },
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < COUNT(entries); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", root, entries[i].name);
		if (entries[i].text)
			put_text(path, entries[i].text);
		else
			put_dir(path, 0755);
	}
	for (size_t i = COUNT(entries); i-- > 0;) {
		(void)snprintf(path, sizeof(path), "%s/%s", root, entries[i].name);
		set_mtime(path, 1000000004, 44);
	}
}

static void put_tree(struct fix *f, const char *root)
{
	put_repository(root);
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_dir(fix_path(f, "%s/gone", root), 0755);
	put_text(fix_path(f, "%s/one", root), "one\n");
	put_text(fix_path(f, "%s/d/x", root), "x\n");
	put_text(fix_path(f, "%s/gone/y", root), "y\n");
	put_link(fix_path(f, "%s/link", root), "one");
	set_mtime(fix_path(f, "%s/one", root), 1000000001, 11);
	set_mtime(fix_path(f, "%s/d", root), 1000000002, 22);
	set_mtime(root, 1000000003, 33);
}

#define EDIT                                                                                          \
	"set -e; echo more >> one; rm -r gone; mkdir -p n/m; echo n > n/m/f; rm link; ln -s d link; " \
	"rm -r d; mkdir d; echo d > d/other; "                                                        \
	"touch -d '2011-11-11 11:11:11' one n/m/f n/m n d/other d .; touch -h -d 2012-12-12 link"

static void work_on(struct fix *f, struct atoll_plan *p, const struct row *row, const char *root,
                    const char *script)
{
	if (row->way == BY_EXEC)
		run_ok(f, p, root, script);
	else
		run_plain(fix_work(f, p, root), script);
}

static void add_row(struct fix *f, struct atoll_plan *p, const struct row *row, const char *root)
{
	const struct atoll_resource r = { .root = root,
		                          .strategy = row->strategy,
		                          .work_in_store = row->in_store };

	expect_ok(f, atoll_plan_add(p, &r, f->res));
}

static char *expected_after(struct fix *f)
{
	const char *twin = fix_dir(f, "twin");
	char *man;

	put_tree(f, twin);
	run_plain(twin, EDIT);
	man = man_take(twin);
	remove_entry(twin);
	return man;
}

static void box_open(struct box *b, struct fix *f, const struct row *row, const char *name)
{
	*b = (struct box){ .f = f, .row = row, .root = fix_dir(f, name) };
	put_tree(f, b->root);
	b->before = man_take(b->root);
	b->after = expected_after(f);
	b->p = fix_plan(f, NULL);
	add_row(f, b->p, row, b->root);
}

static void box_close(struct box *b)
{
	(void)atoll_plan_stop(b->p, ATOLL_FORCE, b->f->res);
	free(b->before);
	free(b->after);
	remove_entry(b->root);
}

/* ---- verbs in states ---- */

enum verb { WORK, DIFF, COMMIT, ROLLBACK, RESET, STOP, STOP_FORCE, VERBS };
static const char *const verb_names[] = { "work",  "diff", "commit",      "rollback",
	                                  "reset", "stop", "stop --force" };
enum stage { CREATED, ACTIVE, COMMITTED, ROLLED_BACK, AGAIN, STAGES };
static const char *const stage_names[] = { "created", "active", "committed", "rolled back",
	                                   "active again" };

enum tree { BEFORE, AFTER };
struct cell {
	int code;
	int64_t changes; /* that diff says afterwards: 0 none, 1 some; -1 the plan is gone */
	enum tree tree;  /* what the resource is afterwards */
	enum atoll_sandbox_state state;
};

/* The contract: the same for every row. */
#define GONE ATOLL_SANDBOX_CLEANED_UP
static const struct cell cells[STAGES][VERBS] = {
	[CREATED] = {
		[WORK] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[DIFF] = { 0, 0, BEFORE, ATOLL_SANDBOX_CREATED },
		[COMMIT] = { 0, 0, BEFORE, ATOLL_SANDBOX_CREATED },
		[ROLLBACK] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[RESET] = { 0, 0, BEFORE, ATOLL_SANDBOX_CREATED },
		[STOP] = { 0, -1, BEFORE, GONE },
		[STOP_FORCE] = { 0, -1, BEFORE, GONE },
	},
	[ACTIVE] = {
		[WORK] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[DIFF] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[COMMIT] = { 0, 0, AFTER, ATOLL_SANDBOX_COMMITTED },
		[ROLLBACK] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[RESET] = { 0, 0, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[STOP] = { -ATOLL_E_STATE, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[STOP_FORCE] = { 0, -1, BEFORE, GONE },
	},
	[COMMITTED] = {
		[WORK] = { 0, 1, AFTER, ATOLL_SANDBOX_ACTIVE },
		[DIFF] = { 0, 0, AFTER, ATOLL_SANDBOX_COMMITTED },
		[COMMIT] = { 0, 0, AFTER, ATOLL_SANDBOX_COMMITTED },
		[ROLLBACK] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[RESET] = { 0, 0, AFTER, ATOLL_SANDBOX_COMMITTED },
		[STOP] = { 0, -1, AFTER, GONE },
		[STOP_FORCE] = { 0, -1, AFTER, GONE },
	},
	[ROLLED_BACK] = {
		[WORK] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[DIFF] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[COMMIT] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[ROLLBACK] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[RESET] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[STOP] = { 0, -1, BEFORE, GONE },
		[STOP_FORCE] = { 0, -1, BEFORE, GONE },
	},
	[AGAIN] = { /* rolled back, and worked on since */
		[WORK] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[DIFF] = { 0, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[COMMIT] = { 0, 0, AFTER, ATOLL_SANDBOX_COMMITTED },
		[ROLLBACK] = { 0, 0, BEFORE, ATOLL_SANDBOX_ROLLED_BACK },
		[RESET] = { 0, 0, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[STOP] = { -ATOLL_E_STATE, 1, BEFORE, ATOLL_SANDBOX_ACTIVE },
		[STOP_FORCE] = { 0, -1, BEFORE, GONE },
	},
};

static void bring_to(struct box *b, enum stage stage)
{
	if (stage == CREATED)
		return;
	work_on(b->f, b->p, b->row, b->root, EDIT);
	if (stage == ACTIVE)
		return;
	expect_commit(b->f, b->p);
	if (stage == COMMITTED)
		return;
	expect_rollback(b->f, b->p);
	if (stage == AGAIN)
		work_on(b->f, b->p, b->row, b->root, EDIT);
}

static int64_t count_changes(struct box *b)
{
	struct listing *l = diff_take(b->f, b->p);
	int64_t n = l->n > 0;

	diff_free(l);
	return n;
}

static int do_verb(struct box *b, enum verb verb)
{
	switch (verb) {
	case WORK:
		/* Once more and something else, so that it is a change in every state. */
		work_on(b->f, b->p, b->row, b->root, "echo extra > extra");
		return 0;
	case DIFF:
		(void)count_changes(b);
		return 0;
	case COMMIT:
		return atoll_plan_commit(b->p, 0, b->f->res);
	case ROLLBACK:
		return atoll_plan_rollback(b->p, 0, b->f->res);
	case RESET:
		return atoll_plan_reset(b->p, b->f->res);
	case STOP:
		return atoll_plan_stop(b->p, 0, b->f->res);
	case STOP_FORCE:
		return atoll_plan_stop(b->p, ATOLL_FORCE, b->f->res);
	case VERBS:
		break;
	}
	return -EINVAL;
}

/* How many things are not as the cell says: all are told, not only the first. */
static int check_cell(struct fix *f, const struct row *row, enum stage stage, enum verb verb)
{
	const struct cell *c = &cells[stage][verb];
	enum atoll_sandbox_state is = c->state;
	int64_t changes = c->changes;
	bool tree_ok;
	struct box b;
	char *now;
	int r;

	box_open(&b, f, row, fix_path(f, "%s-%d-%d", row->name, (int)stage, (int)verb));
	bring_to(&b, stage);
	r = do_verb(&b, verb);
	now = man_take(b.root);
	tree_ok = strcmp(now, c->tree == AFTER ? b.after : b.before) == 0;
	free(now);
	if (c->changes >= 0) {
		changes = count_changes(&b);
		is = fix_state(f, b.p, b.root);
	}
	box_close(&b);
	if (r == c->code && tree_ok && changes == c->changes && is == c->state)
		return 0;
	fprintf(stderr, "# %s, %s, %s: %s (%s), resource %s, changes %d (%d), %s (%s)\n", row->name,
	        stage_names[stage], verb_names[verb], atoll_code_name(r), atoll_code_name(c->code),
	        tree_ok ? "right" : "WRONG", (int)changes, (int)c->changes,
	        atoll_sandbox_state_name(is), atoll_sandbox_state_name(c->state));
	return 1;
}

static void tst_02_each_verb_in_each_state(void **state)
{
	struct fix *f = *state;
	int bad = 0;

	for (size_t i = 0; i < ROWS; i++)
		for (int stage = 0; stage < STAGES && row_runs(&rows[i]); stage++)
			for (int verb = 0; verb < VERBS; verb++)
				bad += check_cell(f, &rows[i], (enum stage)stage, (enum verb)verb);
	expect_eq(bad, 0);
}

/* ---- undo ---- */

enum undo { UNDO_CHANGED, UNDO_UNCHANGED, UNDO_MISSING, UNDOS };
static bool undone[ROWS][UNDOS];

static void undo_changed(struct box *b)
{
	uint64_t inode = inode_of(fix_path(b->f, "%s/one", b->root));
	uint64_t dir = inode_of(fix_path(b->f, "%s/gone", b->root));

	work_on(b->f, b->p, b->row, b->root, EDIT);
	expect_commit(b->f, b->p);
	expect_eq(fix_outcome(b->f, b->root), ATOLL_OUTCOME_COMMITTED);
	expect_man(b->root, b->after);
	expect_rollback(b->f, b->p);
	expect_eq(fix_outcome(b->f, b->root), ATOLL_OUTCOME_ROLLED_BACK);
	expect_man(b->root, b->before);
	/* The very originals, not copies. */
	expect(inode_of(fix_path(b->f, "%s/one", b->root)) == inode);
	expect(inode_of(fix_path(b->f, "%s/gone", b->root)) == dir);
}

static void undo_unchanged(struct box *b)
{
	char *inodes = man_inodes(b->root);

	work_on(b->f, b->p, b->row, b->root, "cat one > /dev/null");
	expect_commit(b->f, b->p);
	expect_eq(fix_outcome(b->f, b->root), ATOLL_OUTCOME_UNCHANGED);
	expect_rollback(b->f, b->p);
	expect_inodes(b->root, inodes);
	free(inodes);
}

static void undo_missing(struct box *b)
{
	const char *area = fix_area(b->f, b->p, b->root);

	work_on(b->f, b->p, b->row, b->root, EDIT);
	expect_commit(b->f, b->p);
	run_plain(area, "chmod -R u+w b1; rm -r b1/s*");
	expect_code(b->f, atoll_plan_rollback(b->p, 0, b->f->res), -ATOLL_E_RECOVERY_MISSING);
	expect_man(b->root, b->after);
	expect_eq(fix_outcome(b->f, b->root), ATOLL_OUTCOME_ROLLBACK_FAILED);
}

static void tst_02_each_kind_of_undo(void **state)
{
	static void (*const kinds[UNDOS])(struct box *) = { undo_changed, undo_unchanged,
		                                            undo_missing };
	struct fix *f = *state;

	for (size_t i = 0; i < ROWS; i++)
		for (int k = 0; k < UNDOS && row_runs(&rows[i]); k++) {
			struct box b;

			box_open(&b, f, &rows[i], fix_path(f, "undo-%zu-%d", i, k));
			kinds[k](&b);
			box_close(&b);
			undone[i][k] = true;
		}
}

/* ---- mixed batches ---- */

#define MIX_MAX 5
static bool mixed[MIX_MAX + 1][2];

struct mix {
	struct fix *f;
	struct atoll_plan *p;
	size_t n;
	const struct row *row[MIX_MAX]; /* NULL: a `failer` */
	const char *root[MIX_MAX];
	char *before[MIX_MAX];
};

static void mix_open(struct mix *m, struct fix *f, size_t n, size_t shift)
{
	size_t next = shift;

	*m = (struct mix){ .f = f, .p = fix_plan(f, NULL), .n = n };
	for (size_t i = 0; i < n; i++) {
		m->root[i] = fix_dir(f, fix_path(f, "mix%zu-%zu-%zu", n, shift, i));
		if (i == n - 1) {
			put_text(fix_path(f, "%s/value", m->root[i]), "old\n");
			fix_add(f, m->p, m->root[i], "failer");
		} else {
			while (!row_runs(&rows[next % ROWS]))
				next++;
			m->row[i] = &rows[next++ % ROWS];
			put_tree(f, m->root[i]);
			add_row(f, m->p, m->row[i], m->root[i]);
		}
		m->before[i] = man_take(m->root[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (m->row[i])
			work_on(f, m->p, m->row[i], m->root[i], EDIT);
		else
			put_text(fix_path(f, "%s/value", fix_work(f, m->p, m->root[i])), "new\n");
	}
}

static void mix_expect(struct mix *m, bool is_new)
{
	for (size_t i = 0; i < m->n; i++) {
		if (!is_new)
			expect_man(m->root[i], m->before[i]);
		else if (!m->row[i])
			expect_text(fix_path(m->f, "%s/value", m->root[i]), "new\n");
		else
			expect_text(fix_path(m->f, "%s/one", m->root[i]), "one\nmore\n");
	}
}

static void mix_close(struct mix *m)
{
	phase_clear();
	expect_stop(m->f, m->p);
	for (size_t i = 0; i < m->n; i++)
		free(m->before[i]);
}

static void tst_02_mixed_batches(void **state)
{
	struct fix *f = *state;

	for (size_t n = 2; n <= MIX_MAX; n++)
		for (size_t shift = 0; shift < 3; shift++) {
			struct mix m;

			mix_open(&m, f, n, shift);
			mix_expect(&m, false);
			expect_commit(f, m.p);
			expect_eq(atoll_result_atomicity(f->res), ATOLL_ATOMICITY_FULL);
			expect_eq(atoll_result_participants(f->res), n);
			mix_expect(&m, true);
			expect_rollback(f, m.p);
			for (size_t i = 0; i < n; i++)
				if (m.row[i])
					expect_man(m.root[i], m.before[i]);
			mix_close(&m);
			mixed[n][0] = true;
		}
}

static void tst_02_mixed_batches_with_a_failure(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	struct fix *f = *state;

	for (size_t n = 2; n <= MIX_MAX; n++)
		for (size_t k = 0; k < COUNT(phases); k++) {
			struct mix m;

			mix_open(&m, f, n, n + k);
			failer_set(m.root[n - 1], phases[k], FAIL_CODE, -EIO);
			expect(atoll_plan_commit(m.p, 0, f->res) < 0);
			mix_expect(&m, false);
			/* The work is there still, and commits when nothing stands in its way. */
			phase_clear();
			expect_commit(f, m.p);
			mix_expect(&m, true);
			mix_close(&m);
			mixed[n][1] = true;
		}
}

/* ---- nothing left out ---- */

static void tst_02_every_cell_was_filled(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS; i++)
		for (int k = 0; k < UNDOS && row_runs(&rows[i]); k++)
			expect_msg(undone[i][k], "%s: undo %d was not tried", rows[i].name, k);
	for (size_t n = 2; n <= MIX_MAX; n++)
		expect_msg(mixed[n][0] && mixed[n][1], "no batch of %zu was tried", n);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(tst_02_each_verb_in_each_state), mtest(tst_02_each_kind_of_undo),
		mtest(tst_02_mixed_batches),           mtest(tst_02_mixed_batches_with_a_failure),
		mtest(tst_02_every_cell_was_filled),
	};

	become_user(argc, argv);
	return atest_main(argc, argv, tests, children);
}
