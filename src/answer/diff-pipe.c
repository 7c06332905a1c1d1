/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs on their way from the reader to the output: a ring, in the order they were made. Workers take
 * the next one that nobody compares yet; the reader, when the ring is full or its bytes are too many,
 * shows the oldest, after comparing it itself if it must. Few jobs never start a thread.
 */
#include "answer/diff-view.h"

#include "util/mem.h"
#include "util/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define RING_JOBS    64         /* each holds up to two descriptors */
#define RING_BYTES   (8u << 20) /* of content, all together; a larger job travels alone */
#define THREADS_FROM 16         /* jobs */
#define CHUNK        8          /* jobs taken at once: waking a thread costs as much as one does */
#define THREADS_MAX  8

struct diff_pipe {
	struct diff_view *v;
	diff_show_fn show;
	int failed; /* the first code of SHOW */
	pthread_mutex_t lock;
	pthread_cond_t work; /* there is a job to take, or it is the end */
	pthread_cond_t done; /* one was compared */
	struct diff_job *ring[RING_JOBS];
	size_t first, taken, end; /* growing; first <= taken <= end <= first + RING_JOBS */
	uint64_t bytes;
	bool is_waited; /* the reader waits for one that is compared */
	pthread_t threads[THREADS_MAX];
	size_t n_threads;
	bool is_over;
};

struct diff_pipe *diff_pipe_new(struct diff_view *v, diff_show_fn show)
{
	struct diff_pipe *p = xcalloc(1, sizeof(*p));

	p->v = v;
	p->show = show;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->work, NULL);
	(void)pthread_cond_init(&p->done, NULL);
	return p;
}

/* Compares up to MAX that nobody has taken. The lock is held on entry and on return. */
static void compare_some(struct diff_pipe *p, size_t max)
{
	size_t from = p->taken, n = p->end - p->taken;

	n = n < max ? n : max;
	p->taken += n;
	(void)pthread_mutex_unlock(&p->lock);
	for (size_t i = 0; i < n; i++)
		diff_job_compare(p->v, p->ring[(from + i) % RING_JOBS]);
	(void)pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < n; i++)
		p->ring[(from + i) % RING_JOBS]->is_compared = true;
	if (p->is_waited)
		(void)pthread_cond_signal(&p->done);
}

static void *worker(void *arg)
{
	struct diff_pipe *p = arg;

	(void)pthread_mutex_lock(&p->lock);
	while (!p->is_over) {
		if (p->end - p->taken >= CHUNK)
			compare_some(p, CHUNK);
		else
			(void)pthread_cond_wait(&p->work, &p->lock);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Without threads it only takes longer. */
static void start_threads(struct diff_pipe *p)
{
	size_t wanted = pool_default_threads() - 1;
	sigset_t all, old;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	while (p->n_threads < wanted && p->n_threads < THREADS_MAX &&
	       pthread_create(&p->threads[p->n_threads], NULL, worker, p) == 0)
		p->n_threads++;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Shows the oldest. */
static void retire(struct diff_pipe *p)
{
	struct diff_job *job = p->ring[p->first % RING_JOBS];
	int r;

	(void)pthread_mutex_lock(&p->lock);
	while (!job->is_compared) {
		if (p->taken < p->end) {
			compare_some(p, 1);
			continue;
		}
		p->is_waited = true;
		(void)pthread_cond_wait(&p->done, &p->lock);
		p->is_waited = false;
	}
	p->first++;
	(void)pthread_mutex_unlock(&p->lock);
	p->bytes -= diff_job_size(p->v, job);
	r = p->failed ? 0 : p->show(p->v, job);
	if (r < 0)
		p->failed = r;
	diff_job_free(job);
}

int diff_pipe_push(struct diff_pipe *p, struct diff_job *job)
{
	uint64_t size = diff_job_size(p->v, job);

	while (p->end > p->first &&
	       (p->end - p->first == RING_JOBS || p->bytes + size > RING_BYTES))
		retire(p);
	(void)pthread_mutex_lock(&p->lock);
	p->ring[p->end++ % RING_JOBS] = job;
	if (p->end - p->taken == CHUNK)
		(void)pthread_cond_signal(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
	p->bytes += size;
	if (!p->n_threads && p->end == THREADS_FROM)
		start_threads(p);
	return p->failed;
}

int diff_pipe_end(struct diff_pipe *p)
{
	int failed;

	while (p->first < p->end)
		retire(p);
	(void)pthread_mutex_lock(&p->lock);
	p->is_over = true;
	(void)pthread_cond_broadcast(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
	for (size_t i = 0; i < p->n_threads; i++)
		(void)pthread_join(p->threads[i], NULL);
	failed = p->failed;
	(void)pthread_cond_destroy(&p->work);
	(void)pthread_cond_destroy(&p->done);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
	return failed;
}
