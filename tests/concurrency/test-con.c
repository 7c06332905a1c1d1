/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules CON: threads and processes at one plan. Race windows are held open by gates, not by
 * sleeping; and CON-01 is shown to fail on a library that leaves the plan's lock out (TST-03).
 */
#include "lib/atest.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GATE_MS  60000
#define QUIET_MS 200 /* for "it waits": long enough that a call which does not would be done */

/* ---- a call in a thread of its own ---- */

struct call {
	struct fix *f;
	struct atoll_plan *p;
	int (*fn)(struct call *c);
	const char *root;
	struct atoll_result *res;
	pthread_t thread;
	atomic_bool done;
	int r;
};

static void *run_call(void *user)
{
	struct call *c = user;

	c->r = c->fn(c);
	atomic_store(&c->done, true);
	return NULL;
}

static void start_call(struct call *c, struct fix *f, struct atoll_plan *p,
                       int (*fn)(struct call *c))
{
	c->f = f;
	c->p = p;
	c->fn = fn;
	c->res = atoll_result_new();
	atomic_store(&c->done, false);
	expect_eq(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static int end_call(struct call *c)
{
	expect_eq(pthread_join(c->thread, NULL), 0);
	return c->r;
}

static void free_call(struct call *c)
{
	atoll_result_free(c->res);
	c->res = NULL;
}

static int call_commit(struct call *c)
{
	return atoll_plan_commit(c->p, 0, c->res);
}

static int call_rollback(struct call *c)
{
	return atoll_plan_rollback(c->p, 0, c->res);
}

static int call_stop(struct call *c)
{
	return atoll_plan_stop(c->p, ATOLL_FORCE, c->res);
}

static int call_add(struct call *c)
{
	const struct atoll_resource resource = { .root = c->root, .strategy = "failer" };

	return atoll_plan_add(c->p, &resource, c->res);
}

/* How many participants have that outcome. */
static size_t outcomes(const struct atoll_result *res, enum atoll_outcome o)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_participants(res); i++)
		n += atoll_result_participant(res, i)->outcome == o;
	return n;
}

/* ---- a plan with a gate in it ---- */

struct gated {
	struct atoll_plan *p;
	const char *copy, *custom;
	char *before;
	const char *counter; /* one letter for every time the change is applied */
	struct gate *g;
};

static int count_apply(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	append_text(user, "x");
	return 0;
}

static void make_gated(struct fix *f, const char *name, enum phase phase, struct gated *t)
{
	t->p = fix_plan(f, name);
	t->copy = fix_dir(f, fix_path(f, "%s-copy", name));
	t->custom = fix_dir(f, fix_path(f, "%s-custom", name));
	t->counter = fix_path(f, "%s/%s-counter", f->dir, name);
	put_text(t->counter, "");
	put_text(fix_path(f, "%s/file", t->copy), "old\n");
	put_text(fix_path(f, "%s/value", t->custom), "old\n");
	fix_add(f, t->p, t->copy, "copy");
	fix_add(f, t->p, t->custom, "gate");
	put_text(fix_path(f, "%s/file", fix_work(f, t->p, t->copy)), "new\n");
	put_text(fix_path(f, "%s/value", fix_work(f, t->p, t->custom)), "new\n");
	t->before = fix_keep(f, man_take(t->copy));
	phase_hook(t->custom, PHASE_COMMIT, count_apply, fix_path(f, "%s", t->counter));
	t->g = gate_set(t->custom, phase);
}

static void expect_new(struct fix *f, const struct gated *t)
{
	expect_text(fix_path(f, "%s/file", t->copy), "new\n");
	expect_text(fix_path(f, "%s/value", t->custom), "new\n");
}

static void expect_old(struct fix *f, const struct gated *t)
{
	expect_man(t->copy, t->before);
	expect_text(fix_path(f, "%s/value", t->custom), "old\n");
}

/* ---- CON-01 ---- */

#define EIGHT 8

