/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/bond.h"

#include "util/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct bond {
	struct identity who;
	int fd;
	struct bond *next, *prev;
};

struct bonds {
	struct auth *auth;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the rest */
	pthread_cond_t changed;
	struct bond *first;
	bool is_closing;
};

/* Under the mutex: a descriptor that is in the list is not somebody else's yet. */
static void look(struct bonds *b)
{
	for (struct bond *one = b->first; one; one = one->next)
		if (!auth_holds(b->auth, &one->who))
			(void)shutdown(one->fd, SHUT_RDWR);
}

/* While there are none it sleeps. */
static void wait_a_second(struct bonds *b)
{
	struct timespec until;

	if (!b->first) {
		(void)pthread_cond_wait(&b->changed, &b->mutex);
		return;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	while (!b->is_closing &&
	       pthread_cond_timedwait(&b->changed, &b->mutex, &until) != ETIMEDOUT)
		;
}

static void *run(void *arg)
{
	struct bonds *b = arg;

	(void)pthread_mutex_lock(&b->mutex);
	while (!b->is_closing) {
		wait_a_second(b);
		look(b);
	}
	(void)pthread_mutex_unlock(&b->mutex);
	return NULL;
}

int bonds_open(struct auth *a, struct bonds **ret, struct error *err)
{
	struct bonds *b = xcalloc(1, sizeof(*b));
	pthread_condattr_t attr;
	int r;

	b->auth = a;
	(void)pthread_mutex_init(&b->mutex, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&b->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	r = pthread_create(&b->thread, NULL, run, b);
	if (r != 0) {
		free(b);
		return error_sys(err, -r, "start", "a thread");
	}
	*ret = b;
	return 0;
}

void bonds_close(struct bonds *b)
{
	if (!b)
		return;
	(void)pthread_mutex_lock(&b->mutex);
	b->is_closing = true;
	(void)pthread_cond_signal(&b->changed);
	(void)pthread_mutex_unlock(&b->mutex);
	(void)pthread_join(b->thread, NULL);
	(void)pthread_cond_destroy(&b->changed);
	(void)pthread_mutex_destroy(&b->mutex);
	free(b);
}

struct bond *bond_add(struct bonds *b, const struct identity *who, int fd)
{
	struct bond *one;

	if (who->by_socket)
		return NULL;
	one = xcalloc(1, sizeof(*one));
	one->who = *who;
	one->fd = fd;
	(void)pthread_mutex_lock(&b->mutex);
	one->next = b->first;
	if (b->first)
		b->first->prev = one;
	b->first = one;
	(void)pthread_cond_signal(&b->changed);
	(void)pthread_mutex_unlock(&b->mutex);
	return one;
}

void bond_remove(struct bonds *b, struct bond *one)
{
	if (!one)
		return;
	(void)pthread_mutex_lock(&b->mutex);
	if (one->next)
		one->next->prev = one->prev;
	if (one->prev)
		one->prev->next = one->next;
	else
		b->first = one->next;
	(void)pthread_mutex_unlock(&b->mutex);
	free(one);
}
