/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules AUT of the token cache that are about many callers at once: threads, callbacks, processes,
 * against a real HTTP server. Exact numbers by gates, not by sleeping: the server answers once
 * everybody waits.
 */
#include "lib/atest.h"
#include "lib/token-server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SLOW true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define IS_SLOW true
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW false
#endif

static struct server server;

static int start_server(void **state)
{
	server_start(&server);
	return atest_setup(state);
}

static int stop_server(void **state)
{
	int r;

	server_stop(&server);
	r = atest_teardown(state);
	return r;
}

#define aut(test) cmocka_unit_test_setup_teardown(test, start_server, stop_server)

static struct atoll_tokens *open_tokens(const char *dir)
{
	const struct atoll_tokens_config config = { .endpoint = server.url,
		                                    .principal = "tester",
		                                    .key = SERVER_KEY,
		                                    .dir = dir,
		                                    /* A request waits at the server's gate for as
		                                     * long as it takes to start all the others. */
		                                    .request_ms = 300000 };
	struct atoll_tokens *t = NULL;

	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	return t;
}

static struct atoll_token_handle *handle_of(struct atoll_tokens *t, const char *id)
{
	struct atoll_token_handle *h = NULL;

	expect_eq(atoll_tokens_handle(t, id, &h, NULL), 0);
	return h;
}

/* ---- many callers ---- */

struct caller {
	pthread_t thread;
	struct atoll_tokens *t;
	char id[32];
	int64_t wait_ms;
	atomic_int tid; /* just before it asks */
	int r;
	int status; /* of a failure, as the message has it */
	uint64_t version;
	char text[32];
	pthread_barrier_t *begin;
};

static void *call_get(void *arg)
{
	struct caller *c = arg;
	struct atoll_result *res = atoll_result_new();
	struct atoll_token *token = NULL;

	if (c->begin)
		(void)pthread_barrier_wait(c->begin);
	atomic_store(&c->tid, gettid());
	c->r = atoll_tokens_get(c->t, c->id, c->wait_ms, 0, &token, res);
	if (c->r == 0) {
		c->version = atoll_token_version(token);
		snprintf(c->text, sizeof(c->text), "%s", atoll_token_text(token));
	} else if (strstr(atoll_result_message(res), "503")) {
		c->status = 503;
	}
	atoll_result_free(res);
	return NULL;
}

static struct caller *start_callers(struct atoll_tokens *t, int n, size_t stack)
{
	struct caller *all = calloc((size_t)n, sizeof(*all));
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	for (int i = 0; i < n; i++) {
		all[i].t = t;
		all[i].wait_ms = -1;
		snprintf(all[i].id, sizeof(all[i].id), "sb-1");
		expect_eq(pthread_create(&all[i].thread, &attr, call_get, &all[i]), 0);
	}
	pthread_attr_destroy(&attr);
	return all;
}

static void join_callers(struct caller *all, int n)
{
	for (int i = 0; i < n; i++)
		expect_eq(pthread_join(all[i].thread, NULL), 0);
}

static void aut_01_one_request_for_a_burst(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct caller *all;

	(void)state;
	atomic_store(&server.delay_ms, 300);
	all = start_callers(t, 64, 256 << 10);
	join_callers(all, 64);
	for (int i = 0; i < 64; i++) {
		expect_eq(all[i].r, 0);
		expect_str(all[i].text, "tok-1");
		expect(all[i].version == all[0].version);
	}
	expect_eq(atomic_load(&server.requests), 1);
	expect_eq(atomic_load(&server.unauthorized), 0);
	free(all);
	atoll_tokens_close(t);
}

static void aut_02_sandboxes_do_not_wait_for_one_another(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct caller all[8];

	(void)state;
	atomic_store(&server.gated, true);
	memset(all, 0, sizeof(all));
	for (int i = 0; i < 8; i++) {
		all[i].t = t;
		all[i].wait_ms = -1;
		snprintf(all[i].id, sizeof(all[i].id), "sb-%d", i);
		expect_eq(pthread_create(&all[i].thread, NULL, call_get, &all[i]), 0);
	}
	server_wait_gate(&server, 8); /* all at once */
	atomic_store(&server.gated, false);
	join_callers(all, 8);
	for (int i = 0; i < 8; i++)
		expect_eq(all[i].r, 0);
	expect_eq(atomic_load(&server.requests), 8);
	atoll_tokens_close(t);
}

