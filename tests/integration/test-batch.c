/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: commits of a part of a plan, and what stays. Over `overlay`, `copy` and both together. */
#include "lib/more.h"
#include "lib/views.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kinds[] = { "overlay", "copy" };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- what the tests share ---- */

static const char *fill_tree(struct fix *f, const char *root)
{
	put_text(fix_path(f, "%s/a", root), "a\n");
	put_text(fix_path(f, "%s/b", root), "b\n");
	put_dir(fix_path(f, "%s/d", root), 0755);
	put_text(fix_path(f, "%s/d/c", root), "c\n");
	put_text(fix_path(f, "%s/d/e", root), "e\n");
	put_dir(fix_path(f, "%s/gone", root), 0755);
	put_text(fix_path(f, "%s/gone/x", root), "x\n");
	return root;
}

static const char *make_tree(struct fix *f, const char *name)
{
	return fill_tree(f, fix_dir(f, name));
}

static struct atoll_plan *plan_on(struct fix *f, const char *root, const char *kind)
{
	struct atoll_plan *p = fix_plan(f, NULL);

	fix_add(f, p, root, kind);
	return p;
}

/* Changes, additions, deletions, a replaced directory, a new one. */
static const char edits[] =
	"echo A >a; rm b; echo C >d/c; rm d/e; rm -r gone; mkdir gone; "
	"echo y >gone/y; mkdir -p new/sub; echo 1 >new/one; echo 2 >new/sub/two; "
	"echo o >new/x.o; ln -s a link; chmod 700 d";

#define MOST 8
/* Commits PATHS (up to NULL) of P, but for what EXCLUDE matches. */
static int commit_part(struct fix *f, struct atoll_plan *p, unsigned flags, const char *exclude,
                       ...)
{
	const char *paths[MOST + 1] = { NULL };
	const char *const excludes[] = { exclude, NULL };
	struct atoll_commit c = { .flags = flags, .paths = paths, .excludes = excludes };
	va_list ap;

	va_start(ap, exclude);
	for (size_t i = 0; i < MOST && (paths[i] = va_arg(ap, const char *)); i++)
		;
	va_end(ap);
	return atoll_plan_commit_with(p, &c, f->res);
}

static void expect_changes(struct fix *f, struct atoll_plan *p, size_t n)
{
	struct listing *l = diff_take(f, p);

	expect_eq(l->n, n);
	for (size_t i = 0; i < l->n && l->n != n; i++)
		(void)fprintf(stderr, "# %d %s\n", (int)l->v[i].kind, l->v[i].path);
	diff_free(l);
}

static bool is_changed(struct fix *f, struct atoll_plan *p, const char *path)
{
	struct listing *l = diff_take(f, p);
	bool found = diff_find(l, path) != NULL;

	diff_free(l);
	return found;
}

/* ---- a part, then the rest ---- */

static void atm_11_part_of_a_resource(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		char *before = man_take(root);

		run_ok(f, p, root, edits);
		expect_changes(f, p, 13);
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/a", root),
		                         fix_path(f, "%s/b", root), fix_path(f, "%s/new/sub", root),
		                         NULL));
		expect_eq(fix_row(f, root)->changes, 5); /* new/ and new/sub/ came along */
		expect_eq(fix_plan_state(f, p), ATOLL_PLAN_OPEN);
		expect_eq(fix_state(f, p, root), ATOLL_SANDBOX_ACTIVE);
		expect_text(fix_path(f, "%s/a", root), "A\n");
		expect(!exists(fix_path(f, "%s/b", root)));
		expect_text(fix_path(f, "%s/new/sub/two", root), "2\n");
		expect(!exists(fix_path(f, "%s/new/one", root)));
		expect_text(fix_path(f, "%s/d/c", root), "c\n");
		expect_changes(f, p, 8);
		expect(!is_changed(f, p, "new"));

		/* The view has both, and the next commands see no difference. */
		run_ok(f, p, root,
		       "test \"$(cat a new/sub/two new/one d/c)\" = \"$(printf 'A\\n2\\n1\\nC')\" "
		       "&& ! test -e b && ! test -e d/e && test -e link");
		expect_changes(f, p, 8);
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		expect_eq(fix_row(f, root)->changes, 8);
		expect_eq(fix_plan_state(f, p), ATOLL_PLAN_COMMITTED);
		expect_text(fix_path(f, "%s/gone/y", root), "y\n");
		expect(!exists(fix_path(f, "%s/gone/x", root)));
		expect_changes(f, p, 0);
		expect_rollback(f, p);
		expect_man(root, before);
		free(before);
		expect_stop(f, p);
	}
}