/* Is one of N calls done that should wait? Where nothing makes them, one is to be seen, however slow. */
static bool any_done(struct call *calls, size_t n)
{
	const char *broken = getenv("ATOLL_SABOTAGE");
	int64_t until = now_ms() + (broken && strstr(broken, "plan-lock") ? GATE_MS : QUIET_MS);
	bool found = false;

	while (!found && now_ms() < until) {
		sleep_ms(5);
		for (size_t i = 0; i < n; i++)
			found = found || atomic_load(&calls[i].done);
	}
	return found;
}

static void commit_from_nine_threads(struct fix *f, const char *name)
{
	struct call first = { 0 }, more[EIGHT] = { { 0 } };
	struct gated t;
	size_t applied = 0;

	make_gated(f, name, PHASE_COMMIT, &t);
	start_call(&first, f, t.p, call_commit);
	expect(gate_wait(t.g, GATE_MS));
	for (size_t i = 0; i < EIGHT; i++)
		start_call(&more[i], f, t.p, call_commit);
	expect(!any_done(more, EIGHT));
	gate_open(t.g);
	expect_eq(end_call(&first), 0);
	expect_eq(outcomes(first.res, ATOLL_OUTCOME_COMMITTED), 2);
	for (size_t i = 0; i < EIGHT; i++) {
		expect_eq(end_call(&more[i]), 0);
		applied += outcomes(more[i].res, ATOLL_OUTCOME_COMMITTED);
		free_call(&more[i]);
	}
	expect_eq(applied, 0);
	expect_text(t.counter, "x");
	expect_new(f, &t);
	free_call(&first);
	gate_free(t.g);
}

static void con_01_one_batch_owns_its_plan(void **state)
{
	commit_from_nine_threads(*state, "nine");
}

static int child_con_01(const char *dir, const char *arg)
{
	struct fix *f = calloc(1, sizeof(*f));

	fix_attach(f, dir);
	commit_from_nine_threads(f, arg);
	fix_detach(f);
	free(f);
	return 0;
}

/*
 * A gate held open is all it takes: without the plan's lock it fails every time, not now and then.
 * A commit holds its resources' locks too, which alone would keep two batches of one plan apart, so
 * they have to go as well; that they are not what keeps CON-01, the first child shows.
 */
static void tst_03_con_01_fails_without_the_plan_lock(void **state)
{
	static const char *const one_lock[] = { "ATOLL_SABOTAGE=resource-lock", NULL };
	/* What a thread sanitizer would say of the broken one is not news. */
	static const char *const no_lock[] = { "ATOLL_SABOTAGE=plan-lock,resource-lock",
		                               "TSAN_OPTIONS=report_bugs=0", NULL };
	struct fix *f = *state;
	const char *built = getenv("ATOLL_TEST_SABOTAGE");

	if (!built || strcmp(built, "1") != 0)
		atest_skip("the library was not built with -Dsabotage=true");
	expect_eq(child_run(f, "con_01", "one-lock", one_lock), 0);
	for (int i = 0; i < 5; i++)
		expect_eq(child_run(f, "con_01", fix_path(f, "no-lock%d", i), no_lock),
		          CHILD_FAILED);
}

/* ---- CON-02 ---- */

static void con_02_other_operations_wait_for_the_batch(void **state)
{
	static int (*const others[])(struct call *) = { call_rollback, call_stop };
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT,
		                             PHASE_FINISH };
	struct fix *f = *state;

	for (size_t i = 0; i < 8; i++) {
		struct call commit = { 0 }, other = { 0 };
		struct gated t;

		make_gated(f, fix_path(f, "two%zu", i), phases[i % 4], &t);
		start_call(&commit, f, t.p, call_commit);
		expect(gate_wait(t.g, GATE_MS));
		start_call(&other, f, t.p, others[i / 4]);
		sleep_ms(QUIET_MS);
		expect(!atomic_load(&other.done));
		expect(!atomic_load(&commit.done));
		gate_open(t.g);
		expect_eq(end_call(&commit), 0);
		expect_eq(end_call(&other), 0);
		if (i / 4 == 0) {
			expect_old(f, &t); /* all new, then all back */
			expect_eq(fix_plan_state(f, t.p), ATOLL_PLAN_ROLLED_BACK);
		} else {
			expect_new(f, &t); /* all new, then stopped */
			expect_code(f, atoll_plan_commit(t.p, 0, f->res), -ATOLL_E_NOT_FOUND);
		}
		free_call(&commit);
		free_call(&other);
		gate_free(t.g);
		phase_clear();
	}
}

