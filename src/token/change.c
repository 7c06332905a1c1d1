/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the cache from outside: a token that was refused, fields, and clear. */
#include "token/cache-impl.h"

#include "strategy/result.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- a token that was refused ---- */

int atoll_token_invalidate(struct atoll_token_handle *h, uint64_t version)
{
	struct entry *e = (struct entry *)(void *)h;
	struct atoll_token *old = NULL;
	bool is_current;

	tokens_lock(e->tokens);
	is_current = e->token && e->token->version == version;
	if (is_current) {
		e->rejected = version;
		old = entry_publish(e, NULL);
	}
	tokens_unlock(e->tokens);
	atoll_token_unref(old);
	return is_current;
}

/* ---- fields ---- */

static int make_set(const char *name, const char *json, struct field_set **ret, struct error *err)
{
	size_t len = strlen(json);
	struct field_set *s;

	if (!token_field_name_ok(name) || strcmp(name, "token") == 0 ||
	    strcmp(name, "expires_in") == 0)
		return error_set(err, -ATOLL_E_INVALID, "a field cannot have this name");
	if (len > TOKEN_FIELDS_MAX || json_check(json, len) < 0)
		return error_set(err, -ATOLL_E_INVALID, "what field '%s' is to be is not JSON",
		                 name);
	s = xcalloc(1, sizeof(*s) + len + 1);
	memcpy(s->name, name, strlen(name) + 1);
	(void)json_compact(json, len, s->value);
	*ret = s;
	return 0;
}

/* Locking: held. */
static int queue_set(struct entry *e, struct field_set *s, struct atoll_token_wait *w)
{
	struct field_set **last;
	struct flight *f;
	int r = flight_for(e, false, false, &f);

	if (r < 0)
		return r;
	for (last = &f->sets; *last;)
		last = &(*last)->next;
	*last = s;
	wait_link_slot(&s->wait, w);
	return 0;
}

static int queue_set_or_free(struct entry *e, struct field_set *s, struct atoll_token_wait *w,
                             struct error *err)
{
	int r;

	tokens_lock(e->tokens);
	r = queue_set(e, s, w);
	if (r == 0 && !w->is_blocking)
		wait_arm(w);
	tokens_unlock(e->tokens);
	if (r == 0)
		return 0;
	free(s);
	return error_set(err, r, "cannot start a thread to set a field");
}

int atoll_token_set_field(struct atoll_token_handle *h, const char *name, const char *json,
                          struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct entry *e = (struct entry *)(void *)h;
	struct atoll_token_wait w;
	struct field_set *s;
	int r;

	result_reset(res);
	r = work_is_inside() ? error_set(&err, -ATOLL_E_WOULD_DEADLOCK,
	                                 "a callback may not wait for a field to be set")
	                     : make_set(name, json, &s, &err);
	if (r == 0) {
		wait_init(&w, e->tokens);
		r = queue_set_or_free(e, s, &w, &err);
	}
	if (r == 0) {
		(void)wait_sleep(&w, CLOCK_NEVER);
		r = wait_tell(&w, &err);
	}
	return result_set(res, &err, r);
}

int atoll_token_start_set_field(struct atoll_token_handle *h, const char *name, const char *json,
                                const struct atoll_token_call *call,
                                struct atoll_token_wait **ret_wait, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct entry *e = (struct entry *)(void *)h;
	struct atoll_token_wait *w = NULL;
	struct field_set *s = NULL;
	int r;

	result_reset(res);
	r = make_set(name, json, &s, &err);
	if (r < 0)
		return result_set(res, &err, r);
	r = wait_new(e->tokens, call, &w, &err);
	if (r < 0) {
		free(s);
		return result_set(res, &err, r);
	}
	*ret_wait = w; /* before its callback can run */
	r = queue_set_or_free(e, s, w, &err);
	if (r < 0)
		atoll_token_wait_free(w);
	return result_set(res, &err, r);
}

/* ---- clear ---- */

static void forget(struct entry *e)
{
	e->clears++;
	e->rejected = 0;
	e->retry_at = 0;
	atoll_token_unref(entry_publish(e, NULL));
}

/* ID NULL: all. What is said to be cleared here, before its file goes, no flight brings back. */
static void clear_memory(struct atoll_tokens *t, const char *id)
{
	struct entry_table *table;
	struct entry *e;

	tokens_lock(t);
	if (id) {
		e = entry_intern(t, id);
		if (e)
			forget(e);
	} else {
		t->clears++;
		table = atomic_load(&t->table);
		for (size_t i = 0; i <= table->mask; i++) {
			e = atomic_load(&table->slot[i]);
			if (e)
				forget(e);
		}
	}
	tokens_unlock(t);
}

static int answer_remove(void *user, const char *sandbox, struct atoll_token *token)
{
	(void)user;
	(void)sandbox;
	(void)token;
	return 1;
}

static void clear_disk(struct atoll_tokens *t, const char *id)
{
	struct record rec = { .kind = RECORD_CLEARED };
	struct disk_key key;

	if (!disk_ready(&t->disk))
		return;
	if (!id) {
		disk_sweep(&t->disk, answer_remove, NULL);
		return;
	}
	disk_key(&t->disk, id, &key);
	record_write(&t->disk, &key, &rec);
	disk_remove(&t->disk, &key);
}

static int check_clear(const char *id, struct error *err)
{
	if (id && !id_ok(id))
		return error_set(err, -ATOLL_E_INVALID, "this is not the id of a sandbox");
	return 0;
}

int atoll_tokens_clear(struct atoll_tokens *t, const char *id, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	result_reset(res);
	r = check_clear(id, &err);
	if (r == 0) {
		clear_memory(t, id);
		clear_disk(t, id);
	}
	return result_set(res, &err, r);
}

struct clearing {
	struct job job;
	struct atoll_token_wait *wait; /* a slot */
	char id[ID_MAX + 1];           /* "": all */
};

static void clear_run(struct atoll_tokens *t, struct job *job)
{
	struct clearing *c = (struct clearing *)(void *)job;
	struct atoll_token_wait *w;

	clear_disk(t, c->id[0] != '\0' ? c->id : NULL);
	tokens_lock(t);
	w = wait_take_slot(&c->wait);
	tokens_unlock(t);
	wait_end(w, 0, NULL, NULL);
	free(c);
}

int atoll_tokens_start_clear(struct atoll_tokens *t, const char *id,
                             const struct atoll_token_call *call,
                             struct atoll_token_wait **ret_wait, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct atoll_token_wait *w = NULL;
	struct clearing *c;
	int r;

	result_reset(res);
	r = check_clear(id, &err);
	if (r == 0)
		r = wait_new(t, call, &w, &err);
	if (r < 0)
		return result_set(res, &err, r);
	*ret_wait = w; /* before its callback can run */
	c = xcalloc(1, sizeof(*c));
	c->job.run = clear_run;
	memcpy(c->id, id ? id : "", id ? strlen(id) : 0);
	clear_memory(t, id);
	tokens_lock(t);
	r = work_push(t, &c->job);
	if (r == 0) {
		wait_link_slot(&c->wait, w);
		wait_arm(w);
	}
	tokens_unlock(t);
	if (r < 0) {
		free(c);
		atoll_token_wait_free(w);
		return result_set(res, &err, error_set(&err, r, "cannot start a thread to clear"));
	}
	return 0;
}