static void aut_03_a_caller_that_gives_up_ends_only_itself(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct caller first = { .t = t, .wait_ms = 100, .id = "sb-1" };
	struct caller *all;

	(void)state;
	atomic_store(&server.gated, true);
	expect_eq(pthread_create(&first.thread, NULL, call_get, &first), 0);
	server_wait_gate(&server, 1);
	all = start_callers(t, 20, 256 << 10);
	join_callers(&first, 1);
	expect_eq(first.r, -ATOLL_E_TIMEOUT);
	atomic_store(&server.gated, false);
	join_callers(all, 20);
	for (int i = 0; i < 20; i++)
		expect_eq(all[i].r, 0);
	expect_eq(atomic_load(&server.requests), 1);
	free(all);
	atoll_tokens_close(t);
}

static void aut_04_waiting_takes_no_stack(void **state)
{
	const int n = IS_SLOW ? 300 : 2000;
	struct atoll_tokens *t = open_tokens(NULL);
	struct caller *all;

	(void)state;
	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.gated, true);
	all = start_callers(t, n, IS_SLOW ? 256 << 10 : 64 << 10);
	server_wait_gate(&server, 1);
	atomic_store(&server.gated, false);
	join_callers(all, n);
	for (int i = 0; i < n; i++) {
		expect_eq(all[i].r, -EREMOTEIO);
		expect_eq(all[i].status, 503);
	}
	free(all);
	atoll_tokens_close(t);
}

static void aut_05_a_failure_is_shared_and_not_repeated(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token *token;
	struct caller *all;
	int64_t began;
	int r = -1, asked;

	(void)state;
	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.retry_after, "8");
	atomic_store(&server.gated, true);
	all = start_callers(t, 500, 256 << 10);
	server_wait_gate(&server, 1);
	began = now_ms();
	atomic_store(&server.gated, false);
	join_callers(all, 500);
	for (int i = 0; i < 500; i++)
		expect_eq(all[i].r, -EREMOTEIO);
	/* In the pause nobody asks, however often it is called. */
	for (int i = 0; i < 200; i++)
		expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), -EREMOTEIO);
	asked = atomic_load(&server.requests);
	expect_msg(asked == 1 || now_ms() - began >= 8000, "%d requests", asked);
	atomic_store(&server.mode, SERVER_TOKENS);
	for (int i = 0; i < 1200; i++) {
		r = atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL);
		if (r == 0)
			break;
		usleep(50000);
	}
	expect_eq(r, 0);
	expect_eq(atomic_load(&server.requests), asked + 1);
	free(all);
	atoll_tokens_close(t);
}

static void aut_07_the_first_use_by_many(void **state)
{
	const int rounds = atest_long() ? 1000 : IS_SLOW ? 10 : 25;
	struct caller all[100];

	(void)state;
	for (int round = 0; round < rounds; round++) {
		struct atoll_tokens *t = open_tokens(NULL);
		pthread_barrier_t begin;

		pthread_barrier_init(&begin, NULL, 100);
		memset(all, 0, sizeof(all));
		for (int i = 0; i < 100; i++) {
			all[i] = (struct caller){ .t = t, .wait_ms = -1, .begin = &begin };
			snprintf(all[i].id, sizeof(all[i].id), "sb-1");
			expect_eq(pthread_create(&all[i].thread, NULL, call_get, &all[i]), 0);
		}
		join_callers(all, 100);
		pthread_barrier_destroy(&begin);
		expect_eq(atomic_load(&server.requests), round + 1);
		for (int i = 0; i < 100; i++)
			expect(all[i].r == 0 && all[i].version == all[0].version);
		atoll_tokens_close(t);
	}
}

/* ---- the other forms ---- */

struct counted {
	atomic_int done;
	atomic_int good;
	_Atomic uint64_t version;
};

static void count_one(void *user, struct atoll_token_wait *w)
{
	struct counted *c = user;
	struct atoll_token *token = NULL;

	if (atoll_token_wait_result(w, &token, NULL) == 0) {
		uint64_t none = 0, version = atoll_token_version(token);

		(void)atomic_compare_exchange_strong(&c->version, &none, version);
		if (atomic_load(&c->version) == version)
			atomic_fetch_add(&c->good, 1);
		atoll_token_unref(token);
	}
	atomic_fetch_add(&c->done, 1);
	atoll_token_wait_free(w);
}

