/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a registry, and who may use its one connection when.
 *
 * A writer first gets its ticket of the store lock, then the connection. So a writer that waits
 * for the store holds nothing, and readers of the same process go on meanwhile; they wait only
 * while a transaction runs. The thread inside a transaction is `owner`: its reads go through.
 */
#include "registry/registry.h"

#include "fs/atomic.h"
#include "lock/ticket.h"
#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCKS_DIR "locks"
#define UUID_LEN  32

#define LOG_MAX_AGE_MS (INT64_C(90) * 24 * 3600 * 1000)
#define LOG_MAX_ROWS   20000

struct wait_settings {
	int64_t wait_ms;
	registry_wait_fn fn;
	void *user;
};

struct registry {
	const struct registry_backend *ops;
	struct backend *backend;
	pid_t pid; /* of the process that opened it; no other may use it */
	int home_fd;
	int locks_fd;
	char uuid[UUID_LEN + 1];

	pthread_mutex_t settings_mutex;
	struct wait_settings wait;
	int64_t log_max_age_ms, log_max_rows;

	pthread_mutex_t connection;
	_Atomic(const void *) owner; /* self() of the thread inside a transaction, or NULL */
	struct ticket ticket;        /* the store lock; the owner's */
};

/* An address that is this thread's alone. */
static const void *self(void)
{
	static _Thread_local char mark;

	return &mark;
}

static bool is_owner(struct registry *r)
{
	return atomic_load_explicit(&r->owner, memory_order_relaxed) == self();
}

static bool after_fork(const struct registry *r)
{
	return r->pid != getpid();
}

static int check_process(const struct registry *r, struct error *err)
{
	if (!after_fork(r))
		return 0;
	return error_set(err, -ATOLL_E_STATE,
	                 "the registry was opened before fork; open it again in the child");
}

static void connection_lock(struct registry *r)
{
	if (pthread_mutex_lock(&r->connection) != 0)
		BUG("cannot lock the registry's connection");
}

static void connection_unlock(struct registry *r)
{
	if (pthread_mutex_unlock(&r->connection) != 0)
		BUG("cannot unlock the registry's connection");
}

/* ---- the store lock ---- */

static struct wait_settings wait_settings(struct registry *r)
{
	struct wait_settings copy;

	(void)pthread_mutex_lock(&r->settings_mutex);
	copy = r->wait;
	(void)pthread_mutex_unlock(&r->settings_mutex);
	return copy;
}

static void on_wait(void *user, const struct ticket_holder *holder)
{
	const struct wait_settings *wait = user;
	cleanup_free char *message = NULL;
	char who[512];

	ticket_describe(holder, who, sizeof(who));
	message = xasprintf("waiting for the store: %s", who);
	wait->fn(wait->user, message);
}

static int lock_failed(int code, const struct ticket_holder *holder, struct error *err)
{
	char who[512];

	if (code == -ATOLL_E_LOCK_UNSUPPORTED) {
		(void)error_set(err, code, "locks do not work on the store's filesystem");
		error_hint(err, "put the store on a local filesystem: export ATOLL_HOME=DIR");
		return code;
	}
	if (code != -ATOLL_E_BUSY && code != -ATOLL_E_TIMEOUT)
		return error_sys(err, code, "lock", LOCKS_DIR "/" REGISTRY_STORE_LOCK);
	if (holder->pid == 0)
		return error_set(err, code, "the store is in use");
	ticket_describe(holder, who, sizeof(who));
	return error_set(err, code, "the store is in use: %s", who);
}

static int store_lock(struct registry *r, struct ticket *t, struct error *err)
{
	struct wait_settings wait = wait_settings(r);
	struct ticket_holder holder = { 0 };
	struct ticket_options opt = {
		.command = program_invocation_short_name,
		.deadline = wait.wait_ms == 0 ? 0 : clock_deadline(wait.wait_ms),
		.on_wait = wait.fn ? on_wait : NULL,
		.user = &wait,
		.ret_holder = &holder,
	};
	int k = ticket_acquire(t, r->locks_fd, REGISTRY_STORE_LOCK, &opt);

	return k < 0 ? lock_failed(k, &holder, err) : 0;
}

/* ---- transactions ---- */

int registry_begin(struct registry *r, enum registry_durability d, struct error *err)
{
	struct ticket ticket = TICKET_INIT;
	int k = check_process(r, err);

	if (k < 0)
		return k;
	if (is_owner(r))
		BUG("a registry transaction inside another");
	k = store_lock(r, &ticket, err);
	if (k < 0)
		return k;
	connection_lock(r);
	k = r->ops->begin(r->backend, d, err);
	if (k < 0) {
		connection_unlock(r);
		ticket_release(&ticket);
		return k;
	}
	r->ticket = ticket;
	atomic_store_explicit(&r->owner, self(), memory_order_relaxed);
	return 0;
}

