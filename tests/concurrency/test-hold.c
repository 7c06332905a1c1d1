/* SPDX-License-Identifier: Apache-2.0 */
/* A plan held across several operations: who is in, who waits, and who lets go. */
#include "lib/atest.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct atoll_plan *make_plan(struct fix *f, const char **ret_root)
{
	struct atoll_plan *p = fix_plan(f, "held");
	const char *root = fix_dir(f, "root");

	put_text(fix_path(f, "%s/n", root), "0\n");
	fix_add(f, p, root, NULL);
	*ret_root = root;
	return p;
}

static int run(struct atoll_plan *p, const char *root, const char *script, struct atoll_result *res)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = root };
	struct atoll_exec_status status = { 0 };
	int r = atoll_plan_exec(p, &exec, &status, res);

	return r < 0 ? r : status.exit_code;
}

struct work {
	struct fix *f;
	struct atoll_plan *p;
	const char *root;
	struct atoll_result *res;
	int rounds;
	int r;
};

/* Every operation that one cycle of a remote session makes. */
static void *one_of_each(void *user)
{
	struct work *w = user;

	w->r = run(w->p, w->root, "echo 1 >n; echo x >>x", w->res);
	if (w->r == 0 && atoll_plan_diff(w->p, NULL, NULL, w->res) != 2)
		w->r = -1;
	if (w->r == 0)
		w->r = atoll_plan_commit(w->p, ATOLL_NO_UNDO, w->res);
	if (w->r == 0)
		w->r = run(w->p, w->root, "echo 2 >n", w->res);
	if (w->r == 0)
		w->r = atoll_plan_reset(w->p, w->res);
	return NULL;
}

static void sto_04_operations_use_the_lock_that_is_held(void **state)
{
	struct fix *f = *state;
	struct work w = { .f = f, .res = atoll_result_new() };
	struct atoll_plan *other;
	pthread_t thread;

	w.p = make_plan(f, &w.root);
	other = fix_find(f, "held");
	expect_ok(f, atoll_plan_hold(w.p, "laptop 812", -1, f->res));
	atoll_set_wait(f->a, 0); /* whoever waits for itself is told at once */
	(void)one_of_each(&w);
	expect_msg(w.r == 0, "%s", atoll_result_message(w.res));
	expect_eq(pthread_create(&thread, NULL, one_of_each, &w), 0);
	expect_eq(pthread_join(thread, NULL), 0);
	expect_msg(w.r == 0, "%s", atoll_result_message(w.res));
	expect_text(fix_path(f, "%s/n", w.root), "1\n");

	expect_code(f, atoll_plan_reset(other, f->res), -ATOLL_E_BUSY);
	expect_msg(strstr(atoll_result_message(f->res), "atoll hold held -- laptop 812") != NULL,
	           "%s", atoll_result_message(f->res));
	expect_code(f, atoll_plan_hold(other, NULL, -1, f->res), -ATOLL_E_BUSY);
	expect_ok(f, atoll_plan_let_go(w.p, f->res));
	expect_ok(f, atoll_plan_reset(other, f->res));
	expect_ok(f, atoll_plan_reset(w.p, f->res));
	atoll_result_free(w.res);
}