/* What was committed is the base from then on: it neither comes back nor stands in the way. */
static void der_04_a_batch_is_the_base_of_the_next(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		char *before = man_take(root);

		run_ok(f, p, root, edits);
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/a", root),
		                         fix_path(f, "%s/b", root), fix_path(f, "%s/new", root),
		                         NULL));
		run_ok(f, p, root,
		       "echo AA >a; echo B >b; echo 11 >new/one; rm -r new/sub; echo 3 >new/three");
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/new", root),
		                         fix_path(f, "%s/b", root), NULL));
		expect_text(fix_path(f, "%s/new/one", root), "11\n");
		expect(!exists(fix_path(f, "%s/new/sub", root)));
		expect_text(fix_path(f, "%s/a", root), "A\n");
		run_ok(f, p, root, "rm -r new");
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/new", root), NULL));
		expect(!exists(fix_path(f, "%s/new", root)));

		/* Somebody else's edit of it is one, though. */
		put_text(fix_path(f, "%s/a", root), "theirs\n");
		expect_code(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/a", root), NULL),
		            -ATOLL_E_CONFLICT);
		expect(has_note(f, ATOLL_NOTE_CONFLICT, "a"));
		expect_text(fix_path(f, "%s/a", root), "theirs\n");
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/d", root), NULL));
		expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_THEIRS, f->res));
		expect_text(fix_path(f, "%s/a", root), "theirs\n");
		char *rest = man_without(before, "a "), *now = man_take(root);
		char *after = man_without(now, "a ");
		man_assert_equal(after, rest);
		free(before);
		free(rest);
		free(now);
		free(after);
		expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	}
}

/* ---- what may be split and what not ---- */

static void atm_11_a_replaced_directory_goes_as_a_whole(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		char *before;

		run_ok(f, p, root, edits);
		before = man_inodes(root);
		expect_code(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/gone/y", root), NULL),
		            -ATOLL_E_POLICY);
		expect(strstr(atoll_result_message(f->res), "'gone' was replaced as a whole") !=
		       NULL);
		expect_code(f, commit_part(f, p, 0, "y", fix_path(f, "%s/gone", root), NULL),
		            -ATOLL_E_POLICY);
		expect_inodes(root, before);
		expect_changes(f, p, 13);
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/gone", root), NULL));
		expect_text(fix_path(f, "%s/gone/y", root), "y\n");
		run_ok(f, p, root, "rm -r d");
		expect_code(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/d/c", root), NULL),
		            -ATOLL_E_POLICY);
		expect(strstr(atoll_result_message(f->res), "'d' was deleted as a whole") != NULL);
		free(before);
		expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	}
}

static void atm_11_excluded_entries_stay(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);

		run_ok(f, p, root, edits);
		expect_ok(f, commit_part(f, p, 0, "*.o", NULL));
		expect_text(fix_path(f, "%s/new/one", root), "1\n");
		expect(!exists(fix_path(f, "%s/new/x.o", root)));
		expect_changes(f, p, 1);
		expect(is_changed(f, p, "new/x.o"));
		expect_eq(fix_plan_state(f, p), ATOLL_PLAN_OPEN);
		expect_ok(f, commit_part(f, p, 0, "new/**", NULL));
		expect_eq(fix_outcome(f, root), ATOLL_OUTCOME_UNCHANGED);
		expect_changes(f, p, 1);
		expect_code(f, commit_part(f, p, 0, "/", NULL), -ATOLL_E_INVALID);
	}
}

static void err_02_paths_that_name_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = make_tree(f, "r");
	struct atoll_plan *p = plan_over(f, root);

	append_text(fix_path(f, "%s/a", fix_work(f, p, root)), "more\n");
	expect_code(f, commit_part(f, p, 0, NULL, "/etc/passwd", NULL), -ATOLL_E_NOT_FOUND);
	expect_code(f, commit_part(f, p, 0, NULL, "a", NULL), -ATOLL_E_INVALID);
	expect_code(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/../x", root), NULL),
	            -ATOLL_E_INVALID);
	expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/b", root), NULL));
	expect_eq(fix_outcome(f, root), ATOLL_OUTCOME_UNCHANGED);
	expect(has_note(f, ATOLL_NOTE_WARNING, "b"));
	expect_changes(f, p, 1);
	/* Above a root means all of it. */
	expect_ok(f, commit_part(f, p, ATOLL_DRY_RUN, NULL, f->dir, NULL));
	expect_eq(fix_row(f, root)->changes, 1);
	expect_changes(f, p, 1);
	expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/", root), NULL));
	expect_text(fix_path(f, "%s/a", root), "a\nmore\n");
	expect_eq(fix_plan_state(f, p), ATOLL_PLAN_COMMITTED);
}

static void der_21_names_left_behind_are_cut_off(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		struct stat st;

		run_ok(f, p, root,
		       "echo l >l1; ln l1 l2; ln l1 d/l3; mkdir n; echo m >n/m1; ln n/m1 n/m2");
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/l1", root),
		                         fix_path(f, "%s/n", root), NULL));
		expect(has_note(f, ATOLL_NOTE_WARNING, "l1"));
		expect_eq(stat(fix_path(f, "%s/l1", root), &st), 0);
		expect_eq(st.st_nlink, 1);
		expect_eq(stat(fix_path(f, "%s/n/m1", root), &st), 0);
		expect_eq(st.st_nlink, 2); /* both are there: one file still */
		run_ok(f, p, root, "echo more >>l2");
		expect_text(fix_path(f, "%s/l1", root), "l\n");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		expect_text(fix_path(f, "%s/d/l3", root), "l\nmore\n");
		expect_rollback(f, p);
	}
}