static void wait_for(atomic_int *what, int n)
{
	for (int i = 0; i < 60000 && atomic_load(what) < n; i++)
		usleep(1000);
	expect_eq(atomic_load(what), n);
}

static void aut_11_all_forms_coalesce(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h = handle_of(t, "sb-1");
	struct counted counted = { 0 };
	const struct atoll_token_call back = { .wait_ms = -1, .fn = count_one, .user = &counted };
	const struct atoll_token_call poll_it = { .wait_ms = -1 };
	struct atoll_token_wait *w, *polled[16];
	struct atoll_token *token;
	struct caller *all;

	(void)state;
	atomic_store(&server.gated, true);
	all = start_callers(t, 32, 256 << 10);
	server_wait_gate(&server, 1);
	for (int i = 0; i < 16; i++) {
		int64_t began = now_ms();

		expect_eq(atoll_token_start(h, &back, &token, &w, NULL), 0);
		expect_eq(atoll_token_start(h, &poll_it, &token, &polled[i], NULL), 0);
		expect(now_ms() - began < 30000); /* the gate is shut for ever */
		expect_eq(atoll_token_wait_result(polled[i], &token, NULL), -EAGAIN);
	}
	atomic_store(&server.gated, false);
	for (int i = 0; i < 16; i++) {
		struct pollfd p = { .fd = atoll_token_wait_fd(polled[i]), .events = POLLIN };

		expect_eq(poll(&p, 1, 60000), 1);
		expect_eq(atoll_token_wait_result(polled[i], &token, NULL), 0);
		expect_str(atoll_token_text(token), "tok-1");
		atoll_token_unref(token);
		atoll_token_wait_free(polled[i]);
	}
	join_callers(all, 32);
	wait_for(&counted.done, 16);
	expect_eq(atomic_load(&counted.good), 16);
	expect_eq(atomic_load(&server.requests), 1);
	free(all);
	atoll_tokens_close(t);
}

static void token_deadlines_of_callbacks(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h = handle_of(t, "sb-1");
	const struct atoll_token_call soon = { .wait_ms = 50 }, late = { .wait_ms = 300000 };
	struct atoll_token_wait *a, *b;
	struct atoll_token *token;
	struct pollfd p = { .events = POLLIN };
	int64_t began = now_ms();

	(void)state;
	atomic_store(&server.gated, true);
	expect_eq(atoll_token_start(h, &late, &token, &b, NULL), 0);
	expect_eq(atoll_token_start(h, &soon, &token, &a, NULL), 0);
	p.fd = atoll_token_wait_fd(a);
	expect_eq(poll(&p, 1, 60000), 1);
	expect(now_ms() - began >= 50);
	expect_eq(atoll_token_wait_result(a, &token, NULL), -ATOLL_E_TIMEOUT);
	expect_eq(atoll_token_wait_result(b, &token, NULL), -EAGAIN);
	atomic_store(&server.gated, false);
	p.fd = atoll_token_wait_fd(b);
	expect_eq(poll(&p, 1, 60000), 1);
	expect_eq(atoll_token_wait_result(b, &token, NULL), 0);
	atoll_token_unref(token);
	atoll_token_wait_free(a);
	atoll_token_wait_free(b);
	atoll_tokens_close(t);
}

static atomic_int inside;

static void get_inside(void *user, struct atoll_token_wait *w)
{
	struct atoll_token_handle **h = user;
	struct atoll_token *token;

	expect_eq(atoll_token_get(h[1], -1, 0, &token, NULL), -ATOLL_E_WOULD_DEADLOCK);
	expect_eq(atoll_token_get(h[0], -1, 0, &token, NULL), 0);
	atoll_token_wait_free(w);
	atomic_store(&inside, 1);
}