static void sto_05_a_hold_ends_once(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p, *q;
	const char *root;
	size_t fds;

	p = make_plan(f, &root);
	q = fix_find(f, "held");
	atoll_set_wait(f->a, 0);
	expect_ok(f, atoll_plan_reset(p, f->res));
	fds = count_fds();
	expect_code(f, atoll_plan_let_go(p, f->res), -ATOLL_E_STATE);
	expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
	expect_code(f, atoll_plan_hold(p, NULL, -1, f->res), -ATOLL_E_WOULD_DEADLOCK);
	/* Who does not hold it cannot let go of it. */
	expect_code(f, atoll_plan_let_go(q, f->res), -ATOLL_E_STATE);
	expect_code(f, atoll_plan_reset(q, f->res), -ATOLL_E_BUSY);
	/* Failures of what is done meanwhile do not. */
	expect_eq(run(p, root, "exit 3", f->res), 3);
	expect_eq(run(p, root, "kill -9 $$", f->res), 137);
	expect_code(f, atoll_plan_add(p, &(struct atoll_resource){ .root = "/nowhere" }, f->res),
	            -ENOENT);
	expect_code(f, atoll_plan_reset(q, f->res), -ATOLL_E_BUSY);
	expect_ok(f, atoll_plan_let_go(p, f->res));
	expect_code(f, atoll_plan_let_go(p, f->res), -ATOLL_E_STATE);
	expect_ok(f, atoll_plan_reset(q, f->res));
	expect_eq(count_fds(), fds);

	/* Freed, and stopped. */
	expect_ok(f, atoll_plan_hold(q, NULL, -1, f->res));
	expect_code(f, atoll_plan_reset(p, f->res), -ATOLL_E_BUSY);
	fix_forget(f, q);
	expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	expect_code(f, atoll_plan_reset(p, f->res), -ATOLL_E_NOT_FOUND);
	expect_ok(f, atoll_plan_let_go(p, f->res));
	expect_eq(count_fds(), fds);
}

static int let_go_within(void *user, struct atoll_participant *part, enum phase phase)
{
	struct work *w = user;

	(void)part;
	(void)phase;
	w->r = atoll_plan_let_go(w->p, w->res);
	return 0;
}

static void con_a_strategy_cannot_end_the_hold_it_works_under(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "custom");
	struct work w = { .f = f, .p = fix_plan(f, "held"), .res = atoll_result_new() };

	put_text(fix_path(f, "%s/value", root), "old\n");
	fix_add(f, w.p, root, "failer");
	put_text(fix_path(f, "%s/value", fix_work(f, w.p, root)), "new\n");
	phase_hook(root, PHASE_COMMIT, let_go_within, &w);
	expect_ok(f, atoll_plan_hold(w.p, NULL, -1, f->res));
	expect_ok(f, atoll_plan_commit(w.p, 0, f->res));
	expect_eq(w.r, -ATOLL_E_WOULD_DEADLOCK);
	expect_ok(f, atoll_plan_let_go(w.p, f->res));
	expect_text(fix_path(f, "%s/value", root), "new\n");
	atoll_result_free(w.res);
}

/* ---- threads ---- */

#define THREADS 6
#define ROUNDS  5

static void *count_up(void *user)
{
	struct work *w = user;

	for (int i = 0; w->r == 0 && i < w->rounds; i++) {
		w->r = run(w->p, w->root, "n=$(cat n); sleep 0.01; echo $((n + 1)) >n", w->res);
		if (w->r == 0)
			w->r = atoll_plan_commit(w->p, ATOLL_NO_UNDO, w->res);
	}
	return NULL;
}

/* Half of them through the handle that holds, half through one of their own. */
static void der_15_threads_under_a_hold_and_beside_it(void **state)
{
	struct fix *f = *state;
	struct work w[THREADS];
	pthread_t thread[THREADS];
	struct atoll_plan *p;
	const char *root;

	p = make_plan(f, &root);
	expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct work){ .f = f,
			              .p = i % 2 ? fix_find(f, "held") : p,
			              .root = root,
			              .rounds = ROUNDS,
			              .res = atoll_result_new() };
		expect_eq(pthread_create(&thread[i], NULL, count_up, &w[i]), 0);
	}
	sleep_ms(200);
	/* In the middle of what some do, and while others wait for these. */
	expect_ok(f, atoll_plan_let_go(p, f->res));
	for (int i = 0; i < THREADS; i++) {
		expect_eq(pthread_join(thread[i], NULL), 0);
		expect_msg(w[i].r == 0, "%d: %s", w[i].r, atoll_result_message(w[i].res));
		atoll_result_free(w[i].res);
	}
	expect_text(fix_path(f, "%s/n", root), "30\n");
}