static void bkp_05_times_of_directories_follow(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p;
		struct stat st;

		set_mtime(fix_path(f, "%s/d", root), 1000000000, 1);
		p = plan_on(f, root, kinds[i]);
		run_ok(f, p, root,
		       "echo n >d/n; echo m >d/m; mkdir new; echo 1 >new/1; echo 2 >new/2; "
		       "touch -d @1100000000 d new");
		expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/d/n", root),
		                         fix_path(f, "%s/new/1", root), NULL));
		expect_eq(stat(fix_path(f, "%s/d", root), &st), 0);
		expect_eq(st.st_mtim.tv_sec, 1100000000);
		expect_eq(stat(fix_path(f, "%s/new", root), &st), 0);
		expect_eq(st.st_mtim.tv_sec, 1100000000);
		run_ok(f, p, root,
		       "test $(stat -c %Y d) = 1100000000 && test $(stat -c %Y new) = 1100000000");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		expect_eq(stat(fix_path(f, "%s/new", root), &st), 0);
		expect_eq(st.st_mtim.tv_sec, 1100000000);
		expect_rollback(f, p);
		expect_eq(stat(fix_path(f, "%s/d", root), &st), 0);
		expect_eq(st.st_mtim.tv_sec, 1000000000);
	}
}

/* ---- several resources ---- */

struct mixed {
	const char *o, *c, *v; /* overlay, copy, failer */
	struct atoll_plan *p;
};

static void mixed_open(struct fix *f, struct mixed *m)
{
	m->o = make_tree(f, "o");
	m->c = make_tree(f, "c");
	m->v = fix_dir(f, "v");
	put_text(fix_path(f, "%s/value", m->v), "old\n");
	m->p = fix_plan(f, NULL);
	fix_add(f, m->p, m->o, "overlay");
	fix_add(f, m->p, m->c, "copy");
	fix_add(f, m->p, m->v, "failer");
	run_ok(f, m->p, m->o, edits);
	run_ok(f, m->p, m->c, edits);
	put_text(fix_path(f, "%s/value", fix_work(f, m->p, m->v)), "new\n");
}

static int mixed_commit(struct fix *f, const struct mixed *m)
{
	return commit_part(f, m->p, 0, NULL, fix_path(f, "%s/b", m->o),
	                   fix_path(f, "%s/new/sub", m->o), fix_path(f, "%s/a", m->c),
	                   fix_path(f, "%s/d", m->c), fix_path(f, "%s/new/one", m->c), m->v, NULL);
}

static void atm_11_a_part_that_fails_can_be_committed_again(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT };
	struct fix *f = *state;
	struct mixed m;

	mixed_open(f, &m);
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
		char *o = man_take(m.o), *c = man_take(m.c);

		failer_set(m.v, phases[i], FAIL_CODE, -EIO);
		expect(mixed_commit(f, &m) < 0);
		phase_clear();
		expect_man(m.o, o);
		expect_man(m.c, c);
		expect_changes(f, m.p, 27);
		free(o);
		free(c);
	}
	expect_ok(f, mixed_commit(f, &m));
	expect(!exists(fix_path(f, "%s/b", m.o)));
	expect_text(fix_path(f, "%s/new/one", m.c), "1\n");
	expect_text(fix_path(f, "%s/value", m.v), "new\n");
	expect_eq(fix_state(f, m.p, m.v), ATOLL_SANDBOX_COMMITTED);
	expect_eq(fix_state(f, m.p, m.o), ATOLL_SANDBOX_ACTIVE);
	expect_eq(fix_plan_state(f, m.p), ATOLL_PLAN_OPEN);
	expect_changes(f, m.p, 27 - 4 - 6 - 1);
	expect_ok(f, atoll_plan_commit(m.p, 0, f->res));
	expect_eq(fix_plan_state(f, m.p), ATOLL_PLAN_COMMITTED);
	expect_text(fix_path(f, "%s/a", m.o), "A\n");
	expect_rollback(f, m.p);
	expect_text(fix_path(f, "%s/a", m.o), "a\n");
	expect_text(fix_path(f, "%s/b", m.o), "b\n");
	expect_text(fix_path(f, "%s/value", m.v), "old\n");
	expect(!exists(fix_path(f, "%s/new", m.c)));
}

static void stm_06_one_resource_alone(void **state)
{
	struct fix *f = *state;
	struct mixed m;

	mixed_open(f, &m);
	expect_ok(f, commit_part(f, m.p, 0, NULL, m.c, NULL));
	expect_eq(fix_outcome(f, m.c), ATOLL_OUTCOME_COMMITTED);
	expect_eq(fix_outcome(f, m.o), ATOLL_OUTCOME_NOT_ATTEMPTED);
	expect_eq(fix_state(f, m.p, m.c), ATOLL_SANDBOX_COMMITTED);
	expect_eq(fix_plan_state(f, m.p), ATOLL_PLAN_OPEN);
	expect_text(fix_path(f, "%s/a", m.c), "A\n");
	expect_text(fix_path(f, "%s/a", m.o), "a\n");
	expect_ok(f, atoll_plan_commit(m.p, 0, f->res));
	expect_eq(fix_outcome(f, m.c), ATOLL_OUTCOME_SKIPPED);
	expect_text(fix_path(f, "%s/a", m.c), "A\n");
	expect_rollback(f, m.p);
	expect_text(fix_path(f, "%s/a", m.c), "a\n");
	expect_text(fix_path(f, "%s/a", m.o), "a\n");
}

