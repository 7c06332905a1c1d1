/* SPDX-License-Identifier: Apache-2.0 */
/* One connection, for reading and writing or so that it can only read. */
#include "registry/sqlite-impl.h"

#include "util/cleanup.h"
#include "util/uri.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

#define BUSY_TIMEOUT_MS 5000 /* a net: under the store lock only foreign programs are met */

/* Instead of SQLite's automatic checkpoint, which would count in every connection's own way. */
static int on_wal(void *ctx, sqlite3 *db, const char *name, int frames)
{
	struct backend *b = ctx;

	(void)db;
	(void)name;
	b->wal_frames = frames;
	return SQLITE_OK;
}

static void configure(struct backend *b)
{
	int on = 1;
	sqlite3_int64 none = 0;

	(void)sqlite3_busy_timeout(b->db, BUSY_TIMEOUT_MS);
	(void)sqlite3_db_config(b->db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
	(void)sqlite3_db_config(b->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void)sqlite3_db_config(b->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(b->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_file_control(b->db, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
	(void)sqlite3_file_control(b->db, "main", SQLITE_FCNTL_MMAP_SIZE, &none);
	(void)sqlite3_wal_hook(b->db, on_wal, b);
}

#define OPEN_FLAGS                                                                \
	(SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | \
	 SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE)

/* 0; 1 when there is no such file and CREATE is not wanted. */
int sqlite_connect(struct backend *b, bool create, struct error *err)
{
	int rc, r = 0;

	b->reading = false;
	rc = sqlite3_open_v2(b->path, &b->db, OPEN_FLAGS | (create ? SQLITE_OPEN_CREATE : 0),
	                     sqlite_vfs_name());
	if (rc == SQLITE_OK) {
		configure(b);
		return 0;
	}
	if (!create && (rc & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(b->db) == ENOENT)
		r = 1;
	else
		r = sqlite_fail(b, rc, "open", err);
	(void)sqlite3_close(b->db);
	b->db = NULL;
	return r;
}

void sqlite_disconnect(struct backend *b)
{
	for (size_t i = 0; i < b->cached; i++)
		(void)sqlite3_finalize(b->cache[i].stmt);
	b->cached = 0;
	(void)sqlite3_close(b->db);
	b->db = NULL;
}

/* So that it can only read, and leaves the files as they are: without it SQLite truncates and
 * fills anew the WAL's index, a file, for every process that finds no other. False when there is
 * no such way in; the ordinary one then says why. */
bool sqlite_connect_reading(struct backend *b)
{
	cleanup_free char *uri = uri_of_file(b->path, "readonly_shm=1");

	b->reading = sqlite3_open_v2(uri, &b->db, OPEN_FLAGS | SQLITE_OPEN_URI,
	                             sqlite_vfs_name()) == SQLITE_OK;
	if (b->reading)
		configure(b);
	else
		sqlite_disconnect(b);
	return b->reading;
}

/* The ordinary connection, if this is the other one. */
int sqlite_connect_writing(struct backend *b, struct error *err)
{
	int r;

	if (b->db && !b->reading)
		return 0;
	sqlite_disconnect(b);
	r = sqlite_connect(b, false, err);
	return r == 1 ? error_sys(err, -ENOENT, "open", b->path) : r;
}