static void expect_appears(const char *path)
{
	for (int i = 0; i < 6000 && !exists(path); i++)
		sleep_ms(10);
	expect_msg(exists(path), "'%s' did not appear", path);
}

static void *run_a_while(void *user)
{
	struct work *w = user;

	w->r = run(w->p, w->root, "touch began; sleep 0.5; touch ended", w->res);
	return NULL;
}

static void con_letting_go_waits_for_the_command(void **state)
{
	struct fix *f = *state;
	struct work w = { .f = f, .res = atoll_result_new() };
	pthread_t thread;
	const char *work;

	w.p = make_plan(f, &w.root);
	work = fix_work(f, w.p, w.root);
	expect_ok(f, atoll_plan_hold(w.p, NULL, -1, f->res));
	expect_eq(pthread_create(&thread, NULL, run_a_while, &w), 0);
	expect_appears(fix_path(f, "%s/began", work));
	expect_ok(f, atoll_plan_let_go(w.p, f->res));
	expect(exists(fix_path(f, "%s/ended", work)));
	expect_eq(pthread_join(thread, NULL), 0);
	expect_eq(w.r, 0);
	atoll_result_free(w.res);
}

static void *commit_all(void *user)
{
	struct work *w = user;

	w->r = atoll_plan_commit(w->p, 0, w->res);
	return NULL;
}

/* Who waits for another thread's operation does so as long as was asked for, and is told for whom. */
static void con_an_operation_waits_for_another_threads(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "custom");
	struct work w = { .f = f, .p = fix_plan(f, "held"), .res = atoll_result_new() };
	struct gate *g;
	pthread_t thread;
	int64_t began;

	put_text(fix_path(f, "%s/value", root), "old\n");
	fix_add(f, w.p, root, "gate");
	put_text(fix_path(f, "%s/value", fix_work(f, w.p, root)), "new\n");
	expect_code(f, atoll_plan_hold(w.p, "", -1, f->res), -ATOLL_E_INVALID);
	expect_ok(f, atoll_plan_hold(w.p, NULL, -1, f->res));
	g = gate_set(root, PHASE_COMMIT);
	expect_eq(pthread_create(&thread, NULL, commit_all, &w), 0);
	expect(gate_wait(g, 60000));
	atoll_set_wait(f->a, 500);
	began = now_ms();
	expect_code(f, atoll_plan_reset(w.p, f->res), -ATOLL_E_TIMEOUT);
	expect(now_ms() - began >= 490);
	expect_msg(strstr(atoll_result_message(f->res), "another thread of this process") != NULL,
	           "%s", atoll_result_message(f->res));
	atoll_set_wait(f->a, -1);
	gate_open(g);
	expect_eq(pthread_join(thread, NULL), 0);
	expect_eq(w.r, 0);
	expect_text(fix_path(f, "%s/value", root), "new\n");
	expect_ok(f, atoll_plan_reset(w.p, f->res));
	expect_ok(f, atoll_plan_let_go(w.p, f->res));
	gate_free(g);
	atoll_result_free(w.res);
}

/* ---- processes ---- */

static int child_hold(const char *dir, const char *arg)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct atoll_plan *p = NULL;

	fix_attach(f, dir);
	expect_ok(f, atoll_plan_find(f->a, "held", &p, f->res));
	expect_ok(f, atoll_plan_hold(p, "child", -1, f->res));
	expect_eq(run(p, arg, "echo half >n", f->res), 0);
	put_text(fix_path(f, "%s/held", dir), "");
	return run(p, arg, "sleep 1000", f->res);
}

static pid_t start_holder(struct fix *f, const char *root)
{
	pid_t pid = child_start(f, "hold", root, NULL);

	expect_appears(fix_path(f, "%s/held", f->dir));
	return pid;
}

