/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One flight, from queue to end, in a thread of the cache:
 *
 *   1. what is on disk is loaded, if nobody has yet; that may be all
 *   2. the ticket: from here on no other process does the same
 *   3. the file once more, then the record: what another process got or met while we waited is ours
 *   4. else the request
 *   5. the outcome is published, those who wait are told, and only then it is saved
 *   6. fields are set: read, change, write
 *   7. the ticket is given back, the next flight may begin
 */
#include "token/cache-impl.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS     INT64_C(1000000000)
#define LOCK_SLICE_NS (2 * SECOND_NS) /* a close is noticed in between */
#define PAUSE_MAX_NS  (120 * SECOND_NS)
#define REFUSED_NS    (30 * SECOND_NS)
#define RECORD_MAX_NS (3600 * SECOND_NS)

/* How a flight for a token ended. */
struct outcome {
	struct atoll_token *token;
	struct token_failure *failure;
	int64_t pause_ns; /* of a failure */
	bool is_adopted;  /* another process's: nothing is to be saved */
};

/* ---- what is on disk, once ---- */

struct loading {
	struct atoll_tokens *tokens;
	uint64_t clears;
};

static int load_one(void *user, const char *sandbox, struct atoll_token *token)
{
	struct loading *l = user;
	struct entry *e;

	if (!id_ok(sandbox))
		return 0;
	tokens_lock(l->tokens);
	e = l->tokens->clears == l->clears ? entry_intern(l->tokens, sandbox) : NULL;
	if (e && !e->token && e->clears == 0)
		(void)entry_publish(e, atoll_token_ref(token));
	tokens_unlock(l->tokens);
	return 0;
}

void tokens_load(struct atoll_tokens *t)
{
	struct loading l = { t, 0 };

	tokens_lock(t);
	while (t->load == LOAD_RUNNING && !t->is_closing)
		(void)pthread_cond_wait(&t->change, &t->lock);
	if (t->load == LOAD_DONE || t->is_closing) {
		tokens_unlock(t);
		return;
	}
	t->load = LOAD_RUNNING;
	l.clears = t->clears;
	tokens_unlock(t);
	if (disk_ready(&t->disk))
		disk_sweep(&t->disk, load_one, &l);
	tokens_lock(t);
	t->load = LOAD_DONE;
	(void)pthread_cond_broadcast(&t->change);
	tokens_unlock(t);
}

/* ---- the ticket ---- */

/* When the holder does not come to an end we go on without: twice the request, but an answer. */
static void lock_disk(struct atoll_tokens *t, struct entry *e, struct ticket *ticket)
{
	int64_t last = clock_boot_ns() + t->request_ns + SECOND_NS;
	char name[DISK_NAME_LEN];
	int r;

	(void)snprintf(name, sizeof(name), "%s.lk", e->key.stem);
	do {
		int64_t slice = clock_boot_ns() + LOCK_SLICE_NS;
		const struct ticket_options opt = { .command = "tokens",
			                            .deadline = slice < last ? slice : last };

		r = ticket_acquire(ticket, t->disk.fd, name, &opt);
	} while (r == -ATOLL_E_TIMEOUT && clock_boot_ns() < last && !t->is_closing);
}

/* A child of a fork may have the descriptor, too: closing ours would not unlock. */
static void unlock_disk(struct ticket *ticket)
{
	struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (ticket->fd >= 0)
		(void)fcntl(ticket->fd, F_OFD_SETLK, &all);
	ticket_abandon(ticket);
}

/* ---- the request ---- */

static char *copy_key(struct atoll_tokens *t)
{
	char *key;

	tokens_lock(t);
	key = xstrdup(t->key);
	tokens_unlock(t);
	return key;
}

static void ask(struct atoll_tokens *t, struct entry *e, const struct atoll_token *old,
                struct outcome *o)
{
	cleanup_free char *url = xasprintf("%s/v1/sandboxes/%s/auth", t->endpoint, e->id);
	cleanup_answer struct atoll_token_reply *reply = answer_new();
	char *key = copy_key(t);
	const struct atoll_token_request request = { e->id, url, key, t->request_ns / 1000000 };
	const struct answer_to to = { e->id, url, key, token_now(), old };
	int r;