/* The only way out of a transaction. The connection first: whoever gets the store lock next may
 * be another thread of ours. */
static void transaction_leave(struct registry *r)
{
	struct ticket ticket = r->ticket;

	r->ticket = TICKET_INIT;
	atomic_store_explicit(&r->owner, NULL, memory_order_relaxed);
	connection_unlock(r);
	ticket_release(&ticket);
}

int registry_commit(struct registry *r, struct error *err)
{
	int k = check_process(r, err);

	if (k < 0)
		return k;
	if (!is_owner(r))
		BUG("registry_commit without registry_begin");
	k = r->ops->commit(r->backend, err);
	transaction_leave(r);
	return k;
}

void registry_rollback(struct registry *r)
{
	int saved = errno;

	if (after_fork(r) || !is_owner(r))
		return;
	r->ops->rollback(r->backend);
	transaction_leave(r);
	errno = saved;
}

int registry_sync(struct registry *r, struct error *err)
{
	int k = check_process(r, err);

	if (k < 0)
		return k;
	connection_lock(r);
	k = r->ops->sync(r->backend, err);
	connection_unlock(r);
	return k;
}

void registry_tend(struct registry *r)
{
	const struct ticket_options try_it = { .command = program_invocation_short_name };
	struct ticket ticket = TICKET_INIT;

	if (after_fork(r) || is_owner(r) ||
	    ticket_acquire(&ticket, r->locks_fd, REGISTRY_STORE_LOCK, &try_it) < 0)
		return;
	connection_lock(r);
	r->ops->tend(r->backend);
	connection_unlock(r);
	ticket_release(&ticket);
}

/* The connection, for who may be in a transaction on it already. */
static int connection_enter(struct registry *r, bool *ret_inside, struct error *err)
{
	int k = check_process(r, err);

	if (k < 0)
		return k;
	*ret_inside = is_owner(r);
	if (!*ret_inside)
		connection_lock(r);
	return 0;
}

static void connection_leave(struct registry *r, bool inside)
{
	if (!inside)
		connection_unlock(r);
}

int registry_read(struct registry *r, const char *sql, struct args args, backend_row_fn fn,
                  void *ctx, struct error *err)
{
	bool inside;
	int k = connection_enter(r, &inside, err);

	if (k < 0)
		return k;
	k = r->ops->run(r->backend, sql, args, fn, ctx, err);
	connection_leave(r, inside);
	return k;
}

int registry_write(struct registry *r, const char *sql, struct args args, backend_row_fn fn,
                   void *ctx, struct error *err)
{
	int k = check_process(r, err);

	if (k < 0)
		return k;
	if (!is_owner(r))
		BUG("a registry row is written outside a transaction: %s", sql);
	return r->ops->run(r->backend, sql, args, fn, ctx, err);
}

void registry_prepare(struct registry *r, const char *sql)
{
	bool inside;

	if (connection_enter(r, &inside, NULL) < 0)
		return;
	r->ops->prepare(r->backend, sql);
	connection_leave(r, inside);
}

/* ---- life ---- */

static struct registry *registry_new(int home_fd)
{
	struct registry *r = xcalloc(1, sizeof(*r));

	r->ops = &registry_sqlite;
	r->pid = getpid();
	r->home_fd = home_fd;
	r->locks_fd = FD_NONE;
	r->wait.wait_ms = -1;
	r->log_max_age_ms = LOG_MAX_AGE_MS;
	r->log_max_rows = LOG_MAX_ROWS;
	r->ticket = TICKET_INIT;
	if (pthread_mutex_init(&r->settings_mutex, NULL) != 0 ||
	    pthread_mutex_init(&r->connection, NULL) != 0)
		BUG("cannot make a mutex");
	return r;
}

static int setup_backend(struct registry *r, struct error *err)
{
	struct ticket ticket = TICKET_INIT;
	int k = store_lock(r, &ticket, err);

	if (k < 0)
		return k;
	k = r->ops->setup(r->backend, err);
	ticket_release(&ticket);
	return k;
}

static int uuid_row(void *ctx, const struct value *v, size_t count)
{
	struct cols c = { .v = v, .n = count };

	cols_text(&c, ctx, UUID_LEN + 1);
	return c.code;
}

static int read_uuid(struct registry *r, struct error *err)
{
	static const char sql[] = "SELECT value FROM meta WHERE key = 'uuid'";
	int k = registry_read(r, sql, NO_ARGS, uuid_row, r->uuid, err);

	if (k < 0)
		return k;
	return strlen(r->uuid) == UUID_LEN ? 0 : registry_damaged(r, err, "it has no identity");
}

