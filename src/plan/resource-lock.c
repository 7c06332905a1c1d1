/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on resources, taken for a set at once, in the order of their identities.
 *
 * A resource has two locks. The ticket lock in the store serves the plans of this store in order
 * and knows its holder's name. flock on the root itself meets the plans of other stores (root's
 * and a user's). Exclusive holds both. Shared draws the ticket, takes the flock shared and gives
 * the ticket back: so those who share wait behind whoever came first, but not for one another.
 */
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/hash.h"
#include "util/mem.h"

#define MS            INT64_C(1000000)
#define FIRST_SLEEP   (1 * MS)
#define LONGEST_SLEEP (20 * MS)
#define TELL_AFTER    (300 * MS)
#define PROC_LINE_LEN 256
#define HOLDER_TEXT   64

struct resource_lock {
	char *key;
	char *root;
	enum resource_lock_mode mode;
	struct ticket ticket;
	int fd;
	bool forgotten; /* nobody will ask for it again */
};

struct resource_locks {
	int dir_fd; /* the store's, of lock files */
	struct resource_lock *v;
	size_t n;
	size_t cap;
};

/* Adds a resource; one that is there already gets the stronger mode. */
static int add(struct resource_locks *l, const char *root, const char *root_id,
               enum resource_lock_mode mode)
{
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->v[i].key, root_id) == 0) {
			if (mode > l->v[i].mode)
				l->v[i].mode = mode;
			return 0;
		}
	}
	if (grow((void **)&l->v, &l->cap, l->n + 1, sizeof(*l->v)) < 0)
		return -ENOMEM;
	l->v[l->n++] = (struct resource_lock){ .key = xstrdup(root_id),
		                               .root = xstrdup(root),
		                               .mode = mode,
		                               .ticket = TICKET_INIT,
		                               .fd = FD_NONE };
	return 0;
}

static int add_ancestor(void *ctx, const char *root, const char *root_id)
{
	return add(ctx, root, root_id, RESOURCE_SHARED);
}

/* Registered roots that contain one of ours: their plans must not commit around us. */
static int add_ancestors(struct resource_locks *l, struct atoll *a, const struct sandbox_row *rows,
                         size_t n, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = registry_root_list_above(a->reg, rows[i].root, add_ancestor, l, err);
	return r;
}

static int by_key(const void *a, const void *b)
{
	const struct resource_lock *x = a, *y = b;

	return strcmp(x->key, y->key);
}

pid_t resource_flock_holder(int fd)
{
	struct stat st;
	char line[PROC_LINE_LEN];
	FILE *f = fopen("/proc/locks", "re");
	pid_t found = 0;

	if (!f)
		return 0;
	if (fstat(fd, &st) < 0)
		st.st_ino = 0;
	while (!found && fgets(line, sizeof(line), f)) {
		unsigned major, minor;
		unsigned long long ino;
		int pid;

		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major, &minor, &ino) ==
		            4 &&
		    ino == st.st_ino && makedev(major, minor) == st.st_dev)
			found = pid;
	}
	(void)fclose(f);
	return found;
}

static void describe_holder(int fd, char out[HOLDER_TEXT])
{
	pid_t pid = resource_flock_holder(fd);

	if (pid > 0)
		(void)snprintf(out, HOLDER_TEXT, "pid %d", (int)pid);
	else
		(void)snprintf(out, HOLDER_TEXT, "another process");
}

static int flock_failed(const struct resource_lock *l, int code, struct error *err)
{
	char who[HOLDER_TEXT];

	describe_holder(l->fd, who);
	(void)error_set(err, code, "resource '%s' is held by %s; nothing was changed", l->root,
	                who);
	error_hint(err, "wait for it to end, or give a longer --wait");
	return code;
}

/* flock(2) has no time-out and no queue; the ticket before it gives the queue. */
static int take_flock(struct resource_lock *l, struct atoll *a, int64_t deadline, struct error *err)
{
	int how = (l->mode == RESOURCE_EXCLUSIVE ? LOCK_EX : LOCK_SH) | LOCK_NB;
	int64_t pause = FIRST_SLEEP, tell_at = clock_boot_ns() + TELL_AFTER;

	while (flock(l->fd, how) < 0) {
		int64_t now = clock_boot_ns();

		if (errno == EINTR)
			continue;
		if (errno != EWOULDBLOCK)
			return error_sys(err, -errno, "lock", l->root);
		if (deadline == 0)
			return flock_failed(l, -ATOLL_E_BUSY, err);
		if (now >= deadline)
			return flock_failed(l, -ATOLL_E_TIMEOUT, err);
		if (now >= tell_at) {
			char who[HOLDER_TEXT];
			cleanup_free char *line = NULL;

			describe_holder(l->fd, who);
			line = xasprintf("waiting for resource '%s': %s", l->root, who);
			store_tell_waiting(a, line);
			tell_at = CLOCK_NEVER;
		}
		clock_sleep_ns(pause);
		pause = pause * 2 < LONGEST_SLEEP ? pause * 2 : LONGEST_SLEEP;
	}
	return 0;
}