	r = t->send ? t->send(t->user, &request, reply) : http_send(t, &request, reply);
	if (r < 0)
		o->failure = answer_missing(&to, r);
	else
		o->token = answer_token(reply, &to, &o->failure);
	wipe_free(key, strlen(key));
}

/* 1 s, and longer by three fifths with each failure, a fifth more or less; unless the service said how
 * long, or it is no use to ask soon. */
static int64_t pause_after(const struct token_failure *f, unsigned failures)
{
	int64_t ns = SECOND_NS;
	uint32_t dice;

	if (f->pause_ns >= 0)
		return f->pause_ns;
	if (f->status == 401 || f->status == 403 || f->status == 404)
		return REFUSED_NS;
	for (unsigned i = 1; i < failures && ns < PAUSE_MAX_NS; i++)
		ns = ns / 5 * 8;
	ns = ns < PAUSE_MAX_NS ? ns : PAUSE_MAX_NS;
	random_bytes(&dice, sizeof(dice));
	return ns + ns / 1000 * ((int64_t)(dice % 401) - 200);
}

/* ---- what other processes did ---- */

static bool adopt_token(struct atoll_tokens *t, struct entry *e, struct outcome *o)
{
	struct atoll_token *token = NULL, *old = NULL;
	uint64_t rejected;
	bool is_fresh;

	if (disk_read(&t->disk, &e->key, &token) <= 0)
		return false;
	is_fresh = token_age(token, token_now(), t->jitter_permille) == TOKEN_FRESH;
	tokens_lock(t);
	rejected = e->rejected;
	/* Better than nothing while the request is under way. */
	if (!e->token && !is_fresh && token->version != rejected)
		old = entry_publish(e, atoll_token_ref(token));
	tokens_unlock(t);
	atoll_token_unref(old);
	if (!is_fresh || token->version == rejected) {
		atoll_token_unref(token);
		return false;
	}
	o->token = token;
	o->is_adopted = true;
	return true;
}

/* A failure is ours when it came while we waited, or when nobody is to ask yet. */
static bool adopt_failure(const struct flight *f, const struct record *before,
                          const struct record *now, struct outcome *o)
{
	int64_t left = now->real_ns - clock_real_ns();
	bool is_news = before->kind != now->kind || before->attempt != now->attempt;

	if (now->kind != RECORD_FAILED || left > RECORD_MAX_NS ||
	    (!is_news && (left <= 0 || f->is_retry)))
		return false;
	o->failure = token_failure_new(now->code < 0 ? now->code : -EREMOTEIO, now->status, "%s",
	                               now->message);
	o->pause_ns = left > 0 ? left : 0;
	o->is_adopted = true;
	return true;
}

static void write_record(struct atoll_tokens *t, struct entry *e, const struct outcome *o)
{
	struct record rec = { .kind = RECORD_FAILED,
		              .code = o->failure->code,
		              .status = o->failure->status,
		              .real_ns = clock_real_ns() + o->pause_ns };

	(void)snprintf(rec.message, sizeof(rec.message), "%s", o->failure->message);
	record_write(&t->disk, &e->key, &rec);
}

/* ---- the outcome ---- */

static bool is_doomed(struct atoll_tokens *t, const struct flight *f)
{
	bool doomed;

	tokens_lock(t);
	doomed = f->clears != f->entry->clears;
	tokens_unlock(t);
	return doomed;
}

/* Locking: held. The token that goes. */
static struct atoll_token *note_failure(struct entry *e, const struct outcome *o)
{
	struct token_failure *old = e->failure;

	e->failure = token_failure_ref(o->failure);
	e->retry_at = clock_boot_ns() + o->pause_ns;
	token_failure_unref(old);
	/* There is no such sandbox any more. */
	return o->failure->status == 404 ? entry_publish(e, NULL) : NULL;
}

/* Locking: held. */
static struct atoll_token *note_token(struct entry *e, const struct outcome *o)
{
	token_failure_unref(e->failure);
	e->failure = NULL;
	e->failures = 0;
	e->retry_at = 0;
	return entry_publish(e, atoll_token_ref(o->token));
}