static void token_a_callback_may_not_wait(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h[2] = { handle_of(t, "sb-1"), handle_of(t, "sb-2") };
	const struct atoll_token_call back = { .wait_ms = -1, .fn = get_inside, .user = h };
	struct atoll_token_wait *w;
	struct atoll_token *token;

	(void)state;
	atomic_store(&inside, 0);
	expect_eq(atoll_token_start(h[0], &back, &token, &w, NULL), 0);
	wait_for(&inside, 1);
	expect_eq(atoll_token_get(h[1], -1, 0, &token, NULL), 0);
	atoll_tokens_close(t);
}

struct mates {
	struct atoll_token_wait *w[6];
	atomic_int called;
};

static void free_mates(void *user, struct atoll_token_wait *w)
{
	struct mates *m = user;

	(void)w;
	for (int i = 0; i < 6; i++)
		atoll_token_wait_free(m->w[i]);
	atomic_fetch_add(&m->called, 1);
}

static void token_a_callback_may_free_the_others(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct mates m = { 0 };
	const struct atoll_token_call back = { .wait_ms = -1, .fn = free_mates, .user = &m };
	struct atoll_token *token;

	(void)state;
	atomic_store(&server.gated, true);
	for (int i = 0; i < 6; i++)
		expect_eq(atoll_token_start(handle_of(t, "sb-1"), &back, &token, &m.w[i], NULL), 0);
	atomic_store(&server.gated, false);
	wait_for(&m.called, 1);
	atoll_tokens_close(t);
	expect_eq(atomic_load(&m.called), 1);
}

/* ---- clear ---- */

static int clear_it(struct atoll_tokens *t, bool by_callback)
{
	const struct atoll_token_call poll_it = { .wait_ms = -1 };
	struct atoll_token_wait *w;
	struct pollfd p = { .events = POLLIN };
	int r;

	if (!by_callback)
		return atoll_tokens_clear(t, "sb-1", NULL);
	r = atoll_tokens_start_clear(t, NULL, &poll_it, &w, NULL);
	if (r < 0)
		return r;
	p.fd = atoll_token_wait_fd(w);
	expect_eq(poll(&p, 1, 60000), 1);
	r = atoll_token_wait_result(w, NULL, NULL);
	atoll_token_wait_free(w);
	return r;
}

static int count_tokens(struct fix *f, const char *dir)
{
	char *line = fix_path(f, "ls %s/*.tok 2>/dev/null | wc -l", dir);
	FILE *p = popen(line, "r");
	int n = -1;

	expect(p && fscanf(p, "%d", &n) == 1);
	pclose(p);
	return n;
}

static bool is_asleep(pid_t tid)
{
	char path[64], c = 'R';
	FILE *in;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	in = tid > 0 ? fopen(path, "re") : NULL;
	if (in && fscanf(in, "%*d (%*[^)]) %c", &c) != 1)
		c = 'R';
	if (in)
		(void)fclose(in);
	return c == 'S';
}

/* All of them have asked, and stand still: seen several times, since each may wait for a lock, too. */
static void await_waiting(struct caller *all, int n)
{
	int64_t end = now_ms() + 60000;

	for (int quiet = 0; quiet < 10 && now_ms() < end; quiet++) {
		for (int i = 0; i < n; i++)
			if (!is_asleep(atomic_load(&all[i].tid)))
				quiet = -1;
		usleep(2000);
	}
}

static void aut_12_clear_wins(void **state)
{
	struct fix *f = *state;

	for (int form = 0; form < 2; form++) {
		char *dir = fix_path(f, "%s/tokens-%d", f->dir, form);
		struct atoll_tokens *t = open_tokens(dir);
		const struct atoll_token_call poll_it = { .wait_ms = -1 };
		struct pollfd p = { .events = POLLIN };
		struct atoll_token_wait *later = NULL;
		struct atoll_token *token;
		struct caller *all;
		int before = atomic_load(&server.requests);

		atomic_store(&server.gated, true);
		all = start_callers(t, 8, 256 << 10);
		server_wait_gate(&server, 1);
		await_waiting(all, 8);
		expect_eq(clear_it(t, form == 1), 0);
		if (form == 1) /* who comes later does not get what was asked for before */
			expect_eq(atoll_token_start(handle_of(t, "sb-1"), &poll_it, &token, &later,
			                            NULL),
			          0);
		atomic_store(&server.gated, false);
		join_callers(all, 8);
		for (int i = 0; i < 8; i++) {
			expect_eq(all[i].r, 0);
			expect_str(all[i].text, fix_path(f, "tok-%d", before + 1));
		}
		if (form == 1) {
			p.fd = atoll_token_wait_fd(later);
			expect_eq(poll(&p, 1, 60000), 1);
			expect_eq(atoll_token_wait_result(later, &token, NULL), 0);
			expect_str(atoll_token_text(token), fix_path(f, "tok-%d", before + 2));
			atoll_token_unref(token);
			atoll_token_wait_free(later);
		} else {
			expect_eq(atomic_load(&server.requests), before + 1);
			expect_eq(count_tokens(f, dir), 0);
		}
		expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), 0);
		expect_str(atoll_token_text(token), fix_path(f, "tok-%d", before + 2));
		expect_eq(atomic_load(&server.requests), before + 2);
		free(all);
		atoll_tokens_close(t); /* which waits for the save */
		expect_eq(count_tokens(f, dir), 1);
		t = open_tokens(dir);
		expect_eq(clear_it(t, form == 1), 0);
		expect_eq(count_tokens(f, dir), 0);
		atoll_tokens_close(t);
	}
}

