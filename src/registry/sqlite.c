/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry in a SQLite file of the store, in WAL mode.
 *
 * 1. Whoever writes or checkpoints holds the store lock (registry.c), from BEGIN to the end of
 *    the checkpoint. So writers queue in order instead of polling, and no checkpoint ever runs
 *    beside a writer: SQLite before 3.51.3 may lose pages when these two meet.
 * 2. A durable commit is one fdatasync of the WAL. The WAL stays when the last process closes,
 *    and nobody checkpoints at close: a command that ends does not pay for the housekeeping.
 * 3. The file is touched through SQLite alone. Opening and closing it ourselves would drop
 *    SQLite's own locks.
 * 4. Opening costs no write and parses no SQL it can do without: most processes only read.
 */
#include "registry/registry-impl.h"

#include "registry/schema.h"
#include "registry/sqlite-impl.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frames of 4 KiB in the WAL that make a commit checkpoint. The first process to open the store
 * after a pause reads them all, about 1.5 us each, so this bounds start-up. */
#define CHECKPOINT_FRAMES 128
/* The same when nobody waits for it. */
#define TEND_FRAMES 64

/* ---- transactions ---- */

static int set_synchronous(struct backend *b, enum registry_durability d, struct error *err)
{
	int want = d == REGISTRY_DURABLE && !sabotage("registry-sync") ? 2 : 1;
	int r;

	if (b->synchronous == want)
		return 0;
	r = sqlite_script(b, want == 2 ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
	                  "configure", err);
	if (r == 0)
		b->synchronous = want;
	return r;
}

void sqlite_rollback(struct backend *b)
{
	if (!sqlite3_get_autocommit(b->db))
		(void)sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
	b->in_txn = false;
	atomic_store(&b->fork.busy, false);
}

int sqlite_begin(struct backend *b, enum registry_durability d, struct error *err)
{
	int r;

	if (b->failed)
		return sqlite_unknown(b->path, b->failed_errno, err);
	atomic_store(&b->fork.busy, true);
	r = sqlite_connect_writing(b, err);
	if (r == 0)
		r = set_synchronous(b, d, err);
	if (r == 0)
		r = sqlite_script(b, "BEGIN IMMEDIATE", "begin", err);
	b->durability = d;
	b->in_txn = r == 0;
	atomic_store(&b->fork.busy, b->in_txn);
	return r;
}

/*
 * Under the store lock. A reader may keep part of the WAL in use: then as much as possible is
 * done and a later commit tries again. A failure loses nothing, for the WAL keeps every page
 * until all of them are synced in the database.
 */