static void cch_02_a_strategy_that_cannot_choose_says_so(void **state)
{
	struct fix *f = *state;
	struct mixed m;

	mixed_open(f, &m);
	expect_code(f, commit_part(f, m.p, 0, NULL, fix_path(f, "%s/value", m.v), NULL),
	            -ATOLL_E_UNSUPPORTED);
	expect(strstr(atoll_result_message(f->res), "(failer)") != NULL);
	expect_ok(f, commit_part(f, m.p, 0, "*.o", m.v, NULL));
	expect_text(fix_path(f, "%s/value", m.v), "new\n");
	expect_rollback(f, m.p);
}

/* A resource inside another: the inner one's part is its own. */
static void der_18_a_path_belongs_to_the_innermost_resource(void **state)
{
	struct fix *f = *state;
	const char *outer = make_tree(f, "outer"), *inner = fix_path(f, "%s/d", outer);
	struct atoll_plan *p = fix_plan(f, NULL);

	fix_add(f, p, outer, "overlay");
	fix_add_child(f, p, inner, "copy", outer);
	run_ok(f, p, outer, "echo A >a; echo C >d/c; echo E >d/e");
	expect_ok(f, commit_part(f, p, 0, NULL, fix_path(f, "%s/c", inner), NULL));
	expect_text(fix_path(f, "%s/c", inner), "C\n");
	expect_text(fix_path(f, "%s/e", inner), "e\n");
	expect_text(fix_path(f, "%s/a", outer), "a\n");
	expect_ok(f, commit_part(f, p, 0, NULL, outer, NULL));
	expect_text(fix_path(f, "%s/e", inner), "E\n");
	expect_text(fix_path(f, "%s/a", outer), "A\n");
	expect_rollback(f, p);
	expect_text(fix_path(f, "%s/c", inner), "c\n");
	expect_text(fix_path(f, "%s/a", outer), "a\n");
}

/* ---- conflicts, settled by path ---- */

struct quarrel {
	const char *root;
	struct atoll_plan *p;
	char *before; /* with what somebody else made of it */
};

/* Of every kind of conflict one. */
static void quarrel_open(struct fix *f, struct quarrel *q, const char *kind)
{
	q->root = make_tree(f, kind);
	put_text(fix_path(f, "%s/keep", q->root), "keep\n");
	put_dir(fix_path(f, "%s/mode", q->root), 0755);
	q->p = plan_on(f, q->root, kind);
	run_ok(f, q->p, q->root,
	       "echo A >a; rm b; echo C >d/c; rm -r gone; echo N >new; echo k >keep; chmod 700 mode");
	put_text(fix_path(f, "%s/a", q->root), "their a\n");
	put_text(fix_path(f, "%s/b", q->root), "their b\n");
	remove_entry(fix_path(f, "%s/d/c", q->root));
	put_text(fix_path(f, "%s/gone/more", q->root), "their more\n");
	put_text(fix_path(f, "%s/new", q->root), "their new\n");
	set_mode(fix_path(f, "%s/mode", q->root), 0711);
	q->before = man_take(q->root);
}

#define QUARRELS 6

static int commit_settled(struct fix *f, struct quarrel *q, const char *part, const char *ours,
                          const char *theirs)
{
	const char *const paths[] = { part, NULL }, *const a[] = { ours, NULL },
			  *const b[] = { theirs, NULL };
	const struct atoll_commit c = { .paths = paths, .ours = a, .theirs = b };

	return atoll_plan_commit_with(q->p, &c, f->res);
}

static void der_03_conflicts_are_settled_for_ours(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		struct quarrel q;

		quarrel_open(f, &q, kinds[i]);
		expect_code(f, atoll_plan_commit(q.p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), QUARRELS);
		expect(strstr(atoll_result_hint(f->res), "--ours PATH") != NULL);
		/* Only what is named. */
		expect_code(f, commit_settled(f, &q, NULL, fix_path(f, "%s/a", q.root), NULL),
		            -ATOLL_E_CONFLICT);
		expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), QUARRELS - 1);
		expect_man(q.root, q.before);
		expect_ok(f, commit_settled(f, &q, NULL, q.root, NULL));
		expect_text(fix_path(f, "%s/a", q.root), "A\n");
		expect(!exists(fix_path(f, "%s/b", q.root)));
		expect_text(fix_path(f, "%s/d/c", q.root), "C\n");
		expect(!exists(fix_path(f, "%s/gone", q.root)));
		expect_text(fix_path(f, "%s/new", q.root), "N\n");
		expect_text(fix_path(f, "%s/keep", q.root), "k\n");
		expect_eq(mode_of(fix_path(f, "%s/mode", q.root)), 0700);
		expect_rollback(f, q.p);
		expect_man(q.root, q.before);
		expect_stop(f, q.p);
		free(q.before);
	}
}

