/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a cache: made when there is work, gone when there is none for a while. */
#include "token/cache-impl.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

static _Thread_local bool is_inside_worker;

bool work_is_inside(void)
{
	return is_inside_worker;
}

void work_set_inside(bool is_inside)
{
	is_inside_worker = is_inside;
}

void work_wait(struct atoll_tokens *t, pthread_cond_t *cond, int64_t ns)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	ns += ts.tv_nsec;
	ts.tv_sec += ns / 1000000000;
	ts.tv_nsec = ns % 1000000000;
	(void)pthread_cond_timedwait(cond, &t->lock, &ts);
}

int work_thread(struct atoll_tokens *t, void *(*fn)(void *))
{
	sigset_t all, old;
	pthread_t thread;
	int r;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, fn, t);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return -r;
	t->threads++;
	return 0;
}

void work_thread_ends(struct atoll_tokens *t)
{
	bool has_ended = t->has_ended;
	pthread_t ended = t->ended;

	t->has_ended = true;
	t->ended = pthread_self();
	t->threads--;
	/* Under the lock: whoever closes the cache frees it next. */
	(void)pthread_cond_broadcast(&t->change);
	tokens_unlock(t);
	if (has_ended)
		(void)pthread_join(ended, NULL);
}

void work_join(struct atoll_tokens *t)
{
	while (t->threads > 0)
		(void)pthread_cond_wait(&t->change, &t->lock);
	if (!t->has_ended)
		return;
	t->has_ended = false;
	tokens_unlock(t);
	(void)pthread_join(t->ended, NULL);
	tokens_lock(t);
}

static struct job *next_job(struct atoll_tokens *t)
{
	struct job *job = t->jobs;

	if (!job)
		return NULL;
	t->jobs = job->next;
	if (!t->jobs)
		t->last_job = NULL;
	t->queued--;
	return job;
}

static void *worker_main(void *arg)
{
	struct atoll_tokens *t = arg;

	is_inside_worker = true;
	tokens_lock(t);
	for (;;) {
		struct job *job = next_job(t);

		if (!job && !t->is_closing) {
			t->idle++;
			work_wait(t, &t->work, WORKER_IDLE_S * INT64_C(1000000000));
			t->idle--;
			job = next_job(t);
		}
		if (!job)
			break;
		tokens_unlock(t);
		job->run(t, job);
		tokens_lock(t);
	}
	work_thread_ends(t);
	return NULL;
}

int work_push(struct atoll_tokens *t, struct job *job)
{
	/* Who closes the cache does what is left. */
	if (t->idle <= t->queued && t->threads < WORKERS_MAX && !t->is_closing) {
		int r = work_thread(t, worker_main);

		if (r < 0 && t->threads == (t->has_timer ? 1 : 0))
			return r;
	}
	job->next = NULL;
	if (t->last_job)
		t->last_job->next = job;
	else
		t->jobs = job;
	t->last_job = job;
	t->queued++;
	(void)pthread_cond_signal(&t->work);
	return 0;
}
