/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and fork.
 *
 * SQLite keeps what it knows of an open file once per process, keyed by inode: which of its locks
 * it holds, and the mapped WAL index. A child inherits that memory but not the locks. A second
 * connection made in the child would believe in them, and another process could then truncate
 * the index under it. So before a process opens a connection it closes those it inherited:
 * idle ones, which touches nothing but the child's own copies. One that was at work when fork
 * happened cannot be closed safely: opening is refused, the child must exec first.
 */
#include "registry/sqlite-impl.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;
static struct fork_entry *list;

static void list_lock(void)
{
	(void)pthread_mutex_lock(&list_mutex);
}

static void list_unlock(void)
{
	(void)pthread_mutex_unlock(&list_mutex);
}

/* The list is whole and unlocked in every child. */
static void list_init(void)
{
	if (pthread_atfork(list_lock, list_unlock, list_unlock) != 0)
		BUG("pthread_atfork");
}

void fork_list_add(struct fork_entry *e)
{
	(void)pthread_once(&list_once, list_init);
	e->pid = getpid();
	list_lock();
	e->next = list;
	list = e;
	list_unlock();
}

void fork_list_remove(struct fork_entry *e)
{
	list_lock();
	for (struct fork_entry **p = &list; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			break;
		}
	}
	list_unlock();
}

int fork_list_forget_inherited(void)
{
	pid_t self = getpid();
	struct fork_entry **p = &list;
	int r = 0;

	list_lock();
	while (*p) {
		struct fork_entry *e = *p;

		if (e->pid == self) {
			p = &e->next;
		} else if (atomic_load(&e->busy)) {
			r = -ATOLL_E_STATE;
			p = &e->next;
		} else {
			*p = e->next;
			e->forget(e);
		}
	}
	list_unlock();
	return r;
}