/* ---- CON-03 ---- */

static void con_03_a_newcomer_is_wholly_in_or_wholly_out(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK, PHASE_COMMIT,
		                             PHASE_FINISH };
	struct fix *f = *state;

	for (size_t i = 0; i < 4; i++) {
		const char *late = fix_dir(f, fix_path(f, "late%zu", i));
		struct call commit = { 0 }, add = { .root = late };
		struct gated t;

		make_gated(f, fix_path(f, "three%zu", i), phases[i], &t);
		put_text(fix_path(f, "%s/value", late), "old\n");
		start_call(&commit, f, t.p, call_commit);
		expect(gate_wait(t.g, GATE_MS));
		start_call(&add, f, t.p, call_add);
		sleep_ms(QUIET_MS / 2);
		gate_open(t.g);
		expect_eq(end_call(&commit), 0);
		expect_eq(end_call(&add), 0);
		expect_eq(atoll_result_participants(commit.res), 2);
		expect_text(fix_path(f, "%s/value", late), "old\n");
		expect_eq(fix_state(f, t.p, late), ATOLL_SANDBOX_CREATED);
		expect_new(f, &t);
		free_call(&commit);
		free_call(&add);
		gate_free(t.g);
		phase_clear();
	}
}

static int call_add_and_edit(struct call *c)
{
	char *work = NULL, path[PATH_MAX];
	int r = call_add(c);

	if (r == 0)
		r = atoll_sandbox_path(c->p, c->root, &work, c->res);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/value", work);
	free(work);
	put_text(path, "new\n");
	return 0;
}

static bool listed(const struct atoll_result *res, const char *root, enum atoll_outcome o)
{
	for (size_t i = 0; i < atoll_result_participants(res); i++) {
		const struct atoll_participant_result *row = atoll_result_participant(res, i);

		if (strcmp(row->root, root) == 0)
			return row->outcome == o;
	}
	return false;
}

static void remove_dir_of(struct fix *f, const char *name)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	if (exists(path))
		remove_entry(path);
}

static const char *temporary(struct fix *f, char *out, const char *name)
{
	remove_dir_of(f, name);
	(void)snprintf(out, PATH_MAX, "%.4000s/%s", f->dir, name);
	put_dir(out, 0755);
	return out;
}

#define EARLIEST_US 100
#define LATEST_US   10000000

/* The commit begins up to MOST_US after the newcomer. true: that one was in the batch. */
static bool one_random_round(struct fix *f, uint64_t *random, uint32_t most_us)
{
	char first_dir[PATH_MAX], late_dir[PATH_MAX], path[PATH_MAX + 16];
	const char *first = temporary(f, first_dir, "first"),
		   *late = temporary(f, late_dir, "late");
	struct call commit = { 0 }, add = { .root = late };
	struct atoll_plan *p = fix_plan(f, NULL);
	char *work = NULL, *text;
	bool in;

	fix_add(f, p, first, "failer");
	expect_ok(f, atoll_sandbox_path(p, first, &work, f->res));
	(void)snprintf(path, sizeof(path), "%s/value", work);
	free(work);
	put_text(path, "new\n");
	start_call(&add, f, p, call_add_and_edit);
	(void)usleep((useconds_t)(atest_random(random) % most_us));
	start_call(&commit, f, p, call_commit);
	expect_eq(end_call(&commit), 0);
	expect_eq(end_call(&add), 0);

	/* In the result with its change, or its resource untouched. */
	in = listed(commit.res, late, ATOLL_OUTCOME_COMMITTED);
	(void)snprintf(path, sizeof(path), "%s/value", late);
	text = get_text(path);
	expect_eq(in, text != NULL);
	free(text);
	expect(listed(commit.res, first, ATOLL_OUTCOME_COMMITTED));
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	expect(!exists(path));
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	fix_forget(f, p);
	free_call(&commit);
	free_call(&add);
	return in;
}