/* ---- ten thousand ---- */

struct crowd {
	struct atoll_tokens *t;
	struct atoll_token_handle *h;
	pthread_barrier_t begin, end;
	atomic_int good, entered;
	_Atomic uint64_t version;
	atomic_bool over;
	int code;
};

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;

	for (;;) {
		struct atoll_token *token;
		int r;

		(void)pthread_barrier_wait(&c->begin);
		if (atomic_load(&c->over))
			return NULL;
		atomic_fetch_add(&c->entered, 1);
		r = atoll_token_get(c->h, -1, 0, &token, NULL);
		if (r == 0) {
			uint64_t none = 0, version = atoll_token_version(token);

			(void)atomic_compare_exchange_strong(&c->version, &none, version);
			if (atomic_load(&c->version) == version)
				atomic_fetch_add(&c->good, 1);
		} else if (r == c->code) {
			atomic_fetch_add(&c->good, 1);
		}
		(void)pthread_barrier_wait(&c->end);
	}
}

/* N threads and M callbacks, again and again. Returns the number of runs without a blemish. */
static int crowd_runs(struct crowd *c, int n, int m, int runs)
{
	pthread_t *threads = calloc((size_t)n, sizeof(*threads));
	int good_runs = 0;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, IS_SLOW ? 256 << 10 : 64 << 10);
	pthread_barrier_init(&c->begin, NULL, (unsigned)n + 1);
	pthread_barrier_init(&c->end, NULL, (unsigned)n + 1);
	for (int i = 0; i < n; i++)
		expect_eq(pthread_create(&threads[i], &attr, crowd_member, c), 0);
	for (int run = 0; run < runs; run++) {
		struct counted counted = { 0 };
		const struct atoll_token_call back = { .wait_ms = -1,
			                               .fn = count_one,
			                               .user = &counted };
		int before = atomic_load(&server.requests), started = 0;
		struct atoll_token_wait *w;
		struct atoll_token *token;

		atomic_store(&server.gated, true);
		atomic_store(&c->good, 0);
		atomic_store(&c->entered, 0);
		atomic_store(&c->version, 0);
		for (int i = 0; i < m; i++)
			started += atoll_token_start(c->h, &back, &token, &w, NULL) == 0;
		(void)pthread_barrier_wait(&c->begin);
		wait_for(&c->entered, n);
		server_wait_gate(&server, 1);
		atomic_store(&server.gated, false);
		(void)pthread_barrier_wait(&c->end);
		wait_for(&counted.done, m);
		if (started == m && atomic_load(&c->good) == n &&
		    (c->code || atomic_load(&counted.good) == m) &&
		    atomic_load(&c->version) == atomic_load(&counted.version) &&
		    atomic_load(&server.requests) == before + 1)
			good_runs++;
		if (!c->code)
			expect_eq(atoll_token_invalidate(c->h, atomic_load(&c->version)), 1);
	}
	atomic_store(&c->over, true);
	(void)pthread_barrier_wait(&c->begin);
	for (int i = 0; i < n; i++)
		expect_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&c->begin);
	pthread_barrier_destroy(&c->end);
	pthread_attr_destroy(&attr);
	free(threads);
	return good_runs;
}

