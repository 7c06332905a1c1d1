/* SPDX-License-Identifier: Apache-2.0 */
/* Following a store: each change of state once and in order, numbers that never come again, and being
 * woken by other processes. What the command shows of it, and who is killed, is in events.py. */
#include "lib/more.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- reading ---- */

struct seen {
	char text[8192]; /* "what=STATE ..." */
	char plan[64];   /* only of this one, or "" */
	int64_t last;
	size_t n, gaps;
	bool disorder;
};

static int see(void *user, const struct atoll_news *n)
{
	struct seen *s = user;
	size_t len = strlen(s->text);

	s->disorder |= s->n > 0 && n->seq <= s->last;
	s->last = n->seq;
	s->n++;
	s->gaps += strcmp(n->what, "gap") == 0;
	if (*s->plan && strcmp(n->plan_id, s->plan) != 0)
		return 0;
	(void)snprintf(s->text + len, sizeof(s->text) - len, "%s%s%s%s", len ? " " : "", n->what,
	               *n->sandbox ? ":" : "=",
	               *n->sandbox ? atoll_sandbox_state_name(n->sandbox_state)
	                           : atoll_plan_state_name(n->state));
	return 0;
}

static struct seen look(struct fix *f, int64_t after)
{
	struct seen s = { .n = 0 };

	expect_ok(f, atoll_events(f->a, after, 0, see, &s, f->res));
	expect(!s.disorder);
	return s;
}

static int64_t newest(struct fix *f)
{
	int64_t last = atoll_events(f->a, -1, 0, NULL, NULL, f->res);

	expect(last >= 0);
	return last;
}

/* What happened since *AT. */
static void expect_news(struct fix *f, int64_t *at, const char *text)
{
	struct seen s = look(f, *at);

	expect_str(s.text, text);
	*at = s.n ? s.last : *at;
	expect_eq(*at, newest(f));
}

static void evt_every_change_once_and_in_order(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *other = fix_dir(f, "other");
	struct atoll_plan *p;
	int64_t at = newest(f);

	p = plan_over(f, root);
	expect_news(f, &at, "start=OPEN sandbox:PENDING sandbox:CREATED add=OPEN");
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new");
	expect_news(f, &at, "sandbox:ACTIVE path=OPEN");
	fix_add(f, p, other, "failer");
	expect_news(f, &at, "sandbox:PENDING sandbox:CREATED add=OPEN");
	failer_set(other, PHASE_PREPARE, FAIL_CODE, -ATOLL_E_CANNOT_PREPARE);
	put_text(fix_path(f, "%s/value", fix_work(f, p, other)), "new");
	expect_news(f, &at, "sandbox:ACTIVE path=OPEN");
	expect(atoll_plan_commit(p, 0, f->res) < 0);
	phase_clear();
	expect_news(f, &at, "state=PREPARING state=OPEN commit=OPEN");
	expect_commit(f, p);
	expect_news(f, &at,
	            "state=PREPARING sandbox:PREPARED sandbox:PREPARED state=DECIDED "
	            "sandbox:COMMITTED sandbox:COMMITTED state=COMMITTED commit=COMMITTED");
	expect_rollback(f, p);
	expect_news(f, &at,
	            "state=UNDOING sandbox:ROLLED_BACK sandbox:ROLLED_BACK state=ROLLED_BACK "
	            "rollback=ROLLED_BACK");
	expect_ok(f, atoll_plan_reset(p, f->res));
	expect_news(f, &at, "reset=ROLLED_BACK");
	expect_stop(f, p);
	expect_news(f, &at, "sandbox:CLEANED_UP sandbox:CLEANED_UP state=CLOSED stop=CLOSED");
	/* A failure is told, too, with its words. */
	expect(atoll_plan_commit(p, 0, f->res) < 0);
	expect_news(f, &at, "");
}

static void evt_start_with_resources_is_one(void **state)
{
	struct fix *f = *state;
	const struct atoll_resource r = { .root = fix_dir(f, "root"), .strategy = "copy" };
	struct atoll_start start = { .name = "p", .resources = &r, .n_resources = 1 };
	const struct atoll_resource bad = { .root = "/nowhere" };
	struct atoll_plan *p = NULL;
	int64_t at = newest(f);

	expect_ok(f, atoll_plan_start_with(f->a, &start, &p, f->res));
	atoll_plan_free(p);
	expect_news(f, &at, "start=OPEN");
	start = (struct atoll_start){ .name = "q", .resources = &bad, .n_resources = 1 };
	expect(atoll_plan_start_with(f->a, &start, &p, f->res) < 0);
	expect_news(f, &at, "");
}

static int end_early(void *user, const struct atoll_news *n)
{
	size_t *left = user;

	(void)n;
	return --*left == 0 ? -77 : 0;
}

static void evt_piece_by_piece(void **state)
{
	struct fix *f = *state;
	struct seen all, s = { .n = 0 };
	int64_t at = 0, last;
	size_t left = 2;

	expect_stop(f, plan_over(f, fix_dir(f, "root")));
	all = look(f, 0);
	while ((last = atoll_events(f->a, at, 1, see, &s, f->res)) > at)
		at = last;
	expect_eq(last, all.last);
	expect_str(s.text, all.text);
	expect_eq(atoll_events(f->a, 0, 0, end_early, &left, f->res), -77);
	expect_code(f, atoll_events(f->a, 0, 0, NULL, NULL, f->res), -ATOLL_E_INVALID);
	/* Names stay, of plans that are gone, too. */
	expect_eq(atoll_events_wait(f->a, all.last, 0, f->res), 0);
	expect_eq(atoll_events_wait(f->a, 0, 0, f->res), 1);
}