static void con_03_random_rounds(void **state)
{
	struct fix *f = *state;
	uint64_t random = 303;
	int rounds = atest_long() ? 10000 : 300;
	uint32_t most_us = 20000;
	int in = 0;

	for (int i = 0; i < rounds; i++) {
		bool was_in = one_random_round(f, &random, most_us);

		in += was_in;
		/* Towards the moment in which it changes, wherever that is on this machine. */
		if (was_in)
			most_us -= most_us / 8;
		else if (most_us < LATEST_US)
			most_us += most_us / 16 + 1;
		most_us = most_us < EARLIEST_US ? EARLIEST_US : most_us;
	}
	print_message("# %d of %d were in, at the end within %u us\n", in, rounds, most_us);
	/* Else one of the two was never tried. */
	expect(in > 0 && in < rounds);
}

/* ---- CON-04 ---- */

static int count_plan(void *user, const struct atoll_plan_info *info)
{
	(void)info;
	(*(size_t *)user)++;
	return 0;
}

/* The order of events, not the clock: everything on B ends while A stands at its gate. */
static void con_04_other_plans_go_on(void **state)
{
	struct fix *f = *state;
	const char *other = fix_dir(f, "other");
	struct call commit = { 0 };
	struct atoll_plan *b;
	size_t plans = 0;
	struct gated t;

	make_gated(f, "slow", PHASE_COMMIT, &t);
	start_call(&commit, f, t.p, call_commit);
	expect(gate_wait(t.g, GATE_MS));
	atoll_set_wait(f->a, 60000);
	b = fix_plan(f, "quick");
	fix_add(f, b, other, "copy");
	put_text(fix_path(f, "%s/x", fix_work(f, b, other)), "x\n");
	expect_ok(f, atoll_plan_commit(b, 0, f->res));
	expect_ok(f, atoll_plan_rollback(b, 0, f->res));
	expect_ok(f, atoll_plan_list(f->a, count_plan, &plans, f->res));
	expect_eq(plans, 2);
	expect_ok(f, atoll_plan_stop(b, ATOLL_FORCE, f->res));
	/* Readers of A itself do not wait either. */
	expect_eq(fix_plan_state(f, t.p), ATOLL_PLAN_DECIDED);
	expect(atoll_plan_diff(t.p, NULL, NULL, f->res) >= 0);
	expect(!atomic_load(&commit.done));
	gate_open(t.g);
	expect_eq(end_call(&commit), 0);
	expect_new(f, &t);
	free_call(&commit);
	gate_free(t.g);
}

/* A diff takes no lock: of a plan that is stopped meanwhile it says so, and not what it stumbled over. */
static int stop_meanwhile(void *user, struct atoll_participant *p, enum phase phase)
{
	struct fix *f = user;

	(void)p;
	(void)phase;
	phase_clear();
	expect_ok(f, atoll_plan_stop(fix_find(f, "short"), ATOLL_FORCE, f->res));
	return -ENOENT; /* as somebody who looks for what is gone */
}

