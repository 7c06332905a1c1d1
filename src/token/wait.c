/* SPDX-License-Identifier: Apache-2.0 */
/* Waits: who wants to know how something ends, by sleeping, by a callback, or by a descriptor. */
#include "token/cache-impl.h"

#include "strategy/result.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The futex's clock stands still while the machine sleeps; deadlines do not. */
#define LONGEST_SLEEP_NS INT64_C(1000000000)

/* Its address names the thread. */
static _Thread_local char this_thread;

static void set_state(struct atoll_token_wait *w, enum wait_state state)
{
	if (state == WAIT_TAKEN)
		w->taker = &this_thread;
	atomic_store_explicit(&w->state, state, memory_order_release);
}

static enum wait_state state_of(struct atoll_token_wait *w)
{
	return (enum wait_state)atomic_load_explicit(&w->state, memory_order_acquire);
}

/* ---- lists ---- */

void wait_link(struct wait_list *list, struct atoll_token_wait *w)
{
	w->list = list;
	w->prev = NULL;
	w->next = list->first;
	if (w->next)
		w->next->prev = w;
	list->first = w;
}

void wait_link_slot(struct atoll_token_wait **slot, struct atoll_token_wait *w)
{
	w->slot = slot;
	*slot = w;
}

void wait_unlink(struct atoll_token_wait *w)
{
	if (w->slot) {
		*w->slot = NULL;
	} else if (w->list) {
		*(w->prev ? &w->prev->next : &w->list->first) = w->next;
		if (w->next)
			w->next->prev = w->prev;
	}
	w->slot = NULL;
	w->list = NULL;
	w->next = w->prev = NULL;
}

struct atoll_token_wait *wait_take_list(struct wait_list *list)
{
	struct atoll_token_wait *chain = list->first;

	for (struct atoll_token_wait *w = chain; w; w = w->next) {
		w->list = NULL;
		set_state(w, WAIT_TAKEN);
	}
	list->first = NULL;
	return chain;
}

struct atoll_token_wait *wait_take_slot(struct atoll_token_wait **slot)
{
	struct atoll_token_wait *w = *slot;

	if (w) {
		wait_unlink(w);
		set_state(w, WAIT_TAKEN);
	}
	return w;
}

/* ---- ending ---- */

void wait_done(struct atoll_token_wait *w)
{
	atoll_token_unref(w->token);
	token_failure_unref(w->failure);
	close_fd(&w->fd);
}

