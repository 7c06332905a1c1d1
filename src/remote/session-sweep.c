/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of sessions that are gone. */
#include "remote/session-impl.h"

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "util/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Named by an id that no row has. One that cannot be looked for is there. */
static bool is_of_none(struct atoll *a, const char *name, size_t len)
{
	cleanup_error struct error ignored = ERROR_INIT;
	char id[SESSION_ID_LEN + 1];
	struct session_row row;
	int r;

	if (len != SESSION_ID_LEN || strspn(name, "0123456789abcdef") != len)
		return false;
	(void)snprintf(id, sizeof(id), "%s", name);
	r = registry_session_get(a->reg, id, &row, &ignored);
	if (r > 0)
		session_row_done(&row);
	return r == 0;
}

static void sweep_dirs(struct atoll *a)
{
	cleanup_close int all =
		openat(a->home_fd, SESSION_DIRS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	if (all < 0 || dirlist_read(all, &list) < 0)
		return;
	for (size_t i = 0; i < list.n; i++)
		if (is_of_none(a, list.v[i].name, strlen(list.v[i].name)))
			(void)remove_tree_at(all, list.v[i].name);
}

/* Only who has a lock removes its file. Who waits for it removes it after us. */
static void sweep_lock(struct atoll *a, const char *file)
{
	cleanup_error struct error ignored = ERROR_INIT;
	struct ticket t = TICKET_INIT;

	if (lock_ticket(&t, a, file, "a session that is gone", "atoll --remote", 0, &ignored) < 0)
		return;
	(void)fs_unlink_at(registry_locks_fd(a->reg), file);
	ticket_release(&t);
}

static void sweep_locks(struct atoll *a)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	if (dirlist_read(registry_locks_fd(a->reg), &list) < 0)
		return;
	for (size_t i = 0; i < list.n; i++) {
		const char *name = list.v[i].name, *dot = strchr(name, '.');

		if (dot && is_of_none(a, name, (size_t)(dot - name)) &&
		    (strcmp(dot + 1, SESSION_LOCK_SESSION) == 0 ||
		     strcmp(dot + 1, SESSION_LOCK_CYCLE) == 0))
			sweep_lock(a, name);
	}
}

void session_sweep(struct atoll *a)
{
	sweep_dirs(a);
	sweep_locks(a);
}
