/* SPDX-License-Identifier: Apache-2.0 */
/* Rules ORD: in which order a batch reaches its resources, and goes back. */
#include "lib/atest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EIGHT  8
#define ROUNDS 50

/* ---- trees of sandboxes ---- */

/*
 * A parent must be in the plan before its children name it, so an order of insertion is one in
 * which parents come first. A sandbox has one parent: the diamond of the rule becomes a tree whose
 * branches differ in length.
 */
struct shape {
	int parent[EIGHT]; /* -1: none */
};

static const struct shape shapes[] = {
	{ { -1, 0, 1, 2, 3, 4, 5, 6 } },    /* a chain */
	{ { -1, 0, 0, 1, 1, 2, 5, 6 } },    /* branches */
	{ { -1, 0, 0, 0, 0, 0, 0, 0 } },    /* a fan */
	{ { -1, -1, 0, 1, 2, 3, -1, -1 } }, /* a wood */
};

/* A random order in which no child comes before its parent. */
static void shuffle(const struct shape *s, uint64_t *random, int out[EIGHT])
{
	bool in[EIGHT] = { false };

	for (int n = 0; n < EIGHT;) {
		int i = (int)(atest_random(random) % EIGHT);

		if (in[i] || (s->parent[i] >= 0 && !in[s->parent[i]]))
			continue;
		in[i] = true;
		out[n++] = i;
	}
}

struct wood {
	struct atoll_plan *p;
	const char *root[EIGHT];
	const char *log;
};

static void make_wood(struct fix *f, const struct shape *s, const int order[EIGHT], struct wood *w)
{
	static unsigned serial;

	serial++;
	w->p = fix_plan(f, NULL);
	w->log = fix_path(f, "%s/log%u", f->dir, serial);
	for (int i = 0; i < EIGHT; i++) {
		w->root[i] = fix_dir(f, fix_path(f, "w%u-%d", serial, i));
		put_text(fix_path(f, "%s/value", w->root[i]), "old\n");
	}
	for (int n = 0; n < EIGHT; n++) {
		int i = order[n];

		fix_add_child(f, w->p, w->root[i], "failer",
		              s->parent[i] < 0 ? NULL : w->root[s->parent[i]]);
		put_text(fix_path(f, "%s/value", fix_work(f, w->p, w->root[i])), "new\n");
	}
}

/* Which sandboxes VERB reached, in order; their number. */
static int read_log(struct fix *f, const char *log, const char *verb, int out[EIGHT])
{
	char *text = fix_keep(f, get_text(log));
	int n = 0;

	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char found[32], name[64];

		expect_eq(sscanf(line, "%31s %63s", found, name), 2);
		if (strcmp(found, verb) != 0)
			continue;
		expect(n < EIGHT);
		out[n++] = atoi(strchr(name, '-') + 1);
	}
	return n;
}

static int place(const int order[EIGHT], int n, int what)
{
	for (int i = 0; i < n; i++)
		if (order[i] == what)
			return i;
	return -1;
}

static void expect_bottom_up(const struct shape *s, const int order[EIGHT])
{
	for (int i = 0; i < EIGHT; i++)
		if (s->parent[i] >= 0)
			expect_msg(place(order, EIGHT, i) < place(order, EIGHT, s->parent[i]),
			           "%d came after its parent %d", i, s->parent[i]);
}

static void ord_01_children_commit_before_their_parents(void **state)
{
	struct fix *f = *state;
	uint64_t random = 11;

	for (int round = 0; round < ROUNDS; round++) {
		const struct shape *s = &shapes[round % 4];
		int order[EIGHT], seen[EIGHT];
		struct wood w;

		shuffle(s, &random, order);
		make_wood(f, s, order, &w);
		effect_log(w.log);
		expect_ok(f, atoll_plan_commit(w.p, 0, f->res));
		effect_log(NULL);
		expect_eq(read_log(f, w.log, "commit", seen), EIGHT);
		expect_bottom_up(s, seen);
		fix_forget(f, w.p);
	}
}