static void der_03_conflicts_are_settled_for_theirs(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		struct quarrel q;

		quarrel_open(f, &q, kinds[i]);
		expect_ok(f, commit_settled(f, &q, NULL, NULL, q.root));
		expect_eq(fix_notes(f, ATOLL_NOTE_KEPT), QUARRELS);
		expect_text(fix_path(f, "%s/a", q.root), "their a\n");
		expect_text(fix_path(f, "%s/b", q.root), "their b\n");
		expect(!exists(fix_path(f, "%s/d/c", q.root)));
		expect_text(fix_path(f, "%s/gone/more", q.root), "their more\n");
		expect_text(fix_path(f, "%s/keep", q.root), "k\n");
		expect(tree_holds(fix_area(f, q.p, q.root), "A\n"));
		expect_changes(f, q.p, 0);
		run_ok(f, q.p, q.root, "test \"$(cat a)\" = 'their a' && test -e b && echo AA >a");
		expect_ok(f, atoll_plan_commit(q.p, 0, f->res));
		expect_text(fix_path(f, "%s/a", q.root), "AA\n");
		expect_rollback(f, q.p);
		expect_man(q.root, q.before);
		expect_stop(f, q.p);
		free(q.before);
	}
}

/* The workspace lives on: it shows theirs, which is the base from then on. */
static void der_03_settled_with_work_left(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		struct quarrel q;

		quarrel_open(f, &q, kinds[i]);
		run_ok(f, q.p, q.root, "echo late >late");
		for (int round = 0; round < 2; round++) {
			const char *const paths[] = {
				fix_path(f, "%s/a", q.root),    fix_path(f, "%s/b", q.root),
				fix_path(f, "%s/gone", q.root), fix_path(f, "%s/mode", q.root),
				fix_path(f, "%s/new", q.root),  NULL
			};
			const struct atoll_commit c = {
				.paths = paths,
				.theirs = paths,
				.flags = round == 0 ? ATOLL_DRY_RUN : 0,
			};
			expect_ok(f, atoll_plan_commit_with(q.p, &c, f->res));
			expect_text(fix_path(f, "%s/a", q.root), "their a\n");
		}
		expect_changes(f, q.p, 3); /* keep, late, d/c */
		run_ok(f, q.p, q.root,
		       "test \"$(cat a b new gone/more)\" = \"$(printf 'their a\\ntheir b\\ntheir new\\ntheir "
		       "more')\" && test $(stat -c %a mode) = 711");
		run_ok(f, q.p, q.root, "echo AA >a; rm b; rm -r gone; chmod 755 mode; echo N >new");
		expect_ok(f, commit_settled(f, &q, NULL, fix_path(f, "%s/d", q.root), NULL));
		expect_text(fix_path(f, "%s/a", q.root), "AA\n");
		expect(!exists(fix_path(f, "%s/gone", q.root)));
		expect_rollback(f, q.p);
		expect_man(q.root, q.before);
		expect_stop(f, q.p);
		free(q.before);
	}
}

/* ---- an undo that keeps the work ---- */

static void stm_03_kept_work_commits_to_the_same(void **state)
{
	struct fix *f = *state;
	struct mixed m;
	char *o, *c, *new_o, *new_c;

	mixed_open(f, &m);
	o = man_take(m.o);
	c = man_take(m.c);
	expect_ok(f, commit_part(f, m.p, 0, NULL, fix_path(f, "%s/a", m.o),
	                         fix_path(f, "%s/b", m.c), fix_path(f, "%s/new/sub", m.c), NULL));
	expect_ok(f, commit_part(f, m.p, 0, NULL, m.o, m.c, NULL));
	new_o = man_take(m.o);
	new_c = man_take(m.c);
	expect_ok(f, atoll_plan_rollback(m.p, ATOLL_KEEP_WORK, f->res));
	expect_man(m.o, o);
	expect_man(m.c, c);
	expect_eq(fix_plan_state(f, m.p), ATOLL_PLAN_OPEN);
	expect_eq(fix_state(f, m.p, m.o), ATOLL_SANDBOX_ACTIVE);
	expect_changes(f, m.p, 27);
	expect_ok(f, atoll_plan_commit(m.p, 0, f->res));
	expect_man(m.o, new_o);
	expect_man(m.c, new_c);
	/* One that cannot is named, and nothing is undone. */
	expect_code(f, atoll_plan_rollback(m.p, ATOLL_KEEP_WORK, f->res), -ATOLL_E_UNSUPPORTED);
	expect(strstr(atoll_result_message(f->res), "(failer)") != NULL);
	expect_man(m.o, new_o);
	expect_rollback(f, m.p);
	expect_man(m.o, o);
	expect_man(m.c, c);
	free(o);
	free(c);
	free(new_o);
	free(new_c);
}

/* What is done after the commit, in places where it was. */
static const char newer[] = "mkdir b; echo in >b/in; echo more >gone/more; echo 3 >new/sub/three; "
			    "rm new/one; echo E >d/e; rm link";

static int child_keep(const char *dir, const char *arg)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct atoll_plan *p = NULL;

	fix_attach(f, dir);
	expect_ok(f, atoll_plan_find(f->a, arg, &p, f->res));
	expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_WORK, f->res));
	atoll_plan_free(p);
	fix_detach(f);
	free(f);
	return 0;
}

