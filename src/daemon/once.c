/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are made once. */
#include "daemon/once.h"

#include "daemon/reply.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Those of this process that are under way: locks tell of the others. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct once *under_way;

static bool is_same(const struct once *a, const struct once *b)
{
	return strcmp(a->row.key, b->row.key) == 0 && strcmp(a->row.sender, b->row.sender) == 0;
}

static bool enter(struct once *o)
{
	bool free;

	(void)pthread_mutex_lock(&mutex);
	free = true;
	for (const struct once *u = under_way; u && free; u = u->next)
		free = !is_same(u, o);
	if (free) {
		o->next = under_way;
		under_way = o;
		o->given = true;
	}
	(void)pthread_mutex_unlock(&mutex);
	return free;
}

void once_done(struct once *o)
{
	if (!o->given)
		return;
	close_fd(&o->held_fd);
	(void)pthread_mutex_lock(&mutex);
	for (struct once **at = &under_way; *at; at = &(*at)->next) {
		if (*at != o)
			continue;
		*at = o->next;
		break;
	}
	(void)pthread_mutex_unlock(&mutex);
	o->given = false;
}

/* ---- the key ---- */

static int answer(struct call *c, unsigned status, int code, const char *text)
{
	struct error err = ERROR_INIT;
	int r;

	(void)error_set(&err, code, "%s", text);
	r = reply_error_as(c, status, &err);
	return r < 0 ? r : 1;
}

int once_busy(struct call *c)
{
	reply_header(c, "Retry-After", "1");
	return answer(c, 409, -ATOLL_E_BUSY,
	              "a request with this Idempotency-Key is still under way");
}

static int check_key(struct call *c, const char *key)
{
	size_t n = 0;

	for (; key[n]; n++)
		if (key[n] <= ' ' || key[n] > '~')
			break;
	if (n == 0 || key[n] || n > REQUEST_KEY_LEN)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "the Idempotency-Key is to be 1 to %d visible ASCII characters",
		                 REQUEST_KEY_LEN);
	return 0;
}

static void describe(const struct call *c, struct request_row *row, const char *key)
{
	cleanup_hash struct hash *h = hash_new();

	(void)snprintf(row->key, sizeof(row->key), "%s", key);
	(void)snprintf(row->sender, sizeof(row->sender), "%s",
	               c->who.by_socket ? "socket" : c->who.credential.id);
	/* With their NULs, so that nothing moves from one to the next. */
	hash_add(h, c->method, strlen(c->method) + 1);
	hash_add(h, c->target, strlen(c->target) + 1);
	hash_add(h, c->body, c->body_len);
	hash_text(h, row->digest);
}

/* ---- the row ---- */

static int write_row(struct registry *reg, void *ctx, struct error *err)
{
	return registry_request_insert(reg, ctx, err);
}

static int write_made(struct registry *reg, void *ctx, struct error *err)
{
	return registry_request_update(reg, ctx, err);
}

static int write_gone(struct registry *reg, void *ctx, struct error *err)
{
	const struct request_row *row = ctx;

	return registry_request_delete(reg, row->sender, row->key, err);
}

static int look(struct call *c, struct once *o)
{
	struct request_row row;
	int r = registry_request_get(c->atoll->reg, o->row.sender, o->row.key, &row, &c->err);

	if (r <= 0)
		return r;
	if (row.created_ms < clock_real_ms() - REQUEST_KEPT_MS) {
		once_failed(c, o); /* its time is over */
		return 0;
	}
	if (strcmp(row.digest, o->row.digest) != 0 || row.kind != o->row.kind)
		return answer(c, 422, -ATOLL_E_INVALID,
		              "this Idempotency-Key was used for another request");
	(void)pthread_mutex_lock(&mutex); /* others compare their keys with it */
	o->row = row;
	(void)pthread_mutex_unlock(&mutex);
	o->again = true;
	return 0;
}

int once_begin(struct call *c, struct once *o, enum request_kind kind)
{
	const char *key = call_header(c, "Idempotency-Key");
	int r = key ? check_key(c, key) : 0;

	if (r < 0 || !key)
		return r;
	describe(c, &o->row, key);
	o->row.kind = kind;
	if (!enter(o))
		return once_busy(c);
	return look(c, o);
}

int once_hold(struct call *c, struct once *o)
{
	if (!o->given)
		return 0;
	o->held_fd = registry_request_hold(c->atoll->reg, o->row.sender, o->row.key);
	if (o->held_fd == -ATOLL_E_BUSY)
		return once_busy(c);
	return o->held_fd < 0 ? error_sys(&c->err, o->held_fd, "hold", "the request") : 0;
}

int once_record(struct call *c, struct once *o)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	if (!o->given || o->again)
		return 0;
	o->row.created_ms = clock_real_ms();
	r = store_write(c->atoll, REGISTRY_DURABLE, write_row, &o->row, &err);
	if (r == -ATOLL_E_EXISTS) /* by another daemon of this store, just now */
		return once_busy(c);
	if (r < 0)
		error_move(&c->err, &err);
	return r;
}

int once_made(struct call *c, struct once *o)
{
	if (!o->given)
		return 0;
	o->row.made = true;
	return store_write(c->atoll, REGISTRY_DURABLE, write_made, &o->row, &c->err);
}

void once_failed(struct call *c, struct once *o)
{
	if (o->given)
		(void)store_write(c->atoll, REGISTRY_DURABLE, write_gone, &o->row, NULL);
}