static void checkpoint(struct backend *b, int frames)
{
	if (b->wal_frames < frames)
		return;
	(void)sqlite3_wal_checkpoint_v2(b->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	b->wal_frames = 0;
}

/* The commit mark may have reached the disk before the error did. */
static int commit_failed(struct backend *b, int rc, int os_errno, struct error *err)
{
	if ((rc & 0xff) != SQLITE_IOERR || b->durability != REGISTRY_DURABLE)
		return sqlite_fail(b, rc, "commit", err);
	b->failed = true;
	b->failed_errno = os_errno;
	return sqlite_unknown(b->path, os_errno, err);
}

int sqlite_commit(struct backend *b, struct error *err)
{
	int rc, os_errno, r = 0;

	if (sqlite3_get_autocommit(b->db)) {
		r = error_set(err, -EIO, "the transaction on '%s' failed earlier", b->path);
	} else {
		crashpoint("registry.before-commit");
		errno = 0; /* SQLite does not keep the one of a failed commit */
		rc = sqlite3_exec(b->db, "COMMIT", NULL, NULL, NULL);
		os_errno = errno;
		crashpoint("registry.after-commit");
		if (rc == SQLITE_OK)
			checkpoint(b, CHECKPOINT_FRAMES);
		else
			r = commit_failed(b, rc, os_errno, err);
	}
	sqlite_rollback(b);
	return r;
}

/* One fdatasync of the WAL, as a durable commit does it. */
static int backend_sync(struct backend *b, struct error *err)
{
	sqlite3_file *wal = NULL;
	int rc;

	if (b->failed)
		return sqlite_unknown(b->path, b->failed_errno, err);
	if (!b->db || b->reading || sabotage("registry-sync"))
		return 0;
	atomic_store(&b->fork.busy, true);
	errno = 0;
	rc = sqlite3_file_control(b->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
	if (rc == SQLITE_OK && wal && wal->pMethods)
		rc = wal->pMethods->xSync(wal, SQLITE_SYNC_NORMAL);
	if (rc != SQLITE_OK) {
		b->failed = true;
		b->failed_errno = errno;
	}
	atomic_store(&b->fork.busy, false);
	return b->failed ? sqlite_unknown(b->path, b->failed_errno, err) : 0;
}

/* Only after a commit of ours it is known how long the WAL is. */
static void backend_tend(struct backend *b)
{
	atomic_store(&b->fork.busy, true);
	if (b->db && !b->reading && !b->failed)
		checkpoint(b, TEND_FRAMES);
	atomic_store(&b->fork.busy, false);
}

/* ---- life ---- */

static int backend_setup(struct backend *b, struct error *err)
{
	int r = 0;

	atomic_store(&b->fork.busy, true);
	if (!b->db)
		r = sqlite_connect(b, true, err);
	if (r == 0)
		r = sqlite_make_schema(b, err);
	atomic_store(&b->fork.busy, false);
	return r;
}

static void backend_forget(struct fork_entry *e)
{
	sqlite_disconnect((struct backend *)((char *)e - offsetof(struct backend, fork)));
}

static void backend_close(struct backend *b)
{
	fork_list_remove(&b->fork);
	if (!b->db || b->in_txn || !sqlite_program_keeps(b->db))
		sqlite_disconnect(b);
	free(b->path);
	free(b);
}

/* SQLite wants a path. The kernel's name of the checked directory has no symbolic links in it,
 * so none need be followed. */
static char *database_path(int home_fd, const char *home)
{
	char self[32], real[PATH_MAX];
	ssize_t len;

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", home_fd);
	len = readlink(self, real, sizeof(real));
	if (len <= 0 || (size_t)len >= sizeof(real))
		return xasprintf("%s/" SQLITE_DB_NAME, home);
	return xasprintf("%.*s/" SQLITE_DB_NAME, (int)len, real);
}

/* As the back-end's open(). */
static int open_and_identify(struct backend *b, struct error *err)
{
	int r;

	if (sqlite_program_reads() && sqlite_connect_reading(b)) {
		if (sqlite_identify(b, NULL) == SCHEMA_VERSION)
			return 0;
		sqlite_disconnect(b);
	}
	r = sqlite_connect(b, false, err);
	if (r == 0) {
		r = sqlite_identify(b, err);
		if (r >= 0)
			r = r < SCHEMA_VERSION ? 1 : 0;
	}
	return r;
}

static int backend_open(int home_fd, const char *home, struct backend **ret, struct error *err)
{
	struct backend *b;
	int r;

	if (fork_list_forget_inherited() < 0)
		return error_set(err, -ATOLL_E_STATE,
		                 "the process was forked while another thread used '%s'; it must "
		                 "exec before it can",
		                 home);
	b = xcalloc(1, sizeof(*b));
	b->fork.forget = backend_forget;
	atomic_store(&b->fork.busy, true);
	fork_list_add(&b->fork);
	b->home_fd = home_fd;
	b->synchronous = -1;
	b->path = database_path(home_fd, home);
	r = open_and_identify(b, err);
	if (r < 0) {
		backend_close(b);
		return r;
	}
	atomic_store(&b->fork.busy, false);
	*ret = b;
	return r;
}

/* ---- check ---- */

static int first_text(void *ctx, const struct value *cols, size_t count)
{
	char **text = ctx;

	if (!*text && count > 0 && cols[0].type == VALUE_TEXT)
		*text = xstrndup(cols[0].text, LIMIT_MESSAGE);
	return 0;
}

static int backend_check(struct backend *b, struct error *err)
{
	static const char integrity[] = "SELECT integrity_check FROM pragma_integrity_check "
					"WHERE integrity_check <> 'ok'";
	static const char references[] =
		"SELECT 'a row of ' || \"table\" || ' refers to a missing row of ' || parent "
		"FROM pragma_foreign_key_check";
	static const char *const checks[] = { integrity, references };
	cleanup_free char *text = NULL;

	for (size_t i = 0; !text && i < sizeof(checks) / sizeof(checks[0]); i++) {
		int r = sqlite_run(b, checks[i], NO_ARGS, first_text, &text, err);

		if (r < 0)
			return r;
	}
	return text ? sqlite_damaged(b->path, text, err) : 0;
}

static const char *backend_where(const struct backend *b)
{
	return b->path;
}

const struct registry_backend registry_sqlite = {
	.name = "sqlite",
	.open = backend_open,
	.setup = backend_setup,
	.close = backend_close,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.rollback = sqlite_rollback,
	.sync = backend_sync,
	.tend = backend_tend,
	.run = sqlite_run,
	.prepare = sqlite_prepare,
	.check = backend_check,
	.version = sqlite_version,
	.where = backend_where,
};