static struct atoll_plan *plan_apart(struct fix *f, const char *root, const char *kind)
{
	const struct atoll_resource r = { .root = root, .strategy = kind, .work_in_store = true };
	struct atoll_plan *p = fix_plan(f, NULL);

	expect_ok(f, atoll_plan_add(p, &r, f->res));
	return p;
}

/* A workspace in the store and a resource elsewhere: what would have to be moved from the one to the other
 * once it is decided is refused before. */
static void atm_11_a_part_is_refused_on_another_mount(void **state)
{
	struct fix *f = *state;
	const char *mount = other_mount(f);

	for (size_t i = 0; i < KINDS; i++) {
		bool stays = strcmp(kinds[i], "copy") == 0;
		struct quarrel q = { .root = fix_path(f, "%s/%s", mount, kinds[i]) };
		const char *a = fix_path(f, "%s/a", q.root), *b = fix_path(f, "%s/b", q.root);
		char *seen, *now;

		put_dir(q.root, 0755);
		fill_tree(f, q.root);
		q.p = plan_apart(f, q.root, kinds[i]);
		run_ok(f, q.p, q.root, edits);
		seen = list_view(f, q.p, q.root);
		q.before = man_take(q.root);
		for (int dry = 0; dry < 2 && !stays; dry++) {
			expect_code(f, commit_part(f, q.p, dry ? ATOLL_DRY_RUN : 0, NULL, b, NULL),
			            -ATOLL_E_UNSUPPORTED);
			expect(strstr(atoll_result_message(f->res), "on another mount") != NULL);
			expect(strstr(atoll_result_hint(f->res), "commit all of it") != NULL);
		}
		free(q.before);
		put_text(a, "their a\n");
		q.before = man_take(q.root);
		expect_code(f, commit_settled(f, &q, NULL, NULL, a), -ATOLL_E_UNSUPPORTED);
		expect_eq(fix_notes(f, ATOLL_NOTE_KEPT), 0);
		expect_eq(fix_plan_state(f, q.p), ATOLL_PLAN_OPEN);
		expect_man(q.root, q.before);
		now = list_view(f, q.p, q.root);
		expect_str(now, seen);

		/* All of it can be, and what needs no move. */
		if (stays)
			expect_ok(f, commit_part(f, q.p, 0, NULL, b, NULL));
		expect_ok(f, commit_settled(f, &q, NULL, a, NULL));
		expect_text(a, "A\n");
		expect(!exists(b));
		expect_rollback(f, q.p);
		expect_man(q.root, q.before);
		expect_stop(f, q.p);
		free(q.before);
		free(seen);
		free(now);
	}
}

/* Nothing can be moved from the one to the other. */
static void stm_03_work_is_kept_on_another_mount(void **state)
{
	static const char *const points[] = { NULL, "overlay.keep.returned", "txn.undo.kept" };
	enum { POINTS = sizeof(points) / sizeof(points[0]) };
	struct fix *f = *state;
	const char *mount = other_mount(f);

	for (size_t i = 0; i < KINDS * 2 * POINTS; i++) {
		const char *kind = kinds[i % KINDS], *point = points[i / KINDS / 2];
		const char *env[] = { fix_path(f, "ATOLL_CRASHPOINT=%s", point ? point : ""),
			              NULL };
		const char *root = fix_path(f, "%s/r%zu", mount, i), *name = fix_path(f, "p%zu", i);
		const struct atoll_resource r = { .root = root,
			                          .strategy = kind,
			                          .work_in_store = true };
		struct atoll_plan *p = fix_plan(f, name);
		char *before, *installed, *seen, *now;

		put_dir(root, 0755);
		before = man_take(fill_tree(f, root));
		expect_ok(f, atoll_plan_add(p, &r, f->res));
		run_ok(f, p, root, edits);
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		installed = man_take(root);
		if (i / KINDS % 2)
			run_ok(f, p, root, newer);
		seen = list_view(f, p, root);
		if (!point || (strcmp(kind, "copy") == 0 && strcmp(point, points[1]) == 0)) {
			expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_WORK, f->res));
		} else {
			expect_eq(child_run(f, "keep", name, env), 137);
			expect_eq(atoll_recover(f->a, name, false, f->res), 0);
		}
		expect_man(root, before);
		now = list_view(f, p, root);
		expect_str(now, seen);
		/* And it is work: it commits to the same. */
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		if (i / KINDS % 2)
			expect_text(fix_path(f, "%s/b/in", root), "in\n");
		else
			expect_man(root, installed);
		expect_rollback(f, p);
		expect_man(root, before);
		expect_stop(f, p);
		free(before);
		free(installed);
		free(seen);
		free(now);
	}
}

