/* SPDX-License-Identifier: Apache-2.0 */
/* Whose file it is, and making or migrating the tables. */
#include "registry/sqlite-impl.h"

#include "fs/atomic.h"
#include "registry/schema.h"
#include "util/cleanup.h"
#include "util/random.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

/* A little more than what stays until somebody who waits anyway checkpoints it (sqlite.c). */
#define WAL_LENGTH (80 * 4120)

struct identity {
	int64_t id;
	int64_t version;
	int64_t tables; /* only asked for when the others are 0 */
};

/* In one snapshot: somebody may be making the file right now. */
static int read_identity(struct backend *b, struct identity *ret, struct error *err)
{
	struct identity found = { 0 };
	int r = sqlite_script(b, "BEGIN", "read", err);

	if (r == 0)
		r = sqlite_ask(b, "PRAGMA application_id", &found.id, err);
	if (r == 0)
		r = sqlite_ask(b, "PRAGMA user_version", &found.version, err);
	if (r == 0 && found.id == 0 && found.version == 0)
		r = sqlite_ask(b, "SELECT count(*) FROM sqlite_schema", &found.tables, err);
	if (!sqlite3_get_autocommit(b->db))
		(void)sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
	if (r == 0)
		*ret = found;
	return r;
}

/* The schema's version; 0 for a file that is still empty, as after a crash while it was made. */
int sqlite_identify(struct backend *b, struct error *err)
{
	struct identity found = { 0 };
	int r = read_identity(b, &found, err);

	if (r < 0)
		return r;
	if (found.id == 0 && found.version == 0 && found.tables == 0)
		return 0;
	if (found.id != SCHEMA_APPLICATION_ID || found.version < 1)
		return sqlite_damaged(b->path, "it is another program's database", err);
	if (found.version <= SCHEMA_VERSION)
		return (int)found.version;
	r = error_set(err, -ATOLL_E_NEWER,
	              "the registry '%s' was written by a newer version (format %lld, known up to "
	              "%d)",
	              b->path, (long long)found.version, SCHEMA_VERSION);
	error_hint(err, "install the newer version of atoll");
	return r;
}

static int write_uuid(struct backend *b, struct error *err)
{
	static const char sql[] = "INSERT INTO meta (key, value) VALUES ('uuid', ?1)";
	char uuid[33];
	int r;

	random_hex(uuid, sizeof(uuid) - 1);
	r = sqlite_run(b, sql, ARGS(TEXT_VALUE(uuid)), NULL, NULL, err);
	return r < 0 ? r : 0;
}

static int stamp_file(struct backend *b, struct error *err)
{
	char stamp[96];

	(void)snprintf(stamp, sizeof(stamp), "PRAGMA application_id=%d; PRAGMA user_version=%d",
	               SCHEMA_APPLICATION_ID, SCHEMA_VERSION);
	return sqlite_script(b, stamp, "migrate", err);
}

static int migrate(struct backend *b, int version, struct error *err)
{
	int r = 0;

	for (int v = version; r == 0 && v < SCHEMA_VERSION; v++)
		r = sqlite_script(b, schema_steps[v], "migrate", err);
	if (r == 0 && version == 0)
		r = write_uuid(b, err);
	return r == 0 ? stamp_file(b, err) : r;
}

/* Written, not only reserved: what is written over is synced without the filesystem's journal. Zeros are
 * no frames, so whoever reads the WAL stops where it does now. */
static void lengthen_wal(struct backend *b)
{
	static const char zeros[4096];
	cleanup_close int fd =
		openat(b->home_fd, SQLITE_DB_NAME "-wal", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	off_t end = fd < 0 ? WAL_LENGTH : lseek(fd, 0, SEEK_END);
	int r = 0;

	if (end < 0 || end >= WAL_LENGTH)
		return;
	for (; r == 0 && end < WAL_LENGTH; end += (off_t)sizeof(zeros))
		r = fs_write_at(fd, zeros, sizeof(zeros), end);
	if (r == 0)
		(void)fs_sync_file(fd);
}

/*
 * A new registry's WAL holds each of its pages, and every command to come would read them all.
 * They go to the database, and the WAL begins anew with a frame of no meaning: so that its name
 * is durable, and the first commit of a command need not make it so (sqlite-vfs.c). It gets the
 * length that it has between two checkpoints at once. Nothing is lost when this fails.
 */
static void renew_wal(struct backend *b)
{
	(void)sqlite3_wal_checkpoint_v2(b->db, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	if (sqlite_begin(b, REGISTRY_NORMAL, NULL) < 0)
		return;
	if (stamp_file(b, NULL) < 0) {
		sqlite_rollback(b);
		return;
	}
	(void)sqlite_commit(b, NULL);
	lengthen_wal(b);
}

static int make_wal(struct backend *b, struct error *err)
{
	int r;

	/* SQLite gives its files the mode of the database. */
	r = fs_set_mode(b->home_fd, SQLITE_DB_NAME, 0600);
	if (r < 0)
		return error_sys(err, r, "chmod", b->path);
	return sqlite_script(b, "PRAGMA journal_mode=WAL", "set up", err);
}

int sqlite_make_schema(struct backend *b, struct error *err)
{
	int r = 0, version;

	version = sqlite_identify(b, err);
	if (version < 0 || version == SCHEMA_VERSION)
		return version < 0 ? version : 0;
	if (version == 0)
		r = make_wal(b, err);
	if (r == 0)
		r = sqlite_begin(b, REGISTRY_DURABLE, err);
	if (r < 0)
		return r;
	r = migrate(b, version, err);
	if (r < 0)
		sqlite_rollback(b);
	else
		r = sqlite_commit(b, err);
	if (r == 0 && version == 0)
		renew_wal(b);
	return r;
}
