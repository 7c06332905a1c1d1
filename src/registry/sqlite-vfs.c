/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite's own file layer, except for two things.
 *
 * SQLite opens the WAL with "create" even when it is there, and a file opened so has its directory
 * synced with the first commit of each process: for a command that commits once, twice the syncs.
 * Here a WAL is opened with "create" only while its directory entry may not be on disk yet. How
 * that is known: whoever makes the WAL syncs its header and then the directory before it writes the
 * first frame. So a WAL longer than its header has a durable name.
 *
 * A file that cannot be opened for writing SQLite opens for reading, whatever the reason. When it
 * was missing, and somebody made it between the two, the connection cannot write although nothing
 * forbids it. Here it is tried again: now that the file is there, only a true reason is left.
 */
#include "registry/sqlite-impl.h"

#include <pthread.h>
#include <sys/stat.h>

#define WAL_HEADER 32

static sqlite3_vfs *base;
static sqlite3_vfs ours;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int open_file(const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
	int got = 0;
	int rc = base->xOpen(base, name, file, flags, &got);

	if (rc == SQLITE_OK && (flags & SQLITE_OPEN_READWRITE) && (got & SQLITE_OPEN_READONLY)) {
		(void)file->pMethods->xClose(file);
		rc = base->xOpen(base, name, file, flags, &got);
	}
	if (ret_flags)
		*ret_flags = got;
	return rc;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *ret_flags)
{
	struct stat st;
	int rc;

	(void)vfs;
	if ((flags & SQLITE_OPEN_WAL) && stat(name, &st) == 0 && st.st_size > WAL_HEADER) {
		rc = open_file(name, file, flags & ~SQLITE_OPEN_CREATE, ret_flags);
		if ((rc & 0xff) != SQLITE_CANTOPEN)
			return rc;
		/* Removed in between, by somebody else's SQLite: make it. */
	}
	return open_file(name, file, flags, ret_flags);
}

static void make_vfs(void)
{
	base = sqlite3_vfs_find("unix");
	if (!base)
		return;
	ours = *base;
	ours.pNext = NULL;
	ours.zName = "atoll-unix";
	ours.xOpen = vfs_open;
	if (sqlite3_vfs_register(&ours, 0) != SQLITE_OK)
		base = NULL;
}

const char *sqlite_vfs_name(void)
{
	(void)pthread_once(&once, make_vfs);
	return base ? ours.zName : NULL;
}
