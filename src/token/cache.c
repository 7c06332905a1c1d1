/* SPDX-License-Identifier: Apache-2.0 */
/* The cache and its entries: making, finding, closing. */
#include "token/cache-impl.h"

#include "strategy/result.h"
#include "token/curl.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_FIRST    64
#define REQUEST_NS     INT64_C(10000000000)
#define TEXT_MAX       4096
#define JITTER_PERMILL 100

/* Threads remember tokens by the number of the entry: an address would come back. */
static _Atomic uint64_t last_number;

void tokens_lock(struct atoll_tokens *t)
{
	if (pthread_mutex_lock(&t->lock) != 0)
		BUG("lock of the tokens");
}

void tokens_unlock(struct atoll_tokens *t)
{
	if (pthread_mutex_unlock(&t->lock) != 0)
		BUG("unlock of the tokens");
}

/* ---- ids ---- */

bool id_ok(const char *id)
{
	static const char first[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
	static const char more[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@~-";
	size_t n = strnlen(id, ID_MAX + 1);

	return n > 0 && n <= ID_MAX && strchr(first, id[0]) && strspn(id, more) == n;
}

uint64_t id_hash(const char *id, size_t *ret_len)
{
	*ret_len = strnlen(id, ID_MAX + 1);
	return hash64(id, *ret_len);
}

/* ---- entries ---- */

static struct entry_table *table_new(size_t size)
{
	struct entry_table *table = calloc(1, sizeof(*table) + size * sizeof(table->slot[0]));

	if (table)
		table->mask = size - 1;
	return table;
}

static void table_put(struct entry_table *table, struct entry *e)
{
	size_t i = e->hash & table->mask;

	while (atomic_load_explicit(&table->slot[i], memory_order_relaxed))
		i = (i + 1) & table->mask;
	atomic_store_explicit(&table->slot[i], e, memory_order_release);
}

static int table_grow(struct atoll_tokens *t, struct entry_table *old)
{
	struct entry_table *table = table_new((old->mask + 1) * 2);

	if (!table)
		return -ENOMEM;
	for (size_t i = 0; i <= old->mask; i++) {
		struct entry *e = atomic_load_explicit(&old->slot[i], memory_order_relaxed);

		if (e)
			table_put(table, e);
	}
	table->older = old;
	atomic_store_explicit(&t->table, table, memory_order_release);
	return 0;
}

struct entry *entry_find(struct atoll_tokens *t, const char *id, uint64_t hash, size_t len)
{
	struct entry_table *table = atomic_load_explicit(&t->table, memory_order_acquire);

	for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
		struct entry *e = atomic_load_explicit(&table->slot[i], memory_order_acquire);

		if (!e || (e->hash == hash && memcmp(e->id, id, len) == 0 && e->id[len] == '\0'))
			return e;
	}
}

struct entry *entry_intern(struct atoll_tokens *t, const char *id)
{
	struct entry_table *table = atomic_load_explicit(&t->table, memory_order_relaxed);
	size_t len, size;
	uint64_t hash = id_hash(id, &len);
	struct entry *e = entry_find(t, id, hash, len);

	if (e)
		return e;
	if ((t->n_entries + 1) * 2 > table->mask + 1 && table_grow(t, table) < 0)
		return NULL;
	/* A line of the processor's cache of its own, for what is read often. */
	size = (sizeof(*e) + ID_MAX + 1 + 63) / 64 * 64;
	e = aligned_alloc(64, size);
	if (!e)
		return NULL;
	memset(e, 0, size);
	e->number = atomic_fetch_add(&last_number, 1) + 1;
	atomic_init(&e->seq, 1);
	e->tokens = t;
	e->hash = hash;
	memcpy(e->id, id, len + 1);
	disk_key(&t->disk, e->id, &e->key);
	t->n_entries++;
	table_put(atomic_load_explicit(&t->table, memory_order_relaxed), e);
	return e;
}

struct atoll_token *entry_publish(struct entry *e, struct atoll_token *token)
{
	struct atoll_token *old = e->token;

	e->token = token;
	(void)atomic_fetch_add_explicit(&e->seq, 1, memory_order_release);
	return old;
}

static void free_entries(struct atoll_tokens *t)
{
	struct entry_table *table = atomic_load(&t->table), *older;

	for (size_t i = 0; i <= table->mask; i++) {
		struct entry *e = atomic_load(&table->slot[i]);

		if (!e)
			continue;
		atoll_token_unref(e->token);
		token_failure_unref(e->failure);
		free(e);
	}
	for (; table; table = older) {
		older = table->older;
		free(table);
	}
}

/* ---- opening and closing ---- */

static bool line_ok(const char *text)
{
	for (size_t i = 0; text[i] != '\0'; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || i >= TEXT_MAX)
			return false;
	}
	return true;
}