#define FILE_LEN (HASH_TEXT_LEN + sizeof(".res"))

static void file_of(const struct resource_lock *l, char out[FILE_LEN])
{
	char hash[HASH_TEXT_LEN];

	hash_buffer(l->key, strlen(l->key), hash);
	(void)snprintf(out, FILE_LEN, "%s.res", hash);
}

static int take(struct resource_lock *l, struct atoll *a, const char *what, int64_t deadline,
                struct error *err)
{
	char file[FILE_LEN];
	cleanup_free char *subject = xasprintf("resource '%s'", l->root);
	int r;

	file_of(l, file);
	r = lock_ticket(&l->ticket, a, file, subject, what, deadline, err);
	if (r < 0)
		return r;
	/* A root that is gone, or that we may no longer read, has the ticket alone: a plan must
	 * be stoppable without its resource. So has a file: SQLite's locks on it would be gone, in
	 * all of this process, when our descriptor is closed. */
	l->fd = open(l->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (l->fd < 0) {
		l->fd = FD_NONE;
		return 0;
	}
	r = take_flock(l, a, deadline, err);
	if (r == 0 && l->mode == RESOURCE_SHARED)
		ticket_release(&l->ticket);
	return r;
}

int resource_locks_acquire(struct atoll *a, const struct sandbox_row *rows, size_t n,
                           enum resource_lock_mode mode, const char *what, int64_t deadline,
                           struct resource_locks **ret, struct error *err)
{
	cleanup_resource_locks struct resource_locks *l = xcalloc(1, sizeof(*l));
	int r;

	l->dir_fd = registry_locks_fd(a->reg);
	for (size_t i = 0; i < n; i++)
		if (add(l, rows[i].root, rows[i].root_id, mode) < 0)
			return error_set(err, -ENOMEM, "no memory for locks");
	r = add_ancestors(l, a, rows, n, err);
	if (r < 0)
		return r;
	if (l->n > 1)
		qsort(l->v, l->n, sizeof(*l->v), by_key);
	for (size_t i = 0; i < l->n && !sabotage("resource-lock"); i++) {
		r = take(&l->v[i], a, what, deadline, err);
		if (r < 0)
			return r;
	}
	*ret = take_ptr(l);
	return 0;
}

static int find_key(void *ctx, const char *root, const char *root_id)
{
	struct resource_lock *l = ctx;

	(void)root;
	if (strcmp(root_id, l->key) == 0)
		l->forgotten = false;
	return 0;
}

/* A shared lock gave its ticket back: without one nobody may take the file away. */
static bool has_ticket(struct resource_lock *l, struct atoll *a)
{
	char file[FILE_LEN];

	if (l->ticket.fd != FD_NONE)
		return true;
	file_of(l, file);
	return lock_ticket(&l->ticket, a, file, l->root, "forget", 0, NULL) == 0;
}

void resource_locks_forget(struct resource_locks *l, struct atoll *a)
{
	for (size_t i = 0; l && i < l->n; i++) {
		struct resource_lock *one = &l->v[i];
		cleanup_free char *below = xasprintf("%s/.", one->root);

		one->forgotten = has_ticket(one, a);
		if (registry_root_list_above(a->reg, below, find_key, one, NULL) < 0)
			one->forgotten = false;
	}
}

void resource_locks_release(struct resource_locks *l)
{
	char file[FILE_LEN];

	if (!l)
		return;
	for (size_t i = l->n; i > 0; i--) {
		struct resource_lock *one = &l->v[i - 1];

		/* Not by closing alone: another thread may just be starting a program, which has
		 * a copy of the descriptor for an instant. */
		if (one->fd != FD_NONE)
			(void)flock(one->fd, LOCK_UN);
		close_fd(&one->fd);
		if (one->forgotten) {
			file_of(one, file);
			(void)fs_unlink_at(l->dir_fd, file); /* see ticket.h */
		}
		ticket_release(&one->ticket);
		free(one->key);
		free(one->root);
	}
	free(l->v);
	free(l);
}

void cleanup_resource_locksp(struct resource_locks **l)
{
	resource_locks_release(*l);
}
