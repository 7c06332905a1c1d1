/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting a token.
 *
 * Each thread remembers the tokens it got last, with a reference and with the span of time in which
 * they need no second look: at most a tenth of a second, and not beyond their end. Within it a get is
 * one load of the entry's seq, which nobody writes while the token stays, and one look at a clock that
 * costs little. So threads do not disturb one another.
 */
#include "token/cache-impl.h"

#include "strategy/result.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS         64
#define LOOK_AGAIN_NS INT64_C(100000000)

struct slot {
	uint64_t number; /* of the entry; 0: none */
	uint64_t seq;
	int64_t since, span; /* by the coarse clock */
	struct atoll_token *token;
};

struct slots {
	struct slot slot[SLOTS];
};

static _Thread_local struct slots *mine;
static pthread_key_t slots_key;
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

/* ---- what this thread remembers ---- */

static void free_slots(void *arg)
{
	struct slots *s = arg;

	for (size_t i = 0; i < SLOTS; i++)
		atoll_token_unref(s->slot[i].token);
	free(s);
	mine = NULL;
}

static void make_key(void)
{
	if (pthread_key_create(&slots_key, free_slots) != 0)
		BUG("pthread_key_create");
}

static int64_t coarse_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static struct slot *slot_of(const struct entry *e)
{
	if (!mine) {
		(void)pthread_once(&slots_once, make_key);
		mine = calloc(1, sizeof(*mine));
		if (!mine || pthread_setspecific(slots_key, mine) != 0)
			BUG("no memory for the tokens of a thread");
	}
	return &mine->slot[e->number % SLOTS];
}

/* Takes the reference over. SEQ is from before the token was read: if it is older, we look again. */
static struct atoll_token *remember(const struct entry *e, uint64_t seq, struct atoll_token *token)
{
	struct slot *s = slot_of(e);
	int64_t left = token_left(token, token_now());

	atoll_token_unref(s->token);
	s->token = token;
	s->number = e->number;
	s->seq = seq;
	s->since = coarse_ns();
	s->span = left < LOOK_AGAIN_NS ? left : LOOK_AGAIN_NS;
	return token;
}

static inline struct atoll_token *remembered(struct entry *e)
{
	struct slots *all = mine;
	struct slot *s;

	if (!all)
		return NULL;
	s = &all->slot[e->number % SLOTS];
	if (s->number != e->number || s->seq != atomic_load_explicit(&e->seq, memory_order_acquire))
		return NULL;
	/* Also when the clock was set back. */
	if ((uint64_t)(coarse_ns() - s->since) >= (uint64_t)s->span)
		return NULL;
	return s->token;
}

/* ---- judging ---- */

static bool must_pause(const struct entry *e, unsigned flags, int64_t now)
{
	return e->failure && now < e->retry_at && !e->is_forgiven &&
	       (flags & ATOLL_TOKEN_RETRY) == 0;
}

void entry_judge(struct entry *e, unsigned flags, struct verdict *ret)
{
	struct token_now now = token_now();
	enum token_age age =
		e->token ? token_age(e->token, now, e->tokens->jitter_permille) : TOKEN_OVER;
	bool is_paused = must_pause(e, flags, now.boot_ns);

	*ret = (struct verdict){ 0 };
	/* In passing; whether that works is the next caller's concern. */
	if (age == TOKEN_SOFT && !is_paused && !e->running)
		(void)flight_for(e, true, false, &ret->flight);
	ret->flight = NULL;
	if (age <= TOKEN_SOFT || (is_paused && age < TOKEN_OVER)) {
		ret->token = atoll_token_ref(e->token);
	} else if (is_paused) {
		ret->failure = token_failure_ref(e->failure);
		ret->code = ret->failure->code;
		ret->pause_ns = e->retry_at - now.boot_ns;
	} else {
		ret->code = flight_for(e, true, (flags & ATOLL_TOKEN_RETRY) != 0, &ret->flight);
	}
}

static int tell_verdict(struct verdict *v, struct error *err)
{
	if (v->failure) {
		(void)token_failure_tell(v->failure, v->pause_ns, err);
		token_failure_unref(v->failure);
		return v->code;
	}
	return error_set(err, v->code, "cannot start a thread to ask for a token");
}

/* ---- blocking ---- */

static int sleep_for(struct entry *e, struct atoll_token_wait *w, int64_t deadline,
                     struct error *err)
{
	struct atoll_tokens *t = e->tokens;
	bool is_linked;
	int r;