static void con_04_a_look_at_a_plan_that_goes(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");

	for (int form = 0; form < 2; form++) {
		struct atoll_result *res = atoll_result_new();
		struct atoll_plan *p = fix_plan(f, "short");
		char digest[ATOLL_DIGEST_LEN];

		fix_add(f, p, root, "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, root)), "new\n");
		phase_hook(root, PHASE_DIFF, stop_meanwhile, f);
		if (form == 0)
			expect_eq(atoll_plan_diff(p, NULL, NULL, res), -ATOLL_E_NOT_FOUND);
		else
			expect_eq(atoll_plan_digest(p, digest, res), -ATOLL_E_NOT_FOUND);
		expect_msg(strstr(atoll_result_message(res), "no plan") != NULL, "%s",
		           atoll_result_message(res));
		atoll_result_free(res);
	}
}

struct growing {
	struct fix *f;
	int left, done; /* times */
};

static int add_meanwhile(void *user, struct atoll_participant *p, enum phase phase)
{
	struct growing *g = user;

	(void)p;
	(void)phase;
	if (g->left == 0)
		return 0;
	g->left--;
	fix_add(g->f, fix_find(g->f, "moving"), fix_dir(g->f, fix_path(g->f, "more%d", g->done++)),
	        "failer");
	return -ENOENT;
}

/* A digest is one of all that is there: it looks again, and not for ever. */
static void con_04_a_digest_of_what_is_changed_meanwhile(void **state)
{
	struct fix *f = *state;
	struct growing g = { .f = f, .left = 1 };
	const char *root = fix_dir(f, "root");
	struct atoll_result *res = atoll_result_new();
	struct atoll_plan *p = fix_plan(f, "moving");
	char digest[ATOLL_DIGEST_LEN];

	fix_add(f, p, root, "failer");
	put_text(fix_path(f, "%s/value", fix_work(f, p, root)), "new\n");
	phase_hook(root, PHASE_DIFF, add_meanwhile, &g);
	expect_eq(atoll_plan_digest(p, digest, res), 0);
	expect_eq(g.done, 1);
	g.left = 1000;
	expect_eq(atoll_plan_digest(p, digest, res), -EAGAIN);
	expect(g.done > 10 && g.left > 900);
	phase_clear();
	atoll_result_free(res);
}

/* ---- CON-05 ---- */

static struct atoll_plan *calling_back;

static int call_back(void *user, struct atoll_participant *p, enum phase phase)
{
	int *seen = user;
	char *path = NULL;

	(void)p;
	(void)phase;
	seen[0] = atoll_plan_commit(calling_back, 0, NULL);
	seen[1] = atoll_plan_rollback(calling_back, 0, NULL);
	seen[2] = atoll_plan_stop(calling_back, 0, NULL);
	seen[3] = atoll_sandbox_path(calling_back, NULL, &path, NULL);
	free(path);
	return 0;
}

static void con_05_calling_back_into_the_own_plan_is_told(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_COMMIT, PHASE_FINISH };
	struct fix *f = *state;

	for (size_t i = 0; i < 3; i++) {
		const char *root = fix_dir(f, fix_path(f, "r%zu", i));
		int seen[4] = { 0 };

		calling_back = fix_plan(f, NULL);
		fix_add(f, calling_back, root, "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, calling_back, NULL)), "new\n");
		phase_hook(root, phases[i], call_back, seen);
		expect_ok(f, atoll_plan_commit(calling_back, 0, f->res));
		phase_clear();
		for (size_t j = 0; j < 4; j++)
			expect_eq(seen[j], -ATOLL_E_WOULD_DEADLOCK);
		expect_text(fix_path(f, "%s/value", root), "new\n");
	}
}

#define MIX_PLANS   4
#define MIX_THREADS 16

struct mix {
	struct fix *f;
	const char *root[MIX_PLANS][2];
	atomic_bool stop;
	atomic_ulong calls;
	atomic_int bad; /* first answer that is none of the expected */
	char why[512];  /* whoever set it writes its words here */
};

struct mixer {
	struct mix *m;
	uint64_t random;
	pthread_t thread;
};

/* Stopped under us, taken in the same moment, moved by another plan, written faster than it can be
 * read (a diff takes no lock): all fine. */
static bool is_fine(int64_t r)
{
	return r >= 0 || r == -EAGAIN || r == -ATOLL_E_NOT_FOUND || r == -ATOLL_E_EXISTS ||
	       r == -ATOLL_E_STATE || r == -ATOLL_E_CONFLICT || r == -ATOLL_E_TIMEOUT ||
	       r == -ATOLL_E_BUSY;
}

static int mix_edit(struct atoll_plan *p, const char *root, uint32_t number,
                    struct atoll_result *res)
{
	char *work = NULL, path[PATH_MAX], text[32];
	FILE *out;
	int r = atoll_sandbox_path(p, root, &work, res);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/value", work);
	(void)snprintf(text, sizeof(text), "%u\n", number);
	free(work);
	out = fopen(path, "we"); /* may be gone: another thread's rollback took it */
	if (out) {
		(void)fputs(text, out);
		(void)fclose(out);
	}
	return 0;
}

static int64_t mix_call(struct mix *m, struct atoll_plan *p, const char *const *roots,
                        uint32_t random, struct atoll_result *res)
{
	struct atoll_resource resource = { .root = roots[random % 2],
		                           .strategy = random & 64 ? "copy" : "failer" };
	size_t n = 0;

	switch (random / 2 % 10) {
	case 0:
	case 1:
		return atoll_plan_add(p, &resource, res);
	case 2:
	case 3:
		return mix_edit(p, roots[random % 2], random, res);
	case 4:
		return atoll_plan_commit(p, 0, res);
	case 5:
		return atoll_plan_rollback(p, 0, res);
	case 6:
		return atoll_plan_reset(p, res);
	case 7:
		return atoll_plan_diff(p, NULL, NULL, res);
	case 8:
		return atoll_plan_list(m->f->a, count_plan, &n, res);
	default:
		return random % 5 ? atoll_recover(m->f->a, NULL, false, res)
		                  : atoll_plan_stop(p, ATOLL_FORCE, res);
	}
}

static void *mix_run(void *user)
{
	struct mixer *x = user;
	struct mix *m = x->m;
	struct atoll_result *res = atoll_result_new();

	while (!atomic_load(&m->stop)) {
		uint32_t random = atest_random(&x->random);
		unsigned which = random % MIX_PLANS;
		struct atoll_plan *p = NULL;
		char name[16];
		int64_t r;

		(void)snprintf(name, sizeof(name), "mix%u", which);
		r = atoll_plan_start(m->f->a, name, ATOLL_START_OR_OPEN, &p, res);
		if (r >= 0)
			r = mix_call(m, p, m->root[which], atest_random(&x->random), res);
		atoll_plan_free(p);
		atomic_fetch_add(&m->calls, 1);
		if (!is_fine(r)) {
			int none = 0;

			if (atomic_compare_exchange_strong(&m->bad, &none, (int)r))
				(void)snprintf(m->why, sizeof(m->why), "%s",
				               atoll_result_message(res));
		}
	}
	atoll_result_free(res);
	return NULL;
}

/* Calls must go on being finished: a lock taken in the wrong order would stop them. */
static bool watch(struct mix *m, int seconds)
{
	unsigned long last = 0;
	int idle = 0;

	for (int i = 0; i < seconds * 10 && idle < 300; i++) {
		unsigned long now = atomic_load(&m->calls);

		sleep_ms(100);
		idle = now == last ? idle + 1 : 0;
		last = now;
		if (idle > 0)
			i--; /* only time in which something happened counts */
	}
	return idle < 300;
}

static void con_05_a_random_mix_never_stops(void **state)
{
	struct fix *f = *state;
	struct mix *m = calloc(1, sizeof(*m));
	struct mixer x[MIX_THREADS];
	bool moving;

	expect(m != NULL);
	m->f = f;
	for (unsigned i = 0; i < MIX_PLANS; i++) {
		/* The second resource of each plan is another's first: they meet there. */
		m->root[i][0] = fix_dir(f, fix_path(f, "m%u", i));
		m->root[(i + 1) % MIX_PLANS][1] = m->root[i][0];
		put_text(fix_path(f, "%s/value", m->root[i][0]), "first\n");
	}
	for (unsigned i = 0; i < MIX_THREADS; i++) {
		x[i] = (struct mixer){ .m = m, .random = 1000 + i };
		expect_eq(pthread_create(&x[i].thread, NULL, mix_run, &x[i]), 0);
	}
	moving = watch(m, atest_long() ? 60 : 5);
	atomic_store(&m->stop, true);
	if (!moving) { /* they would never come back */
		fprintf(stderr, "no call ended for 30 s\n");
		abort();
	}
	for (unsigned i = 0; i < MIX_THREADS; i++)
		expect_eq(pthread_join(x[i].thread, NULL), 0);
	expect(atomic_load(&m->calls) > MIX_THREADS);
	expect_msg(atomic_load(&m->bad) == 0, "an operation answered %s: %s",
	           atoll_code_name(atomic_load(&m->bad)), m->why);
	expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
	free(m);
}

/* ---- lock files that go ---- */

#define PASSERS       8
#define PASSER_ROUNDS 25

struct passage {
	struct fix *f;
	const char *root;
	_Atomic int inside, met, bad;
};

struct passer {
	struct passage *g;
	unsigned number;
	pthread_t thread;
};

/* In the middle of a commit: nobody else may be there. */
static int pass(void *user, struct atoll_participant *p, enum phase phase)
{
	struct passage *g = user;

	(void)p;
	(void)phase;
	if (atomic_fetch_add(&g->inside, 1) != 0)
		atomic_fetch_add(&g->met, 1);
	sleep_ms(1);
	atomic_fetch_sub(&g->inside, 1);
	return 0;
}

/* A plan that comes, commits and goes, and with it, when it was the last one, the lock's file. */
static void *come_and_go(void *user)
{
	struct passer *x = user;
	struct passage *g = x->g;
	const struct atoll_resource resource = { .root = g->root, .strategy = "failer" };

	for (unsigned i = 0; i < PASSER_ROUNDS; i++) {
		struct atoll_plan *p = NULL;
		char name[16];
		int r;

		(void)snprintf(name, sizeof(name), "pass%u", x->number);
		r = atoll_plan_start(g->f->a, name, 0, &p, NULL);
		if (r >= 0)
			r = atoll_plan_add(p, &resource, NULL);
		if (r >= 0)
			r = mix_edit(p, g->root, x->number * PASSER_ROUNDS + i, NULL);
		if (r >= 0)
			r = atoll_plan_commit(p, 0, NULL);
		if (r >= 0)
			r = atoll_plan_stop(p, ATOLL_FORCE, NULL);
		if (i % 8 == x->number)
			(void)atoll_purge(g->f->a, 0, NULL);
		atoll_plan_free(p);
		if (r < 0)
			atomic_store(&g->bad, r);
	}
	return NULL;
}

static size_t count_locks(struct fix *f, const char *suffix)
{
	DIR *d = opendir(fix_path(f, "%s/locks", f->home));
	const struct dirent *e;
	size_t n = 0;

	expect(d != NULL);
	while (d && (e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		n += dot && strcmp(dot, suffix) == 0;
	}
	if (d)
		(void)closedir(d);
	return n;
}

static void lock_files_go_and_nobody_meets(void **state)
{
	struct fix *f = *state;
	struct passage g = { .f = f, .root = fix_dir(f, "narrow") };
	struct passer x[PASSERS];

	put_text(fix_path(f, "%s/value", g.root), "first\n");
	phase_hook(g.root, PHASE_PREPARE, pass, &g);
	for (unsigned i = 0; i < PASSERS; i++) {
		x[i] = (struct passer){ .g = &g, .number = i };
		expect_eq(pthread_create(&x[i].thread, NULL, come_and_go, &x[i]), 0);
	}
	for (unsigned i = 0; i < PASSERS; i++)
		expect_eq(pthread_join(x[i].thread, NULL), 0);
	expect_eq(atomic_load(&g.met), 0);
	expect_msg(atomic_load(&g.bad) == 0, "an operation answered %s",
	           atoll_code_name(atomic_load(&g.bad)));
	expect_eq(count_locks(f, ".res"), 0);
	expect_eq(count_locks(f, ".plan"), 0);
}

/* ---- CON-06 ---- */

static void con_06_sixteen_committers_and_one_commit(void **state)
{
	struct fix *f = *state;

	for (unsigned round = 0; round < 5; round++) {
		struct call c[16] = { { 0 } };
		const char *root = fix_dir(f, fix_path(f, "r%u", round));
		const char *counter = fix_path(f, "%s/counter%u", f->dir, round);
		struct atoll_plan *p = fix_plan(f, NULL);
		size_t applied = 0;

		put_text(counter, "");
		fix_add(f, p, root, "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, NULL)), "new\n");
		phase_hook(root, PHASE_COMMIT, count_apply, fix_path(f, "%s", counter));
		for (size_t i = 0; i < 16; i++)
			start_call(&c[i], f, p, call_commit);
		for (size_t i = 0; i < 16; i++) {
			expect_eq(end_call(&c[i]), 0);
			applied += outcomes(c[i].res, ATOLL_OUTCOME_COMMITTED);
			free_call(&c[i]);
		}
		expect_eq(applied, 1);
		expect_text(counter, "x");
		phase_clear();
	}
}

/* ---- CON-07 ---- */

static int child_stop(const char *dir, const char *arg)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct atoll_plan *p;
	char path[PATH_MAX + 16];

	fix_attach(f, dir);
	p = fix_find(f, arg);
	(void)snprintf(path, sizeof(path), "%s/trying", dir);
	put_text(path, "");
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	fix_detach(f);
	free(f);
	return 0;
}

static bool wait_for_file(const char *path, int ms)
{
	int64_t until = now_ms() + ms;

	while (!exists(path) && now_ms() < until)
		sleep_ms(5);
	return exists(path);
}

static void con_07_stop_from_another_process_waits(void **state)
{
	struct fix *f = *state;
	struct call commit = { 0 };
	char *path = NULL;
	struct gated t;
	int status;
	pid_t pid;

	make_gated(f, "shared", PHASE_COMMIT, &t);
	start_call(&commit, f, t.p, call_commit);
	expect(gate_wait(t.g, GATE_MS));
	pid = child_start(f, "stop", "shared", NULL);
	expect(wait_for_file(fix_path(f, "%s/trying", f->dir), GATE_MS));
	sleep_ms(QUIET_MS);
	expect_eq(waitpid(pid, &status, WNOHANG), 0);
	expect(!atomic_load(&commit.done));
	gate_open(t.g);
	expect_eq(end_call(&commit), 0);
	expect_eq(child_wait(pid), 0);
	expect_new(f, &t);
	/* Our handle outlives the plan and knows. */
	expect_code(f, atoll_plan_commit(t.p, 0, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, atoll_plan_rollback(t.p, 0, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, atoll_sandbox_path(t.p, t.copy, &path, f->res), -ATOLL_E_NOT_FOUND);
	expect_eq(atoll_plan_diff(t.p, NULL, NULL, f->res), -ATOLL_E_NOT_FOUND);
	expect_str(atoll_plan_name(t.p), "shared");
	free_call(&commit);
	gate_free(t.g);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "con_01", child_con_01 },
		                                       { "stop", child_stop },
		                                       { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		atest(con_01_one_batch_owns_its_plan),
		atest(tst_03_con_01_fails_without_the_plan_lock),
		atest(con_02_other_operations_wait_for_the_batch),
		atest(con_03_a_newcomer_is_wholly_in_or_wholly_out),
		atest(con_03_random_rounds),
		atest(con_04_other_plans_go_on),
		atest(con_04_a_look_at_a_plan_that_goes),
		atest(con_04_a_digest_of_what_is_changed_meanwhile),
		atest(con_05_calling_back_into_the_own_plan_is_told),
		atest(con_05_a_random_mix_never_stops),
		atest(lock_files_go_and_nobody_meets),
		atest(con_06_sixteen_committers_and_one_commit),
		atest(con_07_stop_from_another_process_waits),
	};

	return atest_main(argc, argv, tests, children);
}