static int check_config(const struct atoll_tokens_config *c, struct error *err)
{
	if (!c->endpoint || !line_ok(c->endpoint) || !line_ok(c->principal ? c->principal : ""))
		return error_set(err, -ATOLL_E_INVALID,
		                 "an endpoint and a principal are one line of text each");
	if (c->key && c->key[0] != '\0' && !token_text_ok(c->key, strlen(c->key)))
		return error_set(err, -ATOLL_E_INVALID,
		                 "the key has other than printable characters");
	return c->send ? 0 : curl_check_endpoint(c->endpoint, c->unix_socket != NULL, err);
}

void tokens_init_sync(struct atoll_tokens *t)
{
	pthread_condattr_t attr;

	(void)pthread_mutex_init(&t->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&t->work, &attr);
	(void)pthread_cond_init(&t->change, &attr);
	(void)pthread_cond_init(&t->timer, &attr);
	(void)pthread_condattr_destroy(&attr);
}

static char *without_slashes(const char *endpoint)
{
	char *copy = xstrdup(endpoint);

	for (size_t n = strlen(copy); n > 0 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	return copy;
}

int atoll_tokens_open(const struct atoll_tokens_config *config, struct atoll_tokens **ret_tokens,
                      struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct atoll_tokens *t;
	uint32_t dice;
	int r;

	result_reset(res);
	r = check_config(config, &err);
	if (r < 0)
		return result_set(res, &err, r);
	t = xcalloc(1, sizeof(*t));
	tokens_init_sync(t);
	random_bytes(&dice, sizeof(dice));
	t->jitter_permille = (int)(dice % (2 * JITTER_PERMILL + 1)) - JITTER_PERMILL;
	atomic_init(&t->table, table_new(TABLE_FIRST));
	if (!atomic_load(&t->table))
		BUG("out of memory");
	t->endpoint = without_slashes(config->endpoint);
	t->unix_socket = xstrdup(config->unix_socket);
	t->key = xstrdup(config->key ? config->key : "");
	t->send = config->send;
	t->user = config->user;
	t->request_ns = config->request_ms > 0 ? config->request_ms * 1000000 : REQUEST_NS;
	t->disk = (struct disk){ .path = xstrdup(config->dir),
		                 .endpoint = xstrdup(t->endpoint),
		                 .principal = xstrdup(config->principal ? config->principal : ""),
		                 .notice = config->notice,
		                 .user = config->user,
		                 .once = PTHREAD_ONCE_INIT,
		                 .fd = FD_NONE };
	fork_add(t);
	*ret_tokens = t;
	return 0;
}

/* What has not begun ends here; what runs finds that the cache closes. */
static void cancel_queued(struct atoll_tokens *t)
{
	while (t->jobs) {
		struct job *job = t->jobs;

		t->jobs = job->next;
		t->queued--;
		tokens_unlock(t);
		job->run(t, job);
		tokens_lock(t);
	}
	t->last_job = NULL;
}

void atoll_tokens_close(struct atoll_tokens *t)
{
	if (!t)
		return;
	fork_remove(t);
	tokens_lock(t);
	t->is_closing = true;
	(void)pthread_cond_broadcast(&t->work);
	(void)pthread_cond_broadcast(&t->timer);
	(void)pthread_cond_broadcast(&t->change);
	cancel_queued(t);
	work_join(t);
	cancel_queued(t);
	tokens_unlock(t);
	free_entries(t);
	disk_close(&t->disk);
	wipe_free(t->key, strlen(t->key));
	free(t->endpoint);
	free(t->unix_socket);
	(void)pthread_cond_destroy(&t->work);
	(void)pthread_cond_destroy(&t->change);
	(void)pthread_cond_destroy(&t->timer);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

int atoll_tokens_set_key(struct atoll_tokens *t, const char *key, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct entry_table *table;
	char *copy, *old;

	result_reset(res);
	if (key && key[0] != '\0' && !token_text_ok(key, strlen(key)))
		return result_set(res, &err,
		                  error_set(&err, -ATOLL_E_INVALID,
		                            "the key has other than printable characters"));
	copy = xstrdup(key ? key : "");
	tokens_lock(t);
	old = t->key;
	t->key = copy;
	table = atomic_load(&t->table);
	for (size_t i = 0; i <= table->mask; i++) {
		struct entry *e = atomic_load(&table->slot[i]);

		if (e)
			e->is_forgiven = true;
	}
	tokens_unlock(t);
	wipe_free(old, strlen(old));
	return 0;
}

int atoll_tokens_handle(struct atoll_tokens *t, const char *id,
                        struct atoll_token_handle **ret_handle, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	struct entry *e;

	result_reset(res);
	if (!id_ok(id))
		return result_set(res, &err,
		                  error_set(&err, -ATOLL_E_INVALID,
		                            "the id of a sandbox is 1 to %d of [A-Za-z0-9._:@~-]",
		                            ID_MAX));
	tokens_lock(t);
	e = entry_intern(t, id);
	tokens_unlock(t);
	if (!e)
		return result_set(res, &err, error_set(&err, -ENOMEM, "no memory for a handle"));
	*ret_handle = (struct atoll_token_handle *)e;
	return 0;
}