/* From DONE on the memory is its owner's: the address only serves to wake whoever sleeps there. */
static void wake_done(struct atoll_token_wait *w)
{
	_Atomic uint32_t *word = &w->state;

	set_state(w, WAIT_DONE);
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void call_back(struct atoll_token_wait *w)
{
	w->fn(w->user, w);
	if (!w->free_itself) {
		wake_done(w);
		return;
	}
	wait_done(w);
	free(w);
}

static void end_one(struct atoll_token_wait *w)
{
	const uint64_t one = 1;

	if (w->free_itself) {
		/* By the callback of one before it. */
		wait_done(w);
		free(w);
		return;
	}
	if (w->is_blocking) {
		wake_done(w);
		return;
	}
	set_state(w, WAIT_READY);
	if (w->fn) {
		call_back(w);
		return;
	}
	(void)write(w->fd, &one, sizeof(one));
	wake_done(w);
}

void wait_end(struct atoll_token_wait *chain, int code, struct atoll_token *token,
              struct token_failure *failure)
{
	struct atoll_token_wait *next;

	for (struct atoll_token_wait *w = chain; w; w = next) {
		next = w->next;
		w->code = code;
		w->token = atoll_token_ref(token);
		w->failure = token_failure_ref(failure);
		end_one(w);
	}
}

int wait_tell(const struct atoll_token_wait *w, struct error *err)
{
	if (w->code >= 0)
		return w->code;
	if (w->failure)
		return token_failure_tell(w->failure, 0, err);
	if (w->code == -ATOLL_E_TIMEOUT)
		return error_set(err, w->code,
		                 "no token in time; the request goes on without this caller");
	return error_set(err, w->code, "the wait for a token was ended: %s",
	                 error_code_name(w->code));
}

/* ---- sleeping ---- */

bool wait_sleep(struct atoll_token_wait *w, int64_t deadline)
{
	for (;;) {
		uint32_t state = (uint32_t)state_of(w);
		int64_t ns = LONGEST_SLEEP_NS;
		struct timespec ts;

		if (state == WAIT_DONE)
			return true;
		if (deadline != CLOCK_NEVER) {
			int64_t left = deadline - clock_boot_ns();

			if (left <= 0)
				return false;
			ns = left < ns ? left : ns;
		}
		ts = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
		(void)syscall(SYS_futex, &w->state, FUTEX_WAIT_PRIVATE, state, &ts, NULL, 0);
	}
}

/* ---- deadlines of those who do not sleep ---- */

/* All that are over, TAKEN, in a chain; and when the next one is. */
static struct atoll_token_wait *take_late(struct atoll_tokens *t, int64_t *ret_next)
{
	struct atoll_token_wait *chain = NULL;
	int64_t now = clock_boot_ns();

	*ret_next = CLOCK_NEVER;
	for (struct atoll_token_wait *w = t->waits; w; w = w->all_next) {
		/* One that is in no list yet is just being started. */
		if (state_of(w) != WAIT_LINKED || (!w->list && !w->slot) ||
		    w->deadline == CLOCK_NEVER)
			continue;
		if (w->deadline > now) {
			*ret_next = w->deadline < *ret_next ? w->deadline : *ret_next;
			continue;
		}
		wait_unlink(w);
		set_state(w, WAIT_TAKEN);
		w->next = chain;
		chain = w;
	}
	return chain;
}

static void *timer_main(void *arg)
{
	struct atoll_tokens *t = arg;

	work_set_inside(true);
	tokens_lock(t);
	while (!t->is_closing) {
		int64_t next;
		struct atoll_token_wait *late = take_late(t, &next);

		if (late) {
			tokens_unlock(t);
			wait_end(late, -ATOLL_E_TIMEOUT, NULL, NULL);
			tokens_lock(t);
			continue;
		}
		if (next == CLOCK_NEVER)
			break;
		next -= clock_boot_ns();
		work_wait(t, &t->timer, next < LONGEST_SLEEP_NS ? next : LONGEST_SLEEP_NS);
	}
	t->has_timer = false;
	work_thread_ends(t);
	return NULL;
}

void wait_arm(struct atoll_token_wait *w)
{
	struct atoll_tokens *t = w->tokens;

	if (w->deadline == CLOCK_NEVER)
		return;
	/* Without a thread the wait ends with its flight. */
	if (!t->has_timer)
		t->has_timer = work_thread(t, timer_main) == 0;
	else
		(void)pthread_cond_signal(&t->timer);
}

/* ---- making and freeing ---- */

void wait_init(struct atoll_token_wait *w, struct atoll_tokens *t)
{
	*w = (struct atoll_token_wait){ .tokens = t, .is_blocking = true, .fd = FD_NONE };
	w->deadline = CLOCK_NEVER;
}

int wait_new(struct atoll_tokens *t, const struct atoll_token_call *call,
             struct atoll_token_wait **ret, struct error *err)
{
	struct atoll_token_wait *w = xcalloc(1, sizeof(*w));

	wait_init(w, t);
	w->is_blocking = false;
	w->deadline = clock_deadline(call->wait_ms);
	w->fn = call->fn;
	w->user = call->user;
	if (!w->fn)
		w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!w->fn && w->fd < 0) {
		int r = error_sys(err, -errno, "make", "eventfd");

		free(w);
		return r;
	}
	tokens_lock(t);
	w->all_next = t->waits;
	w->all_link = &t->waits;
	if (w->all_next)
		w->all_next->all_link = &w->all_next;
	t->waits = w;
	tokens_unlock(t);
	*ret = w;
	return 0;
}

int atoll_token_wait_fd(const struct atoll_token_wait *w)
{
	return w->fd;
}

int atoll_token_wait_result(struct atoll_token_wait *w, struct atoll_token **ret_token,
                            struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	result_reset(res);
	if (state_of(w) < WAIT_READY)
		return result_set(res, &err,
		                  error_set(&err, -EAGAIN, "the token is not there yet"));
	r = wait_tell(w, &err);
	if (r >= 0 && ret_token)
		*ret_token = atoll_token_ref(w->token);
	return result_set(res, &err, r);
}

void atoll_token_wait_free(struct atoll_token_wait *w)
{
	struct atoll_tokens *t = w ? w->tokens : NULL;
	bool is_linked;

	if (!w)
		return;
	tokens_lock(t);
	is_linked = state_of(w) == WAIT_LINKED;
	if (is_linked)
		wait_unlink(w);
	*w->all_link = w->all_next;
	if (w->all_next)
		w->all_next->all_link = w->all_link;
	tokens_unlock(t);
	/* In its own callback, or in that of another which this thread ends before it. */
	if (!is_linked && state_of(w) < WAIT_DONE && w->taker == &this_thread) {
		w->free_itself = true;
		return;
	}
	if (!is_linked)
		(void)wait_sleep(w, CLOCK_NEVER);
	wait_done(w);
	free(w);
}