static void ord_02_undo_is_the_commit_order_backwards(void **state)
{
	struct fix *f = *state;
	uint64_t random = 22;

	for (int round = 0; round < 8; round++) {
		const struct shape *s = &shapes[round % 4];
		int order[EIGHT], done[EIGHT], undone[EIGHT], n;
		const char *last = fix_dir(f, fix_path(f, "z-%d", round));
		struct wood w;

		shuffle(s, &random, order);
		make_wood(f, s, order, &w);
		/* A `final` one comes last of all, so when it fails all the others are done. */
		fix_add(f, w.p, last, "final");
		put_text(fix_path(f, "%s/value", fix_work(f, w.p, last)), "new\n");
		failer_set(last, PHASE_COMMIT, FAIL_CODE, -EIO);
		effect_log(w.log);
		expect_code(f, atoll_plan_commit(w.p, ATOLL_ALLOW_PARTIAL, f->res), -EIO);
		effect_log(NULL);
		phase_clear();
		n = read_log(f, w.log, "commit", done);
		expect_eq(n, EIGHT);
		expect_eq(read_log(f, w.log, "undo", undone), EIGHT);
		expect_bottom_up(s, done);
		for (int i = 0; i < EIGHT; i++) {
			expect_eq(undone[i], done[EIGHT - 1 - i]);
			expect_text(fix_path(f, "%s/value", w.root[i]), "old\n");
		}
		fix_forget(f, w.p);
	}
}

/* The same for a rollback long after the commit, and for several batches. */
static void ord_02_rollback_is_the_commit_order_backwards(void **state)
{
	struct fix *f = *state;
	uint64_t random = 33;

	for (int round = 0; round < 4; round++) {
		const struct shape *s = &shapes[round];
		int order[EIGHT], done[EIGHT], undone[EIGHT];
		struct wood w;

		shuffle(s, &random, order);
		make_wood(f, s, order, &w);
		effect_log(w.log);
		expect_ok(f, atoll_plan_commit(w.p, 0, f->res));
		expect_ok(f, atoll_plan_rollback(w.p, 0, f->res));
		effect_log(NULL);
		expect_eq(read_log(f, w.log, "commit", done), EIGHT);
		expect_eq(read_log(f, w.log, "undo", undone), EIGHT);
		for (int i = 0; i < EIGHT; i++)
			expect_eq(undone[i], done[EIGHT - 1 - i]);
		fix_forget(f, w.p);
	}
}

/* ---- ORD-03: two sandboxes and one marker ---- */

struct marker {
	const char *path;
	const char *value;
	char *replaced; /* what it held before us */
};

static int set_marker(void *user, struct atoll_participant *p, enum phase phase)
{
	struct marker *m = user;

	(void)p;
	(void)phase;
	free(m->replaced);
	m->replaced = get_text(m->path);
	put_text(m->path, m->value);
	return 0;
}

static int put_marker_back(void *user, struct atoll_participant *p, enum phase phase)
{
	struct marker *m = user;

	(void)p;
	(void)phase;
	if (m->replaced)
		put_text(m->path, m->replaced);
	return 0;
}

static void ord_03_last_committed_first_undone(void **state)
{
	struct fix *f = *state;
	struct marker m[2] = { { .value = "one" }, { .value = "two" } };

	for (int way = 0; way < 2; way++) {
		struct atoll_plan *p = fix_plan(f, NULL);
		const char *marker = fix_path(f, "%s/marker%d", f->dir, way);
		const char *last = fix_dir(f, fix_path(f, "last%d", way));

		put_text(marker, "first");
		for (size_t i = 0; i < 2; i++) {
			const char *root = fix_dir(f, fix_path(f, "m%d-%zu", way, i));

			m[i].path = marker;
			fix_add(f, p, root, "failer");
			put_text(fix_path(f, "%s/value", fix_work(f, p, root)), "new\n");
			phase_hook(root, PHASE_COMMIT, set_marker, &m[i]);
			phase_hook(root, PHASE_UNDO, put_marker_back, &m[i]);
		}
		fix_add(f, p, last, "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, last)), "new\n");
		if (way == 0) { /* the batch itself fails */
			failer_set(last, PHASE_COMMIT, FAIL_CODE, -EIO);
			expect_code(f, atoll_plan_commit(p, 0, f->res), -EIO);
		} else {
			expect_ok(f, atoll_plan_commit(p, 0, f->res));
			expect_text(marker, "two");
			expect_ok(f, atoll_plan_rollback(p, 0, f->res));
		}
		expect_text(marker, "first");
		phase_clear();
	}
	free(m[0].replaced);
	free(m[1].replaced);
}

/* ---- ORD-04 ---- */

#define KINDS 4

static int see_copy(void *user, struct atoll_participant *p, enum phase phase)
{
	char *text = get_text(user);
	bool done = text && strcmp(text, "new\n") == 0;

	(void)p;
	(void)phase;
	free(text);
	return done ? 0 : -EPROTO;
}

/* What cannot be undone finds everything that can already done. */
static void try_permutation(struct fix *f, const int order[KINDS], int number)
{
	static const char *const kinds[KINDS] = { "none", "copy", "final", "failer" };
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root[KINDS], *log = fix_path(f, "%s/log%d", f->dir, number);
	int copy_at = -1, failer_at = -1, first_final = KINDS;

	for (int i = 0; i < KINDS; i++) {
		root[i] = fix_dir(f, fix_path(f, "p%d-%d", number, i));
		put_text(fix_path(f, "%s/value", root[i]), "old\n");
	}
	for (int i = 0; i < KINDS; i++) {
		int k = order[i];

		fix_add(f, p, root[k], kinds[k]);
		put_text(fix_path(f, "%s/value", fix_work(f, p, root[k])), "new\n");
	}
	phase_hook(root[2], PHASE_COMMIT, see_copy, fix_path(f, "%s/value", root[1]));
	phase_hook(root[2], PHASE_COMMIT, see_copy, fix_path(f, "%s/value", root[3]));
	effect_log(log);
	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res));
	effect_log(NULL);
	phase_clear();
	for (int i = 0; i < KINDS; i++) {
		const char *strategy = atoll_result_participant(f->res, (size_t)i)->strategy;

		if (strcmp(strategy, "copy") == 0)
			copy_at = i;
		else if (strcmp(strategy, "failer") == 0)
			failer_at = i;
		else if (i < first_final)
			first_final = i;
	}
	expect(copy_at < first_final && failer_at < first_final);
	expect(strstr(fix_keep(f, get_text(log)),
	              fix_path(f, "commit p%d-3\ncommit p%d-2\n", number, number)) != NULL);
	fix_forget(f, p);
}