static void aut_01_ten_thousand_callers_one_request(void **state)
{
	const int n = IS_SLOW ? 200 : 5000;
	struct crowd c = { .t = open_tokens(NULL) };
	int runs = 2;

	(void)state;
	c.h = handle_of(c.t, "sb-1");
	expect_eq(crowd_runs(&c, n, n, runs), runs);
	if (atest_long() && !IS_SLOW) {
		atomic_store(&c.over, false);
		expect_eq(crowd_runs(&c, 1000, 9000, 1000), 1000);
		runs += 1000;
	}
	expect_eq(atomic_load(&server.requests), runs);
	atoll_tokens_close(c.t);
}

static void aut_05_ten_thousand_callers_one_failure(void **state)
{
	const int n = IS_SLOW ? 200 : 5000;
	struct crowd c = { .t = open_tokens(NULL), .code = -EREMOTEIO };
	struct atoll_token *token;

	(void)state;
	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.retry_after, "600");
	c.h = handle_of(c.t, "sb-1");
	expect_eq(crowd_runs(&c, n, n, 1), 1);
	for (int i = 0; i < 100000; i++) {
		if (atoll_token_get(c.h, -1, 0, &token, NULL) != -EREMOTEIO)
			expect_msg(false, "call %d", i);
	}
	expect_eq(atomic_load(&server.requests), 1);
	atoll_tokens_close(c.t);
}

/* Any subset gives up, the first among them: the others all get the token. */
static void aut_03_any_subset_cancelled(void **state)
{
	const int rounds = atest_long() ? 2000 : IS_SLOW ? 20 : 100;
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h = handle_of(t, "sb-1");
	unsigned seed = 7;

	(void)state;
	for (int round = 0; round < rounds; round++) {
		struct counted counted = { 0 };
		const struct atoll_token_call back = { .wait_ms = -1,
			                               .fn = count_one,
			                               .user = &counted };
		const struct atoll_token_call poll_it = { .wait_ms = -1 };
		struct atoll_token_wait *w[40], *other;
		struct atoll_token *token;
		int stay = 0;

		atomic_store(&server.gated, true);
		for (int i = 0; i < 40; i++)
			expect_eq(atoll_token_start(h, &poll_it, &token, &w[i], NULL), 0);
		for (int i = 0; i < 8; i++, stay++)
			expect_eq(atoll_token_start(h, &back, &token, &other, NULL), 0);
		if (rand_r(&seed) % 2)
			server_wait_gate(&server, 1);
		/* Some before the answer, the rest while it comes. */
		for (int i = 0; i < 40; i++) {
			if (i == 20)
				atomic_store(&server.gated, false);
			if (i == 0 || rand_r(&seed) % 3)
				atoll_token_wait_free(w[i]), w[i] = NULL;
		}
		wait_for(&counted.done, stay);
		expect_eq(atomic_load(&counted.good), stay);
		for (int i = 0; i < 40; i++) {
			struct pollfd p = { .events = POLLIN };

			if (!w[i])
				continue;
			p.fd = atoll_token_wait_fd(w[i]);
			expect_eq(poll(&p, 1, 60000), 1);
			expect_eq(atoll_token_wait_result(w[i], &token, NULL), 0);
			expect(atoll_token_version(token) == atomic_load(&counted.version));
			atoll_token_unref(token);
			atoll_token_wait_free(w[i]);
		}
		expect_eq(atomic_load(&server.requests), round + 1);
		expect_eq(atoll_token_invalidate(h, atomic_load(&counted.version)), 1);
	}
	atoll_tokens_close(t);
}

static void *refused(void *arg)
{
	struct crowd *c = arg;
	struct atoll_token *token;

	(void)pthread_barrier_wait(&c->begin);
	atomic_fetch_add(&c->good, atoll_token_invalidate(c->h, atomic_load(&c->version)));
	expect_eq(atoll_token_get(c->h, -1, 0, &token, NULL), 0);
	expect_str(atoll_token_text(token), "tok-2");
	return NULL;
}

