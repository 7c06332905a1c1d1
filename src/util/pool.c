/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of threads over a growing stack of items. One lock guards everything: an item is a
 * directory's worth of system calls, so it is held for a vanishing part of the time. Threads are
 * started as items come in and nobody is idle, so a small tree starts none.
 */
#include "util/pool.h"

#include "util/mem.h"
#include "util/progress.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define POOL_MAX_DEFAULT 8

struct pool {
	pool_fn fn;
	void *ctx;
	struct progress *progress; /* the caller's */
	unsigned max_threads;      /* besides the caller's */
	pthread_t *threads;

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t wake;  /* an item came, or the run is over */
	unsigned n_threads;
	unsigned running; /* workers inside FN: they may still push */
	unsigned idle;    /* workers waiting for WAKE */
	void **items;
	size_t n_items;
	size_t cap_items;
	int failure; /* of the first FN that failed */
};

/* Waits for an item and takes it; false: the run is over. With the lock held. */
static bool take_item(struct pool *p, void **ret_item)
{
	while (p->failure == 0 && p->n_items == 0 && p->running > 0) {
		p->idle++;
		pthread_cond_wait(&p->wake, &p->lock);
		p->idle--;
	}
	if (p->failure != 0 || p->n_items == 0)
		return false;
	*ret_item = p->items[--p->n_items];
	return true;
}

static void *work(void *arg)
{
	struct pool *p = arg;
	void *item;

	progress_attach(p->progress);
	pthread_mutex_lock(&p->lock);
	while (take_item(p, &item)) {
		int r;

		p->running++;
		pthread_mutex_unlock(&p->lock);
		r = p->fn(p, p->ctx, item);
		pthread_mutex_lock(&p->lock);
		p->running--;
		if (r < 0 && p->failure == 0)
			p->failure = r;
		if (p->failure != 0 || (p->n_items == 0 && p->running == 0))
			pthread_cond_broadcast(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* With the lock held. A thread that cannot be had is done without. */
static void start_thread(struct pool *p)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&p->threads[p->n_threads], NULL, work, p) == 0)
		p->n_threads++;
	else
		p->max_threads = p->n_threads;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void add_item(struct pool *p, void *item)
{
	void *items = p->items;

	if (grow(&items, &p->cap_items, p->n_items + 1, sizeof(*p->items)) < 0)
		abort();
	p->items = items;
	p->items[p->n_items++] = item;
}

void pool_push(struct pool *p, void *item)
{
	pthread_mutex_lock(&p->lock);
	add_item(p, item);
	if (p->idle > 0)
		pthread_cond_signal(&p->wake);
	/* A worker woken for an earlier item counts as idle until it runs. */
	if (p->n_items > p->idle && p->failure == 0 && p->n_threads < p->max_threads)
		start_thread(p);
	pthread_mutex_unlock(&p->lock);
}

/* No more threads are started once the caller's own worker is done: the run is over then, and
 * whoever pushes still is in the last FN of a failed run. */
static void join_threads(struct pool *p)
{
	unsigned n;

	pthread_mutex_lock(&p->lock);
	n = p->n_threads;
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < n; i++)
		pthread_join(p->threads[i], NULL);
}

int pool_run(unsigned threads, pool_fn fn, void *ctx, void *first_item)
{
	struct pool p = {
		.fn = fn,
		.ctx = ctx,
		.progress = progress_current(),
		.max_threads = threads > 1 ? threads - 1 : 0,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.wake = PTHREAD_COND_INITIALIZER,
	};

	p.threads = xcalloc(p.max_threads, sizeof(*p.threads));
	add_item(&p, first_item);
	(void)work(&p);
	join_threads(&p);

	/* After a failure items may be left; FN will not see them. */
	for (size_t i = 0; i < p.n_items; i++)
		free(p.items[i]);
	free(p.items);
	free(p.threads);
	pthread_cond_destroy(&p.wake);
	pthread_mutex_destroy(&p.lock);
	return p.failure;
}

unsigned pool_default_threads(void)
{
	cpu_set_t cpus;
	long n;

	/* What we may run on, where the kernel's mask fits; else all that are online. */
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = CPU_COUNT(&cpus);
	else
		n = sysconf(_SC_NPROCESSORS_ONLN);
	if (n < 1)
		return 1;
	return n > POOL_MAX_DEFAULT ? POOL_MAX_DEFAULT : (unsigned)n;
}