/* However many directories it returns to, few descriptors are enough. */
static void stm_03_work_is_kept_with_few_descriptors(void **state)
{
	enum { FEW = 128 };
	struct fix *f = *state;
	const char *root = fix_path(f, "%s/root", other_mount(f));
	struct atoll_plan *p;
	struct rlimit was, few;
	char *before, *seen, *now;
	int r;

	put_dir(root, 0755);
	for (int i = 0; i < 2 * FEW; i++)
		put_dir(fix_path(f, "%s/d%d", root, i), 0755);
	before = man_take(root);
	p = plan_apart(f, root, "overlay");
	run_ok(f, p, root, "for d in d*; do echo $d >$d/f; done");
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	run_ok(f, p, root, "echo newer >newer");
	seen = list_view(f, p, root);
	expect_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = FEW;
	expect_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	r = atoll_plan_rollback(p, ATOLL_KEEP_WORK, f->res);
	expect_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	expect_ok(f, r);
	expect_man(root, before);
	now = list_view(f, p, root);
	expect_str(now, seen);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_text(fix_path(f, "%s/d%d/f", root, FEW), fix_path(f, "d%d\n", FEW));
	expect_rollback(f, p);
	expect_stop(f, p);
	free(before);
	free(seen);
	free(now);
}

/* Whether a batch used the workspace up is on record; a record that cannot be read is no answer. */
static void stm_03_work_is_not_dropped_for_a_record_that_cannot_be_read(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]), *note;
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		char *seen, *installed, *now;

		run_ok(f, p, root, edits);
		seen = list_view(f, p, root);
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		installed = man_take(root);
		note = fix_path(f, "%s/b1/used", fix_area(f, p, root));
		expect_eq(rename(note, fix_path(f, "%s.away", note)), 0);
		put_link(note, "nowhere");
		expect_code(f, atoll_plan_rollback(p, ATOLL_KEEP_WORK, f->res), -ELOOP);
		expect_man(root, installed);
		expect_eq(rename(fix_path(f, "%s.away", note), note), 0);
		expect_ok(f, atoll_plan_rollback(p, ATOLL_KEEP_WORK, f->res));
		now = list_view(f, p, root);
		expect_str(now, seen);
		expect_stop(f, p);
		free(seen);
		free(installed);
		free(now);
	}
}

/* ---- edits at the last moment ---- */

static int edit_late(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	put_text(user, "at the last moment\n");
	return 0;
}

/* An edit between an undo's look and its exchange refuses the undo; nothing is lost or taken back. */
static void der_04_a_late_edit_refuses_the_undo(void **state)
{
	static const char *const late[] = { "a", "new/one", "new/theirs" };
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(late) / sizeof(late[0]) * KINDS; i++) {
		const char *root = make_tree(f, fix_path(f, "r%zu", i));
		const char *v = fix_dir(f, fix_path(f, "v%zu", i));
		char *path = fix_path(f, "%s/%s", root, late[i / KINDS]);
		struct atoll_plan *p = plan_on(f, root, kinds[i % KINDS]);

		put_text(fix_path(f, "%s/value", v), "old\n");
		fix_add(f, p, v, "failer");
		run_ok(f, p, root, edits);
		put_text(fix_path(f, "%s/value", fix_work(f, p, v)), "new\n");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		phase_hook(v, PHASE_UNDO, edit_late, path);
		expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
		phase_clear();
		expect_text(path, "at the last moment\n");
		expect_text(fix_path(f, "%s/new/sub/two", root), "2\n");
		expect(!exists(fix_path(f, "%s/b", root)));
		/* It is found before anything moves from now on. */
		expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	}
}

/* A newer commit of the plan that took one of two names away touched the other; that is no edit. What
 * somebody else does to a file with two names is. */
static void der_21_names_taken_by_a_newer_batch(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		struct atoll_plan *p = plan_on(f, root, kinds[i]);
		char *before = man_take(root);

		run_ok(f, p, root, "echo h >h1; ln h1 h2; mkdir n; echo k >k1; ln k1 n/k2");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		run_ok(f, p, root, "rm h2; echo K >new; mv new k1");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		expect_rollback(f, p);
		expect_man(root, before);

		run_ok(f, p, root, "echo h >h1; ln h1 h2");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		run_ok(f, p, root, "echo A >a");
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		/* Another name is no change of what it holds. */
		assert_int_equal(link(fix_path(f, "%s/h1", root), fix_path(f, "%s/h3", root)), 0);
		put_text(fix_path(f, "%s/h3", root), "theirs\n");
		expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_CONFLICT);
		put_text(fix_path(f, "%s/h3", root), "h\n");
		expect_rollback(f, p);
		expect_text(fix_path(f, "%s/h3", root), "h\n");
		expect(!exists(fix_path(f, "%s/h1", root)) && !exists(fix_path(f, "%s/h2", root)));
		free(before);
		expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	}
}

/* ---- refresh ---- */