int registry_open(int home_fd, const char *home, struct registry **ret, struct error *err)
{
	cleanup_registry struct registry *r = NULL;
	int k;

	r = registry_new(fcntl(home_fd, F_DUPFD_CLOEXEC, 3));
	if (r->home_fd < 0)
		return error_sys(err, -errno, "open", home);
	k = fs_private_dir_at(home_fd, LOCKS_DIR, &r->locks_fd);
	if (k < 0)
		return error_sys(err, k, "open", LOCKS_DIR);
	k = r->ops->open(r->home_fd, home, &r->backend, err);
	if (k > 0)
		k = setup_backend(r, err);
	if (k == 0)
		k = read_uuid(r, err);
	if (k < 0)
		return k;
	*ret = take_ptr(r);
	return 0;
}

void registry_close(struct registry *r)
{
	int saved = errno;

	/* A child leaves all of it alone: the connection and the descriptors are its parent's. */
	if (!r || after_fork(r))
		return;
	registry_rollback(r);
	if (r->backend)
		r->ops->close(r->backend);
	close_fd(&r->locks_fd);
	close_fd(&r->home_fd);
	(void)pthread_mutex_destroy(&r->connection);
	(void)pthread_mutex_destroy(&r->settings_mutex);
	free(r);
	errno = saved;
}

void cleanup_registryp(struct registry **r)
{
	registry_close(*r);
}

const char *registry_uuid(const struct registry *r)
{
	return r->uuid;
}

int registry_locks_fd(const struct registry *r)
{
	return r->locks_fd;
}

int registry_home_fd(const struct registry *r)
{
	return r->home_fd;
}

void registry_log_keep(struct registry *r, int64_t max_age_ms, int64_t max_rows)
{
	pthread_mutex_lock(&r->settings_mutex);
	r->log_max_age_ms = max_age_ms;
	r->log_max_rows = max_rows;
	pthread_mutex_unlock(&r->settings_mutex);
}

void registry_log_limits(struct registry *r, int64_t *ret_max_age_ms, int64_t *ret_max_rows)
{
	pthread_mutex_lock(&r->settings_mutex);
	*ret_max_age_ms = r->log_max_age_ms;
	*ret_max_rows = r->log_max_rows;
	pthread_mutex_unlock(&r->settings_mutex);
}

void registry_set_wait(struct registry *r, int64_t wait_ms, registry_wait_fn fn, void *user)
{
	(void)pthread_mutex_lock(&r->settings_mutex);
	r->wait = (struct wait_settings){ .wait_ms = wait_ms, .fn = fn, .user = user };
	(void)pthread_mutex_unlock(&r->settings_mutex);
}

int registry_damaged(const struct registry *r, struct error *err, const char *what)
{
	int k = error_set(err, -ATOLL_E_DAMAGED, "the registry '%s' is damaged: %s",
	                  r->ops->where(r->backend), what);

	error_hint(err, "atoll doctor");
	return k;
}

int registry_version(struct registry *r, uint64_t *ret, struct error *err)
{
	bool inside;
	int k = connection_enter(r, &inside, err);

	if (k < 0)
		return k;
	k = r->ops->version(r->backend, ret, err);
	connection_leave(r, inside);
	return k;
}

/* ---- check ---- */

struct invariant {
	const char *sql; /* counts the offenders */
	const char *what;
};

static const struct invariant invariants[] = {
	{ "SELECT count(*) FROM plan WHERE batch <> 0 AND NOT EXISTS "
	  "(SELECT 1 FROM batch WHERE batch.plan = plan.id AND batch.number = plan.batch)",
	  "a plan names a batch that does not exist" },
	/* PREPARING, DECIDED, REVOKED; several may be undone together. */
	{ "SELECT count(*) FROM (SELECT plan FROM batch WHERE state IN (0, 1, 2) "
	  "GROUP BY plan HAVING count(*) > 1) AS twice",
	  "a plan has two unfinished batches" },
	{ "SELECT count(*) FROM path WHERE path NOT LIKE '/%'", "a recorded path is not absolute" },
};

int registry_check(struct registry *r, struct error *err)
{
	int64_t offenders = 0;
	bool inside;
	int k = check_process(r, err);

	if (k < 0)
		return k;
	inside = is_owner(r);
	if (!inside)
		connection_lock(r);
	k = r->ops->check(r->backend, err);
	if (!inside)
		connection_unlock(r);
	for (size_t i = 0; k >= 0 && i < sizeof(invariants) / sizeof(invariants[0]); i++) {
		k = rows_number(r, invariants[i].sql, NO_ARGS, &offenders, err);
		if (k > 0 && offenders > 0)
			k = registry_damaged(r, err, invariants[i].what);
	}
	return k < 0 ? k : 0;
}