static void ord_04_what_cannot_be_undone_comes_last(void **state)
{
	struct fix *f = *state;
	int number = 0;

	for (int code = 0; code < 256; code++) {
		const int order[KINDS] = { code & 3, (code >> 2) & 3, (code >> 4) & 3, code >> 6 };
		unsigned seen = 0;

		for (int i = 0; i < KINDS; i++)
			seen |= 1u << order[i];
		if (seen == 15)
			try_permutation(f, order, number++);
	}
	expect_eq(number, 24);
}

/* The two orders contradict each other: refused, and both are named (DER-19). */
static void der_19_a_final_child_of_an_undoable_parent_is_refused(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *parent = fix_dir(f, "parent-dir"), *child = fix_dir(f, "child-dir");
	char *before;

	put_text(fix_path(f, "%s/value", parent), "old\n");
	before = fix_keep(f, man_inodes(parent));
	fix_add(f, p, parent, "copy");
	fix_add_child(f, p, child, "none", parent);
	put_text(fix_path(f, "%s/value", fix_work(f, p, parent)), "new\n");
	expect_code(f, atoll_plan_commit(p, ATOLL_ALLOW_PARTIAL, f->res), -ATOLL_E_CANNOT_PREPARE);
	expect(strstr(atoll_result_message(f->res), parent) != NULL);
	expect(strstr(atoll_result_message(f->res), child) != NULL);
	expect_inodes(parent, before);
}

/* ---- ORD-05 ---- */

#define TWELVE 12

/* Names run backwards, and with twelve the ids' numbers sort differently as text. */
static void ord_05_creation_order_decides_among_equals(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root[TWELVE];

	for (int i = 0; i < TWELVE; i++) {
		root[i] = fix_dir(f, fix_path(f, "%c-dir", 'z' - i));
		fix_add(f, p, root[i], i % 2 ? "copy" : "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, root[i])), "new\n");
	}
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_eq(atoll_result_participants(f->res), TWELVE);
	for (size_t i = 0; i < TWELVE; i++)
		expect_str(atoll_result_participant(f->res, i)->root, root[i]);
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	expect_eq(atoll_result_participants(f->res), TWELVE);
	for (size_t i = 0; i < TWELVE; i++)
		expect_str(atoll_result_participant(f->res, i)->root, root[TWELVE - 1 - i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(ord_01_children_commit_before_their_parents),
		atest(ord_02_undo_is_the_commit_order_backwards),
		atest(ord_02_rollback_is_the_commit_order_backwards),
		atest(ord_03_last_committed_first_undone),
		atest(ord_04_what_cannot_be_undone_comes_last),
		atest(ord_05_creation_order_decides_among_equals),
		atest(der_19_a_final_child_of_an_undoable_parent_is_refused),
	};

	return atest_main(argc, argv, tests, NULL);
}
