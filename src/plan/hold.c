/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's lock held across several operations that are made through one handle of the plan.
 *
 * The hold has the ticket; an operation is lent it and gives it back, one at a time. So whatever an
 * operation does with its lock (its epoch, the descriptor for the helper, the thread's own list) it
 * does with the one that is held, and nobody outside notices where one operation ends and the next
 * begins. All holds of the process are guarded by one mutex: they change hands once per operation.
 */
#include "plan/hold.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plan/plan-op.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define ASK_EACH_NS (200 * INT64_C(1000000)) /* whether a wait goes on */

struct plan_hold {
	struct plan_lock lock;
	pid_t pid;
	bool lent;
};

static pthread_mutex_t holds = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER; /* one was, or its hold has ended */

/* ---- lending ---- */

static void wait_a_moment(int64_t deadline)
{
	int64_t left = deadline == CLOCK_NEVER ? ASK_EACH_NS : deadline - clock_boot_ns();
	int64_t until;
	struct timespec ts;

	if (left > ASK_EACH_NS)
		left = ASK_EACH_NS;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	until = timespec_ns(&ts) + (left > 0 ? left : 0);
	ts = (struct timespec){ .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
	(void)pthread_cond_clockwait(&returned, &holds, CLOCK_MONOTONIC, &ts);
}

/* Without the mutex: it is the caller's function. */
static bool given_up(void)
{
	bool over;

	pthread_mutex_unlock(&holds);
	over = lock_cancelled();
	pthread_mutex_lock(&holds);
	return over;
}

/* 1: lent; 0: nobody holds it through P. */
static int borrow(struct plan_lock *l, struct atoll_plan *p, int64_t deadline)
{
	while (p->hold && p->hold->lent) {
		if (deadline == 0)
			return -ATOLL_E_BUSY;
		if (clock_boot_ns() >= deadline)
			return -ATOLL_E_TIMEOUT;
		if (given_up())
			return -ECANCELED;
		wait_a_moment(deadline);
	}
	if (!p->hold)
		return 0;
	p->hold->lent = true;
	l->ticket = p->hold->lock.ticket;
	l->hold = p->hold;
	return 1;
}

int hold_borrow(struct plan_lock *l, struct atoll_plan *p, int64_t deadline, struct error *err)
{
	int r;

	pthread_mutex_lock(&holds);
	r = borrow(l, p, deadline);
	pthread_mutex_unlock(&holds);
	if (r == -ECANCELED)
		return error_set(err, r, "nobody waits for plan '%s' any more; nothing was changed",
		                 p->name);
	if (r < 0)
		return error_set(err, r,
		                 "plan '%s' is being worked on by another thread of this process; "
		                 "nothing was changed",
		                 p->name);
	return r;
}

void hold_return(struct plan_lock *l)
{
	l->ticket = TICKET_INIT;
	pthread_mutex_lock(&holds);
	l->hold->lent = false;
	l->hold = NULL;
	pthread_cond_broadcast(&returned);
	pthread_mutex_unlock(&holds);
}

/* ---- holding ---- */

static bool is_held(struct atoll_plan *p)
{
	bool held;

	pthread_mutex_lock(&holds);
	held = p->hold != NULL;
	pthread_mutex_unlock(&holds);
	return held;
}

int plan_hold(struct atoll_plan *p, const char *verb, const char *detail, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = verb, .detail = detail, .flags = OP_QUIET };
	struct plan_hold *h;
	int r;

	if (is_held(p))
		return error_set(err, -ATOLL_E_WOULD_DEADLOCK,
		                 "plan '%s' is held through this handle already", p->name);
	r = plan_op_begin(&op, p, &opt, err);
	if (r < 0)
		return r;
	h = xcalloc(1, sizeof(*h));
	h->pid = getpid();
	plan_lock_hand_over(&op.lock, &h->lock);
	/* What died with the last holder is settled: our own operations are not told again. */
	h->lock.ticket.owner_died = false;
	pthread_mutex_lock(&holds);
	p->hold = h;
	pthread_mutex_unlock(&holds);
	return 0;
}

/* Operations that wait for it find none and take the lock by themselves. False: it was not held. */
static bool end_hold(struct atoll_plan *p)
{
	cleanup_free struct plan_hold *h = NULL;

	pthread_mutex_lock(&holds);
	h = p->hold;
	p->hold = NULL;
	pthread_cond_broadcast(&returned);
	while (h && h->lent)
		pthread_cond_wait(&returned, &holds);
	pthread_mutex_unlock(&holds);
	if (h)
		ticket_release(&h->lock.ticket);
	return h != NULL;
}

void plan_hold_end(struct atoll_plan *p)
{
	if (p->hold && p->hold->pid != getpid()) {
		/* In a child it is still the parent's, whose threads may have had the mutex. */
		ticket_abandon(&p->hold->lock.ticket);
		cleanup_freep(&p->hold);
	} else if (p->hold) {
		(void)end_hold(p);
	}
}

int plan_let_go(struct atoll_plan *p, struct error *err)
{
	if (plan_lock_of_thread(p->id))
		return error_set(err, -ATOLL_E_WOULD_DEADLOCK,
		                 "plan '%s' is being worked on by the caller itself; it is still "
		                 "held",
		                 p->name);
	if (!end_hold(p))
		return error_set(err, -ATOLL_E_STATE, "plan '%s' is not held through this handle",
		                 p->name);
	return 0;
}