static void der_03_refresh_takes_over_what_does_not_collide(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		struct quarrel q;

		quarrel_open(f, &q, kinds[i]);
		put_text(fix_path(f, "%s/d/e", q.root), "their e\n");
		put_dir(fix_path(f, "%s/theirs", q.root), 0750);
		put_text(fix_path(f, "%s/theirs/t", q.root), "their t\n");
		expect_ok(f, atoll_plan_refresh(q.p, f->res));
		expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), QUARRELS);
		expect_text(fix_path(f, "%s/a", q.root), "their a\n");
		/* The view has it, beside the work; what both changed still is a conflict. */
		run_ok(f, q.p, q.root,
		       "test \"$(cat a keep d/e theirs/t)\" = \"$(printf 'A\\nk\\ntheir e\\ntheir t')\" && "
		       "! test -e b && ! test -e gone && test \"$(stat -c %a theirs mode)\" = \"$(printf "
		       "'750\\n700')\"");
		expect_code(f, atoll_plan_commit(q.p, 0, f->res), -ATOLL_E_CONFLICT);
		expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), QUARRELS);
		/* And may be changed without being one. */
		run_ok(f, q.p, q.root, "echo E >d/e; rm -r theirs");
		expect_ok(f, commit_part(f, q.p, 0, NULL, fix_path(f, "%s/d/e", q.root),
		                         fix_path(f, "%s/theirs", q.root),
		                         fix_path(f, "%s/keep", q.root), NULL));
		expect_text(fix_path(f, "%s/d/e", q.root), "E\n");
		expect(!exists(fix_path(f, "%s/theirs", q.root)));
		expect_ok(f, atoll_plan_refresh(q.p, f->res));
		expect_eq(fix_notes(f, ATOLL_NOTE_CONFLICT), QUARRELS);
		expect_ok(f, commit_settled(f, &q, NULL, q.root, NULL));
		expect_text(fix_path(f, "%s/a", q.root), "A\n");
		expect_rollback(f, q.p);
		expect_text(fix_path(f, "%s/d/e", q.root), "their e\n");
		expect_text(fix_path(f, "%s/a", q.root), "their a\n");
		expect_stop(f, q.p);
		free(q.before);
	}
}

/* ---- a database that a process opens while a commit is prepared ---- */

struct opener {
	const char *path;
	int fd;
};

static int open_database(void *user, struct atoll_participant *p, enum phase phase)
{
	struct opener *o = user;

	(void)p;
	(void)phase;
	o->fd = open(o->path, O_RDONLY | O_CLOEXEC);
	return o->fd < 0;
}

static void der_03_a_database_opened_after_prepare_is_not_replaced(void **state)
{
	struct fix *f = *state;

	for (size_t i = 0; i < KINDS; i++) {
		const char *root = make_tree(f, kinds[i]);
		const char *other = fix_dir(f, fix_path(f, "other-%s", kinds[i]));
		struct opener o = { .path = fix_path(f, "%s/d/c", root), .fd = -1 };
		struct atoll_plan *p;
		char *before;

		put_bytes(o.path, 4096, 1); /* a page */
		put_text(fix_path(f, "%s-wal", o.path), "");
		put_text(fix_path(f, "%s/value", other), "old\n");
		before = man_take(root);
		p = plan_on(f, root, kinds[i]);
		fix_add(f, p, other, "failer");
		run_ok(f, p, root, "echo C >d/c; echo A >a");
		put_text(fix_path(f, "%s/value", fix_work(f, p, other)), "new\n");
		/* The directory was prepared when the other resource is. */
		phase_hook(other, PHASE_PREPARE, open_database, &o);
		expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_POLICY);
		expect(o.fd >= 0);
		expect(has_note(f, ATOLL_NOTE_OPEN_DATABASE, "d/c"));
		expect_man(root, before);
		expect_text(fix_path(f, "%s/value", other), "old\n");
		phase_clear();
		expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_POLICY);
		expect_man(root, before);
		expect_eq(close(o.fd), 0);
		expect_commit(f, p);
		expect_text(o.path, "C\n");
		expect_rollback(f, p);
		expect_man(root, before);
		free(before);
		expect_stop(f, p);
	}
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "keep", child_keep }, { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(atm_11_part_of_a_resource),
		mtest(der_04_a_batch_is_the_base_of_the_next),
		mtest(atm_11_a_replaced_directory_goes_as_a_whole),
		mtest(atm_11_excluded_entries_stay),
		mtest(err_02_paths_that_name_nothing),
		mtest(der_21_names_left_behind_are_cut_off),
		mtest(bkp_05_times_of_directories_follow),
		mtest(atm_11_a_part_that_fails_can_be_committed_again),
		mtest(stm_06_one_resource_alone),
		mtest(cch_02_a_strategy_that_cannot_choose_says_so),
		mtest(der_18_a_path_belongs_to_the_innermost_resource),
		mtest(stm_03_kept_work_commits_to_the_same),
		mtest(atm_11_a_part_is_refused_on_another_mount),
		mtest(stm_03_work_is_kept_on_another_mount),
		mtest(stm_03_work_is_kept_with_few_descriptors),
		mtest(stm_03_work_is_not_dropped_for_a_record_that_cannot_be_read),
		mtest(der_03_conflicts_are_settled_for_ours),
		mtest(der_03_conflicts_are_settled_for_theirs),
		mtest(der_03_settled_with_work_left),
		mtest(der_04_a_late_edit_refuses_the_undo),
		mtest(der_21_names_taken_by_a_newer_batch),
		mtest(der_03_refresh_takes_over_what_does_not_collide),
		mtest(der_03_a_database_opened_after_prepare_is_not_replaced),
	};

	become_user(argc, argv);
	return atest_main(argc, argv, tests, children);
}
