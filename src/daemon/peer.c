/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of connections, and the thread that ends the late ones.
 *
 * A stage changes without a lock: its deadline is an atomic of the peer. The thread is woken only for a
 * deadline that is earlier than the one it sleeps for, which under load is once in a while, and
 * without connections never. Descriptors are shut down under the lock that also guards their removal,
 * so that none is closed, and its number given out again, in between.
 */
#include "daemon/peer.h"

#include "util/clock.h"
#include "util/error.h"
#include "util/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_MS            INT64_C(1000000)
#define NS_PER_S             INT64_C(1000000000)
#define SLOWEST_BYTES_PER_MS 64

struct peers {
	pthread_mutex_t mutex; /* guards the list, and closing */
	pthread_cond_t changed;
	pthread_t thread;
	bool closing;
	struct peer_limits limits;
	_Atomic int64_t wake_at; /* what the thread sleeps for */
	struct peer *first;
	size_t n;
	_Atomic uint64_t late;
};

/* The earliest deadline; those that are late are shut down. Under the lock. */
static int64_t end_late(struct peers *t)
{
	int64_t now = clock_boot_ns(), next = CLOCK_NEVER;

	for (struct peer *p = t->first; p; p = p->next) {
		int64_t at = atomic_load(&p->deadline);

		if (at <= now) {
			/* Counted first: who sees its end and asks finds it counted. */
			atomic_fetch_add(&t->late, 1);
			atomic_store(&p->deadline, CLOCK_NEVER);
			(void)shutdown(p->fd, SHUT_RDWR);
		} else if (at < next) {
			next = at;
		}
	}
	return next;
}

static void sleep_until(struct peers *t, int64_t at)
{
	struct timespec ts;
	int64_t left = at - clock_boot_ns();

	if (at == CLOCK_NEVER) {
		(void)pthread_cond_wait(&t->changed, &t->mutex);
		return;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	left += ts.tv_nsec;
	ts.tv_sec += left / NS_PER_S;
	ts.tv_nsec = left % NS_PER_S;
	if (left > 0)
		(void)pthread_cond_timedwait(&t->changed, &t->mutex, &ts);
}

static void *watch(void *arg)
{
	struct peers *t = arg;

	(void)pthread_mutex_lock(&t->mutex);
	while (!t->closing) {
		int64_t next;

		/* Announced before it is looked for: who sets an earlier one from here on sees that
		 * the thread may sleep past it, and wakes it. */
		atomic_store(&t->wake_at, CLOCK_NEVER);
		next = end_late(t);
		if (!t->first)
			(void)malloc_trim(0); /* nobody asks: what the last ones took goes back */
		atomic_store(&t->wake_at, next);
		sleep_until(t, next);
	}
	(void)pthread_mutex_unlock(&t->mutex);
	return NULL;
}

static int start_thread(struct peers *t)
{
	pthread_condattr_t attr;
	sigset_t all, before;
	int r;

	(void)pthread_mutex_init(&t->mutex, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&t->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&t->thread, NULL, watch, t);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

int peers_open(const struct peer_limits *limits, struct peers **ret)
{
	struct peers *t = xcalloc(1, sizeof(*t));
	int r;

	t->limits = *limits;
	atomic_store(&t->wake_at, CLOCK_NEVER);
	r = start_thread(t);
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void peers_close(struct peers *t)
{
	if (!t)
		return;
	if (t->first)
		BUG("%zu connections are left", t->n);
	(void)pthread_mutex_lock(&t->mutex);
	t->closing = true;
	(void)pthread_cond_signal(&t->changed);
	(void)pthread_mutex_unlock(&t->mutex);
	(void)pthread_join(t->thread, NULL);
	(void)pthread_cond_destroy(&t->changed);
	(void)pthread_mutex_destroy(&t->mutex);
	free(t);
}

static void name_address(struct peer *p)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	memset(&ss, 0, sizeof(ss));
	if (getpeername(p->fd, (struct sockaddr *)&ss, &len) < 0)
		return;
	p->is_unix = ss.ss_family == AF_UNIX;
	if (ss.ss_family == AF_INET)
		(void)inet_ntop(AF_INET, &((struct sockaddr_in *)&ss)->sin_addr, p->address,
		                sizeof(p->address));
	else if (ss.ss_family == AF_INET6)
		(void)inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&ss)->sin6_addr, p->address,
		                sizeof(p->address));
}

/* ---- how many ---- */