/* Tells everybody; also, of a failure, that a token is still valid. */
static void publish(struct atoll_tokens *t, struct flight *f, struct outcome *o)
{
	struct entry *e = f->entry;
	struct atoll_token *old = NULL, *serve;
	struct atoll_token_wait *chain;

	tokens_lock(t);
	if (o->failure && !o->is_adopted)
		o->pause_ns = pause_after(o->failure, ++e->failures);
	if (f->clears == e->clears)
		old = o->token ? note_token(e, o) : note_failure(e, o);
	serve = atoll_token_ref(o->token ? o->token : e->token);
	chain = wait_take_list(&f->waits);
	f->wants_token = false;
	tokens_unlock(t);

	if (serve && token_left(serve, token_now()) > 0)
		wait_end(chain, 0, serve, NULL);
	else
		wait_end(chain, o->failure ? o->failure->code : -EPROTO, NULL, o->failure);
	atoll_token_unref(serve);
	atoll_token_unref(old);
}

/* A clear, here or in another process, may come at any moment: it removes the file after having said
 * so; we look after having written. One of the two finds it. */
static void save(struct atoll_tokens *t, struct flight *f, const struct record *before,
                 struct atoll_token *token)
{
	struct entry *e = f->entry;
	struct record now;

	if (is_doomed(t, f))
		return;
	(void)disk_write(&t->disk, &e->key, token);
	record_read(&t->disk, &e->key, &now);
	if (is_doomed(t, f) || (now.kind == RECORD_CLEARED && now.attempt != before->attempt))
		disk_remove(&t->disk, &e->key);
	else if (now.kind != RECORD_NONE)
		record_remove(&t->disk, &e->key);
}

static void save_outcome(struct atoll_tokens *t, struct flight *f, const struct record *before,
                         const struct outcome *o)
{
	if (o->is_adopted || !disk_ready(&t->disk))
		return;
	if (o->token) {
		save(t, f, before, o->token);
		return;
	}
	if (o->failure->status == 404)
		disk_remove(&t->disk, &f->entry->key);
	write_record(t, f->entry, o);
}

static void get_token(struct atoll_tokens *t, struct flight *f, const struct record *before)
{
	cleanup_token struct atoll_token *old = NULL;
	struct outcome o = { 0 };
	struct record now = { .kind = RECORD_NONE };
	bool is_found = false;

	if (disk_ready(&t->disk)) {
		record_read(&t->disk, &f->entry->key, &now);
		is_found = adopt_token(t, f->entry, &o) || adopt_failure(f, before, &now, &o);
	}
	if (!is_found) {
		tokens_lock(t);
		old = atoll_token_ref(f->clears == f->entry->clears ? f->entry->token : NULL);
		tokens_unlock(t);
		ask(t, f->entry, old, &o);
	}
	publish(t, f, &o);
	save_outcome(t, f, &now, &o);
	atoll_token_unref(o.token);
	token_failure_unref(o.failure);
}

/* ---- fields ---- */

/* What the fields are to be set on: the file's, which other processes write, too. */
static struct atoll_token *base_of(struct atoll_tokens *t, struct flight *f)
{
	struct atoll_token *token = NULL;

	if (is_doomed(t, f))
		return NULL;
	if (disk_ready(&t->disk) && disk_read(&t->disk, &f->entry->key, &token) > 0)
		return token;
	tokens_lock(t);
	token = atoll_token_ref(f->entry->token);
	tokens_unlock(t);
	return token;
}

static struct atoll_token *apply(struct field_set *sets, const struct atoll_token *base)
{
	cleanup_token_fields struct token_fields fields = { 0 };
	bool is_changed = false;

	if (!base || token_fields_copy(&fields, base->fields, base->fields_len) < 0)
		return NULL;
	for (struct field_set *s = sets; s; s = s->next) {
		s->changed = token_fields_set(&fields, s->name, s->value);
		is_changed = is_changed || s->changed > 0;
	}
	return is_changed ? token_with_fields(base, &fields) : NULL;
}