static void aut_01_64_refusals_of_one_version(void **state)
{
	struct crowd c = { .t = open_tokens(NULL) };
	struct atoll_token *token;
	pthread_t threads[64];

	(void)state;
	c.h = handle_of(c.t, "sb-1");
	expect_eq(atoll_token_get(c.h, -1, 0, &token, NULL), 0);
	atomic_store(&c.version, atoll_token_version(token));
	pthread_barrier_init(&c.begin, NULL, 64);
	for (int i = 0; i < 64; i++)
		expect_eq(pthread_create(&threads[i], NULL, refused, &c), 0);
	for (int i = 0; i < 64; i++)
		expect_eq(pthread_join(threads[i], NULL), 0);
	expect_eq(atomic_load(&c.good), 1);
	expect_eq(atomic_load(&server.requests), 2);
	pthread_barrier_destroy(&c.begin);
	atoll_tokens_close(c.t);
}

/* ---- processes ---- */

/* A process that gets one token from the server and directory it is told. 0: got it; 1: the failure;
 * 2: anything else. */
static int get_in_process(const char *dir, const char *tokens)
{
	struct atoll_tokens *t;
	struct atoll_token *token;
	int r;

	(void)dir;
	(void)snprintf(server.url, sizeof(server.url), "%s", getenv("TOKEN_TEST_URL"));
	t = open_tokens(tokens);
	(void)write(atoi(getenv("TOKEN_TEST_READY")), "x", 1);
	r = atoll_tokens_get(t, "sb-1", 300000, 0, &token, NULL);
	atoll_tokens_close(t); /* once it is saved */
	return r == 0 ? 0 : r == -EREMOTEIO ? 1 : 2;
}

static pid_t start_process(struct fix *f, const char *dir, int ready_fd)
{
	const char *env[] = { fix_path(f, "TOKEN_TEST_URL=%s", server.url),
		              fix_path(f, "TOKEN_TEST_READY=%d", ready_fd), NULL };

	return child_start(f, "get", dir, env);
}

static void run_processes(struct fix *f, int n, int status)
{
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	pid_t *pids = calloc((size_t)n, sizeof(*pids));
	int ready[2];
	char c;

	expect_eq(pipe(ready), 0);
	atomic_store(&server.gated, true);
	for (int i = 0; i < n; i++)
		pids[i] = start_process(f, dir, ready[1]);
	for (int i = 0; i < n; i++)
		expect_eq(read(ready[0], &c, 1), 1);
	server_wait_gate(&server, 1);
	usleep(300000); /* whoever would ask on its own has */
	expect_eq(atomic_load(&server.requests), 1);
	atomic_store(&server.gated, false);
	for (int i = 0; i < n; i++) {
		int s;

		expect_eq(waitpid(pids[i], &s, 0), pids[i]);
		expect_msg(WIFEXITED(s) && WEXITSTATUS(s) == status, "process %d: status %x", i, s);
	}
	expect_eq(atomic_load(&server.requests), 1);
	close(ready[0]);
	close(ready[1]);
	free(pids);
}

static void aut_01_processes_share_one_request(void **state)
{
	struct fix *f = *state;

	run_processes(f, IS_SLOW ? 20 : 200, 0);
}

static void aut_05_processes_share_one_failure(void **state)
{
	struct fix *f = *state;

	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.retry_after, "3000");
	run_processes(f, IS_SLOW ? 20 : 200, 1);
}

static void aut_03_the_process_that_asks_is_killed(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	const int n = IS_SLOW ? 5 : 50;
	pid_t first, pids[50];
	int ready[2], s;

	expect_eq(pipe(ready), 0);
	atomic_store(&server.gated, true);
	first = start_process(f, dir, ready[1]);
	server_wait_gate(&server, 1);
	for (int i = 0; i < n; i++)
		pids[i] = start_process(f, dir, ready[1]);
	usleep(300000);
	expect_eq(atomic_load(&server.requests), 1);
	expect_eq(kill(first, SIGKILL), 0);
	expect_eq(waitpid(first, &s, 0), first);
	server_wait_gate(&server, 2);
	atomic_store(&server.gated, false);
	for (int i = 0; i < n; i++) {
		expect_eq(waitpid(pids[i], &s, 0), pids[i]);
		expect(WIFEXITED(s) && WEXITSTATUS(s) == 0);
	}
	expect_eq(atomic_load(&server.requests), 2);
	close(ready[0]);
	close(ready[1]);
}

/* ---- fork ---- */