/* Under the lock, as all of these. */
static void displace(struct peer *p)
{
	p->displaced = true;
	(void)shutdown(p->fd, SHUT_RDWR);
}

/* ADDRESS NULL: whatever its address. */
static bool is_among(const struct peer *p, const void *place, const char *address)
{
	return !p->displaced && p->place == place && (!address || strcmp(p->address, address) == 0);
}

static unsigned count_among(const struct peers *t, const void *place, const char *address)
{
	unsigned n = 0;

	for (const struct peer *p = t->first; p; p = p->next)
		n += is_among(p, place, address);
	return n;
}

static struct peer *oldest(const struct peers *t, enum peer_stage stage, const struct peer *newest,
                           const char *address)
{
	struct peer *found = NULL;

	for (struct peer *p = t->first; p; p = p->next)
		if (p != newest && is_among(p, newest->place, address) &&
		    atomic_load(&p->stage) == (int)stage &&
		    (!found || atomic_load(&p->since) < atomic_load(&found->since)))
			found = p;
	return found;
}

/* NEWEST is in the table. */
static void hold_limit(const struct peers *t, unsigned limit, struct peer *newest,
                       const char *address)
{
	struct peer *gives_way;

	if (newest->displaced || count_among(t, newest->place, address) <= limit)
		return;
	gives_way = oldest(t, PEER_HEAD, newest, address);
	if (!gives_way)
		gives_way = oldest(t, PEER_IDLE, newest, address);
	displace(gives_way ? gives_way : newest);
}

struct peer *peer_add(struct peers *t, int fd, const void *place)
{
	struct peer *p = xcalloc(1, sizeof(*p));

	p->fd = fd;
	p->place = place;
	atomic_store(&p->deadline, CLOCK_NEVER);
	atomic_store(&p->since, clock_boot_ns());
	name_address(p);
	(void)pthread_mutex_lock(&t->mutex);
	p->next = t->first;
	if (p->next)
		p->next->prev = p;
	t->first = p;
	t->n++;
	if (!p->is_unix)
		hold_limit(t, t->limits.address, p, p->address);
	hold_limit(t, t->limits.place, p, NULL);
	(void)pthread_mutex_unlock(&t->mutex);
	peer_enter(t, p, PEER_HEAD);
	return p;
}

void peer_remove(struct peers *t, struct peer *p)
{
	(void)pthread_mutex_lock(&t->mutex);
	if (p->next)
		p->next->prev = p->prev;
	if (p->prev)
		p->prev->next = p->next;
	else
		t->first = p->next;
	t->n--;
	(void)pthread_mutex_unlock(&t->mutex);
	free(p);
}

static void enter(struct peers *t, struct peer *p, enum peer_stage stage, int64_t more_ms)
{
	int64_t limit = t->limits.ms[stage];
	int64_t at = limit > 0 ? clock_boot_ns() + (limit + more_ms) * NS_PER_MS : CLOCK_NEVER;

	/* Of the first head since the connection is there, and not since its first line. */
	if (atomic_exchange(&p->stage, (int)stage) != (int)stage)
		atomic_store(&p->since, clock_boot_ns());
	atomic_store(&p->deadline, at);
	if (at >= atomic_load(&t->wake_at))
		return;
	(void)pthread_mutex_lock(&t->mutex);
	(void)pthread_cond_signal(&t->changed);
	(void)pthread_mutex_unlock(&t->mutex);
}

void peer_enter(struct peers *t, struct peer *p, enum peer_stage stage)
{
	enter(t, p, stage, 0);
}

void peer_enter_sending(struct peers *t, struct peer *p, uint64_t bytes)
{
	enter(t, p, PEER_SENDING, (int64_t)(bytes / SLOWEST_BYTES_PER_MS));
}

void peers_end(struct peers *t, bool idle_only)
{
	(void)pthread_mutex_lock(&t->mutex);
	for (struct peer *p = t->first; p; p = p->next) {
		int stage = atomic_load(&p->stage);

		if (!idle_only || stage == PEER_IDLE || stage == PEER_HEAD)
			(void)shutdown(p->fd, SHUT_RDWR);
	}
	(void)pthread_mutex_unlock(&t->mutex);
}

size_t peers_count(struct peers *t)
{
	size_t n;

	(void)pthread_mutex_lock(&t->mutex);
	n = t->n;
	(void)pthread_mutex_unlock(&t->mutex);
	return n;
}

uint64_t peers_late(struct peers *t)
{
	return atomic_load(&t->late);
}