static void set_fields(struct atoll_tokens *t, struct flight *f, struct field_set *sets)
{
	cleanup_token struct atoll_token *base = base_of(t, f);
	cleanup_token struct atoll_token *token = apply(sets, base);
	cleanup_token struct atoll_token *old = NULL;
	struct record before = { .kind = RECORD_NONE };
	struct field_set *next;

	if (token) {
		tokens_lock(t);
		if (f->clears == f->entry->clears && token->version != f->entry->rejected)
			old = entry_publish(f->entry, atoll_token_ref(token));
		tokens_unlock(t);
		if (disk_ready(&t->disk)) {
			record_read(&t->disk, &f->entry->key, &before);
			save(t, f, &before, token);
		}
	}
	for (struct field_set *s = sets; s; s = next) {
		struct atoll_token_wait *w;

		next = s->next;
		tokens_lock(t);
		w = wait_take_slot(&s->wait);
		tokens_unlock(t);
		wait_end(w, s->changed, NULL, NULL);
		free(s);
	}
}

/* ---- the whole ---- */

static struct field_set *take_sets(struct flight *f)
{
	struct field_set *sets = f->sets;

	f->sets = NULL;
	return sets;
}

/* From here on it is joined by those only who want a token. What load found may do. */
static struct field_set *begin(struct atoll_tokens *t, struct flight *f)
{
	cleanup_token struct atoll_token *token = NULL;
	struct atoll_token_wait *chain = NULL;
	struct field_set *sets;
	enum token_age age;

	tokens_lock(t);
	f->has_begun = true;
	f->clears = f->entry->clears;
	sets = take_sets(f);
	token = atoll_token_ref(f->entry->token);
	age = token ? token_age(token, token_now(), t->jitter_permille) : TOKEN_OVER;
	if (age <= TOKEN_SOFT)
		chain = wait_take_list(&f->waits);
	if (age == TOKEN_FRESH)
		f->wants_token = false;
	tokens_unlock(t);
	wait_end(chain, 0, token, NULL);
	return sets;
}

static void cancel(struct atoll_tokens *t, struct flight *f, struct field_set *sets)
{
	struct atoll_token_wait *chain;
	struct field_set *next;

	tokens_lock(t);
	f->wants_token = false;
	chain = wait_take_list(&f->waits);
	tokens_unlock(t);
	wait_end(chain, -ECANCELED, NULL, NULL);
	for (; sets; sets = next) {
		next = sets->next;
		tokens_lock(t);
		chain = wait_take_slot(&sets->wait);
		tokens_unlock(t);
		wait_end(chain, -ECANCELED, NULL, NULL);
		free(sets);
	}
}

static void end(struct atoll_tokens *t, struct flight *f)
{
	struct entry *e = f->entry;

	tokens_lock(t);
	e->running = e->next;
	e->next = NULL;
	/* This thread is one that can take it. */
	if (e->running)
		(void)work_push(t, &e->running->job);
	tokens_unlock(t);
	free(f);
}

static void flight_run(struct atoll_tokens *t, struct job *job)
{
	struct flight *f = (struct flight *)(void *)job;
	struct ticket ticket = TICKET_INIT;
	struct record before = { .kind = RECORD_NONE };
	struct field_set *sets;

	tokens_load(t);
	sets = begin(t, f);
	if ((f->wants_token || sets) && !t->is_closing && disk_ready(&t->disk)) {
		record_read(&t->disk, &f->entry->key, &before);
		lock_disk(t, f->entry, &ticket);
	}
	if (t->is_closing) {
		cancel(t, f, sets);
	} else {
		if (f->wants_token)
			get_token(t, f, &before);
		if (sets)
			set_fields(t, f, sets);
	}
	unlock_disk(&ticket);
	end(t, f);
}

static bool may_join(const struct flight *f, bool wants_token)
{
	if (!f || !f->has_begun)
		return f != NULL;
	return wants_token && f->wants_token && f->clears == f->entry->clears;
}

int flight_for(struct entry *e, bool wants_token, bool is_retry, struct flight **ret)
{
	struct flight *f = may_join(e->running, wants_token) ? e->running : e->next;

	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->job.run = flight_run;
		f->entry = e;
		if (e->running) {
			e->next = f;
		} else {
			int r = work_push(e->tokens, &f->job);

			if (r < 0) {
				free(f);
				return r;
			}
			e->running = f;
		}
	}
	if (wants_token && !f->has_begun) {
		f->wants_token = true;
		f->is_retry = f->is_retry || is_retry || e->is_forgiven;
		e->is_forgiven = false;
	}
	*ret = f;
	return 0;
}