static void token_fork_in_the_middle_of_a_request(void **state)
{
	struct fix *f = *state;
	struct atoll_tokens *t = open_tokens(fix_path(f, "%s/tokens", f->dir));
	struct atoll_token_handle *known = handle_of(t, "known"), *asked = handle_of(t, "asked");
	const struct atoll_token_call poll_it = { .wait_ms = -1 };
	struct pollfd p = { .events = POLLIN };
	struct atoll_token_wait *w;
	struct atoll_token *token;
	pid_t pid;
	int s;

	expect_eq(atoll_token_get(known, -1, 0, &token, NULL), 0);
	atomic_store(&server.gated, true);
	expect_eq(atoll_token_start(asked, &poll_it, &token, &w, NULL), 0);
	server_wait_gate(&server, 1);
	pid = fork();
	if (pid == 0) {
		/* The token is there; the wait is over; a request of the child's own works. */
		bool ok = atoll_token_get(known, 0, 0, &token, NULL) == 0 &&
		          strcmp(atoll_token_text(token), "tok-1") == 0 &&
		          atoll_token_wait_result(w, &token, NULL) == -ECANCELED;

		atoll_token_wait_free(w);
#ifndef __SANITIZE_THREAD__ /* which still counts the parent's threads here, and stumbles over a new one */
		ok = ok && atoll_token_get(asked, 300000, 0, &token, NULL) == 0;
#endif
		atoll_tokens_close(t);
		_exit(ok ? 0 : 1);
	}
	expect(pid > 0);
	usleep(100000);
	atomic_store(&server.gated, false);
	expect_eq(waitpid(pid, &s, 0), pid);
	expect(WIFEXITED(s) && WEXITSTATUS(s) == 0);
	expect_eq(atoll_token_get(asked, -1, 0, &token, NULL), 0);
	/* The token is there before those who wait for it are told. */
	p.fd = atoll_token_wait_fd(w);
	expect_eq(poll(&p, 1, 60000), 1);
	expect_eq(atoll_token_wait_result(w, NULL, NULL), 0);
	expect_eq(atomic_load(&server.requests), 2); /* the child found the parent's in the file */
	atoll_token_wait_free(w);
	atoll_tokens_close(t);
}

static void token_close_ends_what_waits(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h = handle_of(t, "sb-1");
	struct counted counted = { 0 };
	const struct atoll_token_call back = { .wait_ms = -1, .fn = count_one, .user = &counted };
	struct atoll_token_wait *w;
	struct atoll_token *token;
	int64_t began;

	(void)state;
	atomic_store(&server.mode, SERVER_HANG);
	expect_eq(atoll_token_start(h, &back, &token, &w, NULL), 0);
	for (int i = 0; i < 60000 && atomic_load(&server.requests) == 0; i++)
		usleep(1000);
	began = now_ms();
	atoll_tokens_close(t);
	expect(now_ms() - began < 60000); /* a request may take longer */
	expect_eq(atomic_load(&counted.done), 1);
	expect_eq(atomic_load(&counted.good), 0);
}

static const struct atest_child children[] = {
	{ "get", get_in_process },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		aut(aut_01_one_request_for_a_burst),
		aut(aut_02_sandboxes_do_not_wait_for_one_another),
		aut(aut_03_a_caller_that_gives_up_ends_only_itself),
		aut(aut_04_waiting_takes_no_stack),
		aut(aut_05_a_failure_is_shared_and_not_repeated),
		aut(aut_07_the_first_use_by_many),
		aut(aut_11_all_forms_coalesce),
		aut(aut_12_clear_wins),
		aut(aut_01_64_refusals_of_one_version),
		aut(aut_01_ten_thousand_callers_one_request),
		aut(aut_05_ten_thousand_callers_one_failure),
		aut(aut_03_any_subset_cancelled),
		aut(aut_01_processes_share_one_request),
		aut(aut_05_processes_share_one_failure),
		aut(aut_03_the_process_that_asks_is_killed),
		aut(token_deadlines_of_callbacks),
		aut(token_a_callback_may_not_wait),
		aut(token_a_callback_may_free_the_others),
		aut(token_fork_in_the_middle_of_a_request),
		aut(token_close_ends_what_waits),
	};

	return atest_main(argc, argv, tests, children);
}
