/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owned plans: they end with the handle that made them. The owner holds a lock on
 * locks/<plan>.own for as long as it lives; the kernel lets go of it however the process ends,
 * and whoever finds it free knows the owner is dead. Never a pid, never an age.
 *
 * At exit, and in atoll_close(), a handle cleans what it owns, once, and only in the process that
 * opened it: a forked child closes its copies of the locks and forgets about them.
 */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define OWNER_WAIT_MS 1000

struct owned_plan {
	char id[PLAN_ID_LEN + 1];
	struct ticket ticket;
	struct owned_plan *next;
};

/* Guards the list of handles and each handle's list of owned plans. A leaf. */
static pthread_mutex_t owners_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct atoll *open_handles;
static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;

static void owner_file(const char *plan_id, char out[PLAN_ID_LEN + sizeof(".own")])
{
	(void)snprintf(out, PLAN_ID_LEN + sizeof(".own"), "%.*s.own", PLAN_ID_LEN, plan_id);
}

static struct owned_plan *pop_owned(struct atoll *a, const char *plan_id)
{
	struct owned_plan *found = NULL;

	pthread_mutex_lock(&owners_mutex);
	for (struct owned_plan **p = &a->owned; *p; p = &(*p)->next) {
		if (plan_id && strcmp((*p)->id, plan_id) != 0)
			continue;
		found = *p;
		*p = found->next;
		break;
	}
	pthread_mutex_unlock(&owners_mutex);
	return found;
}

/* What a handle owns, cleaned; what is in use by another thread stays for a later purge. */
static void clean_owned(struct atoll *a)
{
	struct owned_plan *o;

	while ((o = pop_owned(a, NULL)) != NULL) {
		struct plan_row row;

		if (registry_plan_get(a->reg, o->id, &row, NULL) == 0)
			(void)cleanup_retire(a, &row, 0, NULL, NULL);
		ticket_release(&o->ticket);
		free(o);
	}
}

static void at_exit(void)
{
	for (;;) {
		struct atoll *a;

		pthread_mutex_lock(&owners_mutex);
		for (a = open_handles; a && (a->pid != getpid() || !a->owned);)
			a = a->next_open;
		pthread_mutex_unlock(&owners_mutex);
		if (!a)
			return;
		clean_owned(a);
	}
}

static void before_fork(void)
{
	pthread_mutex_lock(&owners_mutex);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&owners_mutex);
}

/* The child's copies would keep the locks held after the parent's death. */
static void in_child(void)
{
	for (struct atoll *a = open_handles; a; a = a->next_open) {
		while (a->owned) {
			struct owned_plan *o = a->owned;

			a->owned = o->next;
			close_fd(&o->ticket.fd);
			free(o);
		}
	}
	open_handles = NULL;
	pthread_mutex_unlock(&owners_mutex);
}

static void install_hooks(void)
{
	(void)atexit(at_exit);
	(void)pthread_atfork(before_fork, in_parent, in_child);
}

int owner_take(struct atoll *a, const char *plan_id, const char *name, struct error *err)
{
	struct owned_plan *o = xcalloc(1, sizeof(*o));
	char file[PLAN_ID_LEN + sizeof(".own")];
	char what[LIMIT_COMMAND];
	int r;

	(void)pthread_once(&hooks_once, install_hooks);
	owner_file(plan_id, file);
	(void)snprintf(o->id, sizeof(o->id), "%s", plan_id);
	(void)snprintf(what, sizeof(what), "owner of plan %s", name);
	o->ticket = TICKET_INIT;
	/* The name is new: only a purge may have it for an instant. */
	r = lock_ticket(&o->ticket, a, file, "the owner's lock", what,
	                clock_deadline(OWNER_WAIT_MS), err);
	if (r < 0) {
		free(o);
		return r;
	}
	pthread_mutex_lock(&owners_mutex);
	o->next = a->owned;
	a->owned = o;
	pthread_mutex_unlock(&owners_mutex);
	return 0;
}

void owner_drop(struct atoll *a, const char *plan_id)
{
	struct owned_plan *o = pop_owned(a, plan_id);

	if (!o)
		return;
	ticket_release(&o->ticket);
	free(o);
}

bool owner_alive(struct atoll *a, const char *plan_id)
{
	char file[PLAN_ID_LEN + sizeof(".own")];
	struct ticket_holder holder;

	owner_file(plan_id, file);
	/* When in doubt it lives: nothing is taken from it. */
	return ticket_peek(registry_locks_fd(a->reg), file, &holder) != 0;
}

void owner_handle_opened(struct atoll *a)
{
	pthread_mutex_lock(&owners_mutex);
	a->next_open = open_handles;
	open_handles = a;
	pthread_mutex_unlock(&owners_mutex);
}

void owner_handle_closed(struct atoll *a)
{
	if (a->pid == getpid())
		clean_owned(a);
	pthread_mutex_lock(&owners_mutex);
	for (struct atoll **p = &open_handles; *p; p = &(*p)->next_open) {
		if (*p == a) {
			*p = a->next_open;
			break;
		}
	}
	pthread_mutex_unlock(&owners_mutex);
}