/* ---- numbers ---- */

static void churn(struct fix *f, int rounds)
{
	struct atoll_plan *p =
		plan_over(f, fix_dir(f, fix_path(f, "churn%lld", (long long)now_ms())));

	for (int i = 0; i < rounds; i++)
		expect_ok(f, atoll_plan_reset(p, f->res));
	expect_stop(f, p);
}

static void evt_numbers_never_come_again(void **state)
{
	struct fix *f = *state;
	struct seen s;
	int64_t first, last;

	churn(f, 3);
	first = newest(f);
	/* As little as can be kept. */
	atoll_set_log_limits(f->a, 0, 0);
	sleep_ms(3);
	churn(f, 600);
	last = newest(f);
	expect(last > first + 600);
	s = look(f, first);
	expect_eq(s.gaps, 1);
	expect(s.n < 600);
	expect(strncmp(s.text, "gap=", 4) == 0);
	/* Whoever is up to date misses nothing, whatever went before. */
	s = look(f, last);
	expect_eq(s.n, 0);
	fix_reopen(f);
	expect_eq(newest(f), last);
	churn(f, 1);
	s = look(f, last);
	expect_eq(s.gaps, 0);
	expect(s.last > last);
	/* A number that nobody can have is one of another store. */
	s = look(f, s.last + 5);
	expect_eq(s.gaps, 1);
	expect_eq(s.last, newest(f));
}

/* ---- waiting ---- */

static int child_write(const char *dir, const char *arg)
{
	struct fix f;
	struct atoll_plan *p;

	(void)arg;
	fix_attach(&f, dir);
	expect_ok(&f, atoll_plan_find(f.a, "p", &p, f.res));
	sleep_ms(150);
	expect_ok(&f, atoll_plan_reset(p, f.res));
	atoll_plan_free(p);
	fix_detach(&f);
	return 0;
}

struct last {
	int64_t seq, at_ms;
};

static int take_last(void *user, const struct atoll_news *n)
{
	*(struct last *)user = (struct last){ n->seq, n->at_ms };
	return 0;
}

static int64_t utc_ms(void)
{
	struct timespec ts;

	expect_eq(clock_gettime(CLOCK_REALTIME, &ts), 0);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

static void evt_others_wake_in_no_time(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "p");
	int quick = 0;

	fix_add(f, p, fix_dir(f, "root"), "copy");
	/* Five times, however long others keep the processors in between. */
	for (int i = 0; i < 50 && quick < 5; i++) {
		int64_t at = newest(f), woken;
		struct last l = { 0 };
		pid_t pid = child_start(f, "write", "", NULL);

		expect_eq(atoll_events_wait(f->a, at, 60000, f->res), 1);
		woken = utc_ms();
		expect(atoll_events(f->a, at, 1, take_last, &l, f->res) > at);
		quick += woken - l.at_ms < 100;
		expect_eq(child_wait(pid), 0);
	}
	expect_eq(quick, 5);
}

static void evt_waiting_costs_nothing(void **state)
{
	struct fix *f = *state;
	struct rusage before, after;
	int64_t at = newest(f), began = now_ms();

	expect_eq(atoll_events_wait(f->a, at, 10, f->res), 0);
	expect_eq(getrusage(RUSAGE_SELF, &before), 0);
	expect_eq(atoll_events_wait(f->a, at, 1000, f->res), 0);
	expect_eq(getrusage(RUSAGE_SELF, &after), 0);
	expect(now_ms() - began >= 1000);
	expect_msg(after.ru_nvcsw - before.ru_nvcsw < 10, "%ld wake-ups",
	           after.ru_nvcsw - before.ru_nvcsw);
}

static void evt_descriptor_for_loops(void **state)
{
	struct fix *f = *state;
	int fd = atoll_events_fd(f->a, f->res);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int64_t at = newest(f);

	expect(fd >= 0);
	expect_eq(fd, atoll_events_fd(f->a, f->res));
	expect_eq(atoll_events_wait(f->a, at, 0, f->res), 0);
	expect_eq(poll(&pfd, 1, 50), 0);
	(void)fix_plan(f, "p");
	expect_eq(poll(&pfd, 1, 60000), 1);
	expect_eq(atoll_events_wait(f->a, at, 0, f->res), 1);
	expect_eq(poll(&pfd, 1, 0), 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		mtest(evt_every_change_once_and_in_order),
		mtest(evt_start_with_resources_is_one),
		mtest(evt_piece_by_piece),
		mtest(evt_numbers_never_come_again),
		mtest(evt_others_wake_in_no_time),
		mtest(evt_waiting_costs_nothing),
		mtest(evt_descriptor_for_loops),
	};
	static const struct atest_child children[] = { { "write", child_write }, { NULL, NULL } };

	return atest_main(argc, argv, tests, children);
}
