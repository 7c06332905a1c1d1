/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches and fork. The locks of all are held while a process forks, so the child's copy is whole. It
 * has no threads: what they had begun is forgotten there, and what waited for it ends; the tokens stay.
 * What the threads themselves held (memory, a request's connection, a lock's descriptor) is lost to the
 * child, which does nothing to the parent: it unlocks by number, not by closing.
 */
#include "token/cache-impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;
static struct atoll_tokens *list;

static void before(void)
{
	(void)pthread_mutex_lock(&list_lock);
	for (struct atoll_tokens *t = list; t; t = t->fork_next)
		tokens_lock(t);
}

static void in_parent(void)
{
	for (struct atoll_tokens *t = list; t; t = t->fork_next)
		tokens_unlock(t);
	(void)pthread_mutex_unlock(&list_lock);
}

static void free_flight(struct flight *f)
{
	struct field_set *next;

	for (struct field_set *s = f ? f->sets : NULL; s; s = next) {
		next = s->next;
		free(s);
	}
	free(f);
}

static void forget_work(struct atoll_tokens *t)
{
	struct entry_table *table = atomic_load(&t->table);

	for (size_t i = 0; i <= table->mask; i++) {
		struct entry *e = atomic_load(&table->slot[i]);

		if (!e)
			continue;
		/* The running one may be half taken apart. */
		free_flight(e->next);
		e->running = e->next = NULL;
	}
	t->jobs = t->last_job = NULL;
	t->queued = t->threads = t->idle = 0;
	t->has_timer = false;
	t->has_ended = false;
	if (t->load == LOAD_RUNNING)
		t->load = LOAD_NOT;
}

static void end_waits(struct atoll_tokens *t)
{
	for (struct atoll_token_wait *w = t->waits; w; w = w->all_next) {
		if (atomic_load(&w->state) == WAIT_DONE)
			continue;
		w->list = NULL;
		w->slot = NULL;
		w->code = -ECANCELED;
		w->token = NULL;
		w->failure = NULL;
		atomic_store(&w->state, WAIT_DONE);
	}
}

static void in_child(void)
{
	work_set_inside(false);
	for (struct atoll_tokens *t = list; t; t = t->fork_next) {
		end_waits(t);
		forget_work(t);
		tokens_init_sync(t);
	}
	(void)pthread_mutex_init(&list_lock, NULL);
}

static void list_init(void)
{
	if (pthread_atfork(before, in_parent, in_child) != 0)
		BUG("pthread_atfork");
}

void fork_add(struct atoll_tokens *t)
{
	(void)pthread_once(&list_once, list_init);
	(void)pthread_mutex_lock(&list_lock);
	t->fork_next = list;
	list = t;
	(void)pthread_mutex_unlock(&list_lock);
}

void fork_remove(struct atoll_tokens *t)
{
	(void)pthread_mutex_lock(&list_lock);
	for (struct atoll_tokens **p = &list; *p; p = &(*p)->fork_next) {
		if (*p == t) {
			*p = t->fork_next;
			break;
		}
	}
	(void)pthread_mutex_unlock(&list_lock);
}