static void der_23_a_hold_names_whom_it_waits_for(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p;
	const char *root;
	int64_t began;
	int ends[2];
	pid_t pid;

	p = make_plan(f, &root);
	pid = start_holder(f, root);
	atoll_set_wait(f->a, 200);
	began = now_ms();
	expect_code(f, atoll_plan_hold(p, NULL, -1, f->res), -ATOLL_E_TIMEOUT);
	expect(now_ms() - began >= 190 && now_ms() - began < 60000);
	expect_msg(strstr(atoll_result_message(f->res), fix_path(f, "pid %d", (int)pid)) != NULL,
	           "%s", atoll_result_message(f->res));

	atoll_set_wait(f->a, -1);
	expect_eq(pipe(ends), 0);
	close(ends[1]); /* it is hung up */
	began = now_ms();
	expect_code(f, atoll_plan_hold(p, NULL, ends[0], f->res), -ECANCELED);
	expect(now_ms() - began < 60000);
	close(ends[0]);
	expect_code(f, atoll_plan_let_go(p, f->res), -ATOLL_E_STATE);
	expect_eq(kill(pid, SIGKILL), 0);
	expect_eq(child_wait(pid), 128 + SIGKILL);
	expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
	expect_ok(f, atoll_plan_let_go(p, f->res));
}

/* The next one enters within a second, and the command is gone with its holder. */
static void der_10_a_killed_holder_frees_the_plan(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p;
	const char *root;
	int64_t began, took = INT64_MAX;
	pid_t pid;

	p = make_plan(f, &root);
	/* Once in a while a machine with much to do takes longer for everything. */
	for (int i = 0; i < 10 && took >= 1000; i++) {
		if (i > 0)
			expect_ok(f, atoll_plan_let_go(p, f->res));
		pid = start_holder(f, root);
		expect_eq(kill(pid, SIGKILL), 0);
		began = now_ms();
		expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
		took = now_ms() - began;
		expect_eq(child_wait(pid), 128 + SIGKILL);
		(void)unlink(fix_path(f, "%s/held", f->dir));
	}
	expect_msg(took < 1000, "%d ms", (int)took);
	/* What a finished command of the dead one left is there. */
	expect_eq(run(p, root, "test \"$(cat n)\" = half", f->res), 0);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_text(fix_path(f, "%s/n", root), "half\n");
	expect_ok(f, atoll_plan_let_go(p, f->res));
}

static int free_in_child(struct fix *f, void *user)
{
	struct atoll_plan *p = user;

	expect_code(f, atoll_plan_let_go(p, f->res), -ATOLL_E_STATE);
	atoll_plan_free(p);
	return 0;
}

static void con_a_forked_child_lets_go_of_nothing(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p, *q;
	const char *root;

	p = make_plan(f, &root);
	q = fix_find(f, "held");
	atoll_set_wait(f->a, 0);
	expect_ok(f, atoll_plan_hold(p, NULL, -1, f->res));
	expect_eq(fork_run(f, free_in_child, p), 0);
	expect_code(f, atoll_plan_reset(q, f->res), -ATOLL_E_BUSY);
	expect_ok(f, atoll_plan_let_go(p, f->res));
	expect_ok(f, atoll_plan_reset(q, f->res));
}

static const struct atest_child children[] = { { "hold", child_hold }, { NULL, NULL } };

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(sto_04_operations_use_the_lock_that_is_held),
		atest(sto_05_a_hold_ends_once),
		atest(con_a_strategy_cannot_end_the_hold_it_works_under),
		atest(der_15_threads_under_a_hold_and_beside_it),
		atest(con_an_operation_waits_for_another_threads),
		atest(con_letting_go_waits_for_the_command),
		atest(der_23_a_hold_names_whom_it_waits_for),
		atest(der_10_a_killed_holder_frees_the_plan),
		atest(con_a_forked_child_lets_go_of_nothing),
	};

	return atest_main(argc, argv, tests, children);
}
