/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's lock, held by every operation that changes the plan, for its whole length. */
#include "plan/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/atomic.h"
#include "plan/hold.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define HOLDER_TEXT_LEN 320

/* Plans this thread holds: a strategy that calls back into its own plan must not wait for itself. */
static _Thread_local struct plan_lock *held_by_thread;

static _Thread_local struct lock_cancel *cancel_of_thread;

void lock_cancel_begin(struct lock_cancel *c, bool (*cancelled)(void *ctx), void *ctx)
{
	*c = (struct lock_cancel){ .cancelled = cancelled, .ctx = ctx, .outer = cancel_of_thread };
	cancel_of_thread = c;
}

void lock_cancel_end(struct lock_cancel *c)
{
	if (c->cancelled)
		cancel_of_thread = c->outer;
	c->cancelled = NULL;
}

bool lock_cancelled(void)
{
	const struct lock_cancel *c = cancel_of_thread;

	return c && c->cancelled(c->ctx);
}

struct waiting {
	struct atoll *a;
	const char *subject;
};

static void tell(void *user, const struct ticket_holder *holder)
{
	const struct waiting *w = user;
	char who[HOLDER_TEXT_LEN];
	char line[HOLDER_TEXT_LEN * 2];

	ticket_describe(holder, who, sizeof(who));
	(void)snprintf(line, sizeof(line), "waiting for %s: %s", w->subject, who);
	store_tell_waiting(w->a, line);
}

int lock_ticket(struct ticket *t, struct atoll *a, const char *file, const char *subject,
                const char *what, int64_t deadline, struct error *err)
{
	struct waiting w = { .a = a, .subject = subject };
	const struct lock_cancel *cancel = cancel_of_thread;
	struct ticket_holder holder = { 0 };
	const struct ticket_options opt = { .command = what,
		                            .deadline = deadline,
		                            .on_wait = store_tells_waiting(a) ? tell : NULL,
		                            .user = &w,
		                            .cancelled = cancel ? cancel->cancelled : NULL,
		                            .cancelled_ctx = cancel ? cancel->ctx : NULL,
		                            .ret_holder = &holder };
	char who[HOLDER_TEXT_LEN];
	int r = ticket_acquire(t, registry_locks_fd(a->reg), file, &opt);

	if (r >= 0)
		return 0;
	if (r == -ECANCELED)
		return error_set(err, r, "nobody waits for %s any more; nothing was changed",
		                 subject);
	if (r != -ATOLL_E_TIMEOUT && r != -ATOLL_E_BUSY) {
		cleanup_free char *path = xasprintf("%s/locks/%s", a->home, file);

		(void)error_sys(err, r, "take the lock", path);
		return error_prefix(err, r, "nothing was changed");
	}
	holder.ahead = 0; /* we are in no queue any more */
	ticket_describe(&holder, who, sizeof(who));
	(void)error_set(err, r, "%s is held by %s; nothing was changed", subject, who);
	error_hint(err, "wait for it to end, or give a longer --wait");
	return r;
}

bool plan_lock_of_thread(const char *plan_id)
{
	for (const struct plan_lock *l = held_by_thread; l; l = l->next)
		if (strcmp(l->plan, plan_id) == 0)
			return true;
	return false;
}

static int check_thread(const char *plan_id, const char *plan_name, struct error *err)
{
	if (!plan_lock_of_thread(plan_id))
		return 0;
	return error_set(err, -ATOLL_E_WOULD_DEADLOCK,
	                 "plan '%s' is being worked on by the caller itself", plan_name);
}

/* L is granted. */
static void enlist(struct plan_lock *l, struct atoll *a, const char *plan_id)
{
	l->a = a;
	(void)snprintf(l->plan, sizeof(l->plan), "%s", plan_id);
	l->held = true;
	l->next = held_by_thread;
	held_by_thread = l;
}

static void delist(struct plan_lock *l)
{
	for (struct plan_lock **p = &held_by_thread; *p; p = &(*p)->next) {
		if (*p == l) {
			*p = l->next;
			break;
		}
	}
	l->held = false;
}

int plan_lock_acquire(struct plan_lock *l, struct atoll *a, const char *plan_id,
                      const char *plan_name, const char *what, int64_t deadline, struct error *err)
{
	char file[PLAN_ID_LEN + sizeof(".plan")];
	char subject[LIMIT_NAME + sizeof("plan ''")];
	int r = check_thread(plan_id, plan_name, err);

	(void)snprintf(file, sizeof(file), "%.*s.plan", PLAN_ID_LEN, plan_id);
	(void)snprintf(subject, sizeof(subject), "plan '%.*s'", LIMIT_NAME, plan_name);
	if (r == 0 && !sabotage("plan-lock"))
		r = lock_ticket(&l->ticket, a, file, subject, what, deadline, err);
	if (r == 0)
		enlist(l, a, plan_id);
	return r;
}

int plan_lock_for(struct plan_lock *l, struct atoll_plan *p, const char *what, int64_t deadline,
                  struct error *err)
{
	int r = check_thread(p->id, p->name, err);

	if (r == 0)
		r = hold_borrow(l, p, deadline, err);
	if (r == 0)
		return plan_lock_acquire(l, p->a, p->id, p->name, what, deadline, err);
	if (r < 0)
		return r;
	enlist(l, p->a, p->id);
	return 0;
}

void plan_lock_hand_over(struct plan_lock *from, struct plan_lock *to)
{
	delist(from);
	*to = *from;
	to->held = true;
	to->next = NULL;
	*from = PLAN_LOCK_INIT;
}

void plan_lock_release(struct plan_lock *l)
{
	if (!l->held)
		return;
	delist(l);
	if (l->hold)
		hold_return(l);
	else
		ticket_release(&l->ticket);
}

int plan_lock_holder(struct atoll *a, const char *plan_id, struct ticket_holder *ret)
{
	char file[PLAN_ID_LEN + sizeof(".plan")];

	(void)snprintf(file, sizeof(file), "%.*s.plan", PLAN_ID_LEN, plan_id);
	return ticket_peek(registry_locks_fd(a->reg), file, ret);
}

bool plan_lock_held(struct atoll *a, const char *plan_id)
{
	struct ticket_holder holder;

	return plan_lock_holder(a, plan_id, &holder) != 0;
}

void plan_lock_forget(struct atoll *a, const char *plan_id)
{
	static const char *const suffixes[] = { "plan", "own" };
	char file[PLAN_ID_LEN + sizeof(".plan")];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(file, sizeof(file), "%.*s.%s", PLAN_ID_LEN, plan_id, suffixes[i]);
		(void)fs_unlink_at(registry_locks_fd(a->reg), file);
	}
}