	if (!wait_sleep(w, deadline)) {
		tokens_lock(t);
		is_linked = atomic_load(&w->state) == WAIT_LINKED;
		if (is_linked)
			wait_unlink(w);
		tokens_unlock(t);
		if (is_linked)
			return error_set(err, -ATOLL_E_TIMEOUT,
			                 "no token for sandbox '%s' in time; the request goes on",
			                 e->id);
		/* It is being ended this very moment. */
		(void)wait_sleep(w, CLOCK_NEVER);
	}
	r = wait_tell(w, err);
	token_failure_unref(w->failure);
	return r;
}

static int refuse_wait(const struct entry *e, int64_t wait_ms, struct error *err)
{
	if (wait_ms == 0)
		return error_set(err, -ATOLL_E_BUSY,
		                 "no token for sandbox '%s' yet; it was asked for", e->id);
	return error_set(err, -ATOLL_E_WOULD_DEADLOCK,
	                 "a callback may not wait for a token for sandbox '%s'", e->id);
}

static int get_slowly(struct entry *e, int64_t wait_ms, unsigned flags,
                      struct atoll_token **ret_token, struct error *err)
{
	uint64_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	bool may_wait = wait_ms != 0 && !work_is_inside();
	struct atoll_token_wait w;
	struct verdict v;
	int r;

	wait_init(&w, e->tokens);
	tokens_lock(e->tokens);
	entry_judge(e, flags, &v);
	if (v.flight && may_wait)
		wait_link(&v.flight->waits, &w);
	tokens_unlock(e->tokens);
	if (!v.token) {
		if (v.code < 0)
			return tell_verdict(&v, err);
		if (!may_wait)
			return refuse_wait(e, wait_ms, err);
		r = sleep_for(e, &w, clock_deadline(wait_ms), err);
		if (r < 0)
			return r;
		v.token = w.token;
	}
	*ret_token = remember(e, seq, v.token);
	return 0;
}

static int get(struct entry *e, int64_t wait_ms, unsigned flags, struct atoll_token **ret_token,
               struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	result_reset(res);
	if ((flags & ~ATOLL_TOKEN_RETRY) != 0)
		r = error_set(&err, -ATOLL_E_INVALID, "unknown flags 0x%x", flags);
	else
		r = get_slowly(e, wait_ms, flags, ret_token, &err);
	return result_set(res, &err, r);
}

int atoll_token_get(struct atoll_token_handle *h, int64_t wait_ms, unsigned flags,
                    struct atoll_token **ret_token, struct atoll_result *res)
{
	struct entry *e = (struct entry *)(void *)h;
	struct atoll_token *token = remembered(e);

	if (!token || (flags & ~ATOLL_TOKEN_RETRY) != 0)
		return get(e, wait_ms, flags, ret_token, res);
	if (res)
		result_reset(res);
	*ret_token = token;
	return 0;
}

int atoll_tokens_get(struct atoll_tokens *t, const char *id, int64_t wait_ms, unsigned flags,
                     struct atoll_token **ret_token, struct atoll_result *res)
{
	size_t len;
	uint64_t hash = id_hash(id, &len);
	struct entry *e = entry_find(t, id, hash, len);
	struct atoll_token_handle *h;
	int r;

	if (!e) {
		r = atoll_tokens_handle(t, id, &h, res);
		if (r < 0)
			return r;
		return atoll_token_get(h, wait_ms, flags, ret_token, res);
	}
	return atoll_token_get((struct atoll_token_handle *)(void *)e, wait_ms, flags, ret_token,
	                       res);
}

/* ---- not blocking ---- */

int atoll_token_start(struct atoll_token_handle *h, const struct atoll_token_call *call,
                      struct atoll_token **ret_token, struct atoll_token_wait **ret_wait,
                      struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct entry *e = (struct entry *)(void *)h;
	struct atoll_token_wait *w = NULL;
	struct verdict v;
	int r;

	result_reset(res);
	if ((call->flags & ~ATOLL_TOKEN_RETRY) != 0)
		return result_set(
			res, &err,
			error_set(&err, -ATOLL_E_INVALID, "unknown flags 0x%x", call->flags));
	v.token = remembered(e);
	if (v.token) {
		*ret_token = atoll_token_ref(v.token);
		return 1;
	}
	r = wait_new(e->tokens, call, &w, &err);
	if (r < 0)
		return result_set(res, &err, r);
	tokens_lock(e->tokens);
	entry_judge(e, call->flags, &v);
	if (v.flight) {
		*ret_wait = w; /* before its callback can run */
		wait_link(&v.flight->waits, w);
		wait_arm(w);
	}
	tokens_unlock(e->tokens);
	if (v.flight)
		return 0;
	atoll_token_wait_free(w);
	if (!v.token)
		return result_set(res, &err, tell_verdict(&v, &err));
	*ret_token = v.token;
	return 1;
}
