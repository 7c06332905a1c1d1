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

#include "fs/atomic.h"
#include "registry/schema.h"
#include "registry/sqlite-impl.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DB_NAME         "atoll.db"
#define BUSY_TIMEOUT_MS 5000 /* a net: under the store lock only foreign programs are met */
/* Frames of 4 KiB in the WAL that make a commit checkpoint. The first process to open the store
 * after a pause reads them all, about 1.5 us each, so this bounds start-up. */
#define CHECKPOINT_FRAMES 128
#define STATEMENTS_MAX    64
#define COLUMNS_MAX       16

struct cached {
	const char *sql; /* compared by address */
	sqlite3_stmt *stmt;
};

struct backend {
	sqlite3 *db;
	struct fork_entry fork;
	int home_fd; /* the caller's */
	char *path;
	enum registry_durability durability; /* of the open transaction */
	int synchronous;                     /* the pragma's value now; -1: not set yet */
	bool reading;                        /* opened so that nothing can be written */
	bool in_txn;
	bool failed;    /* a synchronous write failed: what is on disk is unknown */
	int wal_frames; /* after our last commit */
	struct cached cache[STATEMENTS_MAX];
	size_t cached;
};

static int fail(struct backend *b, int rc, const char *op, struct error *err)
{
	return sqlite_error(b->db, rc, b->path, b->home_fd, op, err);
}

static int run_script(struct backend *b, const char *sql, const char *op, struct error *err)
{
	int rc = sqlite3_exec(b->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(b, rc, op, err);
}

/* ---- the connection ---- */

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
static int connection_open(struct backend *b, bool create, struct error *err)
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
		r = fail(b, rc, "open", err);
	(void)sqlite3_close(b->db);
	b->db = NULL;
	return r;
}

static void connection_close(struct backend *b)
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
static bool connection_open_reading(struct backend *b)
{
	cleanup_free char *uri = sqlite_reading_uri(b->path);

	b->reading = sqlite3_open_v2(uri, &b->db, OPEN_FLAGS | SQLITE_OPEN_URI,
	                             sqlite_vfs_name()) == SQLITE_OK;
	if (b->reading)
		configure(b);
	else
		connection_close(b);
	return b->reading;
}

/* The ordinary connection, if this is the other one. */
static int connection_for_writing(struct backend *b, struct error *err)
{
	int r;

	if (b->db && !b->reading)
		return 0;
	connection_close(b);
	r = connection_open(b, false, err);
	return r == 1 ? error_sys(err, -ENOENT, "open", b->path) : r;
}

/* ---- statements ---- */

static int statement_get(struct backend *b, const char *sql, sqlite3_stmt **ret, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc;

	for (size_t i = 0; i < b->cached; i++) {
		if (b->cache[i].sql == sql) {
			*ret = b->cache[i].stmt;
			return 0;
		}
	}
	if (b->cached == STATEMENTS_MAX)
		BUG("more than %d different statements", STATEMENTS_MAX);
	rc = sqlite3_prepare_v3(b->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
	if (rc == SQLITE_ERROR) {
		/* Our own constant text does not fit the tables: they are not ours. */
		return sqlite_damaged(b->path, sqlite3_errmsg(b->db), err);
	}
	if (rc != SQLITE_OK)
		return fail(b, rc, "prepare", err);
	b->cache[b->cached++] = (struct cached){ .sql = sql, .stmt = stmt };
	*ret = stmt;
	return 0;
}

static int statement_bind(sqlite3_stmt *stmt, struct args args)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < args.n; i++) {
		const struct value *v = &args.v[i];

		if (v->type == VALUE_INT)
			rc = sqlite3_bind_int64(stmt, (int)i + 1, v->num);
		else
			rc = sqlite3_bind_text(stmt, (int)i + 1, v->text ? v->text : "", -1,
			                       SQLITE_STATIC);
	}
	return rc;
}

/* 0; -ENOMEM; -ATOLL_E_DAMAGED for a type we never store. */
static int statement_row(sqlite3_stmt *stmt, backend_row_fn fn, void *ctx)
{
	struct value cols[COLUMNS_MAX];
	int n = sqlite3_column_count(stmt);

	if (n > COLUMNS_MAX)
		BUG("%d columns", n);
	for (int i = 0; i < n; i++) {
		int type = sqlite3_column_type(stmt, i);

		if (type == SQLITE_INTEGER) {
			cols[i] = INT_VALUE(sqlite3_column_int64(stmt, i));
		} else if (type == SQLITE_TEXT) {
			cols[i] = TEXT_VALUE((const char *)sqlite3_column_text(stmt, i));
			if (!cols[i].text)
				return -ENOMEM;
			/* A NUL inside would hide the rest. */
			if (strlen(cols[i].text) != (size_t)sqlite3_column_bytes(stmt, i))
				return -ATOLL_E_DAMAGED;
		} else {
			return -ATOLL_E_DAMAGED;
		}
	}
	return fn(ctx, cols, (size_t)n);
}

/* SQLITE_DONE or SQLite's error; what the callback said in *ret_answer. */
static int statement_step(sqlite3_stmt *stmt, backend_row_fn fn, void *ctx, int *ret_answer)
{
	int rc;

	*ret_answer = 0;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (fn && *ret_answer >= 0)
			*ret_answer = statement_row(stmt, fn, ctx);
	}
	return rc;
}

static int answer_error(struct backend *b, int answer, struct error *err)
{
	if (answer == -ATOLL_E_DAMAGED)
		return sqlite_damaged(b->path, "a row holds what was never written", err);
	return error_sys(err, answer, "read", b->path);
}

static int run_statement(struct backend *b, const char *sql, struct args args, backend_row_fn fn,
                         void *ctx, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int r, rc, answer = 0;

	/* SQLite ends a transaction by itself after some errors; what follows would then be
	 * committed one by one. */
	if (b->in_txn && sqlite3_get_autocommit(b->db))
		return error_set(err, -EIO, "the transaction on '%s' failed earlier", b->path);
	r = statement_get(b, sql, &stmt, err);
	if (r < 0)
		return r;
	rc = statement_bind(stmt, args);
	if (rc == SQLITE_OK)
		rc = statement_step(stmt, fn, ctx, &answer);
	if (rc != SQLITE_DONE)
		r = fail(b, rc, "query", err);
	else if (answer < 0)
		r = answer_error(b, answer, err);
	else
		r = sqlite3_stmt_readonly(stmt) ? 0 : sqlite3_changes(b->db);
	(void)sqlite3_reset(stmt); /* repeats the error of the step */
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

/* A process that died in the middle of writing left an index that only a writer may mend. SQLite
 * finds out before the first row. */
static bool reading_is_refused(struct backend *b)
{
	int rc = b->reading ? sqlite3_errcode(b->db) & 0xff : SQLITE_OK;

	return rc == SQLITE_READONLY || rc == SQLITE_CANTOPEN;
}

/* In a transaction it is busy already, and stays so. */
static int backend_run(struct backend *b, const char *sql, struct args args, backend_row_fn fn,
                       void *ctx, struct error *err)
{
	cleanup_error struct error first = ERROR_INIT;
	int r;

	atomic_store(&b->fork.busy, true);
	r = run_statement(b, sql, args, fn, ctx, &first);
	if (r < 0 && reading_is_refused(b)) {
		r = connection_for_writing(b, err);
		if (r == 0)
			r = run_statement(b, sql, args, fn, ctx, err);
	} else if (r < 0 && err) {
		error_move(err, &first);
	}
	atomic_store(&b->fork.busy, b->in_txn);
	return r;
}

/* ---- transactions ---- */

static int set_synchronous(struct backend *b, enum registry_durability d, struct error *err)
{
	int want = d == REGISTRY_DURABLE && !sabotage("registry-sync") ? 2 : 1;
	int r;

	if (b->synchronous == want)
		return 0;
	r = run_script(b, want == 2 ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
	               "configure", err);
	if (r == 0)
		b->synchronous = want;
	return r;
}

static void backend_rollback(struct backend *b)
{
	if (!sqlite3_get_autocommit(b->db))
		(void)sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
	b->in_txn = false;
	atomic_store(&b->fork.busy, false);
}

static int backend_begin(struct backend *b, enum registry_durability d, struct error *err)
{
	int r;

	if (b->failed)
		return sqlite_unknown(b->path, err);
	atomic_store(&b->fork.busy, true);
	r = connection_for_writing(b, err);
	if (r == 0)
		r = set_synchronous(b, d, err);
	if (r == 0)
		r = run_script(b, "BEGIN IMMEDIATE", "begin", err);
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
static void checkpoint(struct backend *b)
{
	if (b->wal_frames < CHECKPOINT_FRAMES)
		return;
	(void)sqlite3_wal_checkpoint_v2(b->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	b->wal_frames = 0;
}

/* The commit mark may have reached the disk before the error did. */
static int commit_failed(struct backend *b, int rc, int os_errno, struct error *err)
{
	int r;

	if ((rc & 0xff) != SQLITE_IOERR || b->durability != REGISTRY_DURABLE)
		return fail(b, rc, "commit", err);
	b->failed = true;
	r = sqlite_unknown(b->path, err);
	error_cause(err, "commit", b->path, os_errno, sqlite3_errmsg(b->db));
	return r;
}

static int backend_commit(struct backend *b, struct error *err)
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
			checkpoint(b);
		else
			r = commit_failed(b, rc, os_errno, err);
	}
	backend_rollback(b);
	return r;
}

/* ---- opening ---- */

static int pragma_value(void *ctx, const struct value *cols, size_t count)
{
	if (count != 1 || cols[0].type != VALUE_INT)
		return -ATOLL_E_DAMAGED;
	*(int64_t *)ctx = cols[0].num;
	return 0;
}

/* Not kept prepared: asked once. */
static int ask(struct backend *b, const char *sql, int64_t *ret, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int answer = 0;
	int rc = sqlite3_prepare_v2(b->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = statement_step(stmt, pragma_value, ret, &answer);
	(void)sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE)
		return fail(b, rc, "read", err);
	return answer < 0 ? answer_error(b, answer, err) : 0;
}

struct identity {
	int64_t id;
	int64_t version;
	int64_t tables; /* only asked for when the others are 0 */
};

/* In one snapshot: somebody may be making the file right now. */
static int read_identity(struct backend *b, struct identity *ret, struct error *err)
{
	struct identity found = { 0 };
	int r = run_script(b, "BEGIN", "read", err);

	if (r == 0)
		r = ask(b, "PRAGMA application_id", &found.id, err);
	if (r == 0)
		r = ask(b, "PRAGMA user_version", &found.version, err);
	if (r == 0 && found.id == 0 && found.version == 0)
		r = ask(b, "SELECT count(*) FROM sqlite_schema", &found.tables, err);
	if (!sqlite3_get_autocommit(b->db))
		(void)sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
	if (r == 0)
		*ret = found;
	return r;
}

/* The schema's version; 0 for a file that is still empty, as after a crash while it was made. */
static int identify(struct backend *b, struct error *err)
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
	r = backend_run(b, sql, ARGS(TEXT_VALUE(uuid)), NULL, NULL, err);
	return r < 0 ? r : 0;
}

static int stamp_file(struct backend *b, struct error *err)
{
	char stamp[96];

	(void)snprintf(stamp, sizeof(stamp), "PRAGMA application_id=%d; PRAGMA user_version=%d",
	               SCHEMA_APPLICATION_ID, SCHEMA_VERSION);
	return run_script(b, stamp, "migrate", err);
}

static int migrate(struct backend *b, int version, struct error *err)
{
	int r = 0;

	for (int v = version; r == 0 && v < SCHEMA_VERSION; v++)
		r = run_script(b, schema_steps[v], "migrate", err);
	if (r == 0 && version == 0)
		r = write_uuid(b, err);
	return r == 0 ? stamp_file(b, err) : r;
}

/*
 * A new registry's WAL holds each of its pages, and every command to come would read them all.
 * They go to the database, and the WAL begins anew with a frame of no meaning: so that its name
 * is durable, and the first commit of a command need not make it so (sqlite-vfs.c). Nothing is
 * lost when this fails.
 */
static void shorten_wal(struct backend *b)
{
	(void)sqlite3_wal_checkpoint_v2(b->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	if (backend_begin(b, REGISTRY_NORMAL, NULL) < 0)
		return;
	if (stamp_file(b, NULL) < 0)
		backend_rollback(b);
	else
		(void)backend_commit(b, NULL);
}

static int make_wal(struct backend *b, struct error *err)
{
	int r;

	/* SQLite gives its files the mode of the database. */
	r = fs_set_mode(b->home_fd, DB_NAME, 0600);
	if (r < 0)
		return error_sys(err, r, "chmod", b->path);
	return run_script(b, "PRAGMA journal_mode=WAL", "set up", err);
}

static int make_schema(struct backend *b, struct error *err)
{
	int r = 0, version;

	version = identify(b, err);
	if (version < 0 || version == SCHEMA_VERSION)
		return version < 0 ? version : 0;
	if (version == 0)
		r = make_wal(b, err);
	if (r == 0)
		r = backend_begin(b, REGISTRY_DURABLE, err);
	if (r < 0)
		return r;
	r = migrate(b, version, err);
	if (r < 0)
		backend_rollback(b);
	else
		r = backend_commit(b, err);
	if (r == 0 && version == 0)
		shorten_wal(b);
	return r;
}

static int backend_setup(struct backend *b, struct error *err)
{
	int r = 0;

	atomic_store(&b->fork.busy, true);
	if (!b->db)
		r = connection_open(b, true, err);
	if (r == 0)
		r = make_schema(b, err);
	atomic_store(&b->fork.busy, false);
	return r;
}

static void backend_forget(struct fork_entry *e)
{
	connection_close((struct backend *)((char *)e - offsetof(struct backend, fork)));
}

static void backend_close(struct backend *b)
{
	fork_list_remove(&b->fork);
	connection_close(b);
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
		return xasprintf("%s/" DB_NAME, home);
	return xasprintf("%.*s/" DB_NAME, (int)len, real);
}

/* As the back-end's open(). */
static int open_and_identify(struct backend *b, struct error *err)
{
	int r;

	if (sqlite_program_reads() && connection_open_reading(b)) {
		if (identify(b, NULL) == SCHEMA_VERSION)
			return 0;
		connection_close(b);
	}
	r = connection_open(b, false, err);
	if (r == 0) {
		r = identify(b, err);
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
	static const char integrity[] = "SELECT integrity_check FROM pragma_integrity_check(20) "
					"WHERE integrity_check <> 'ok'";
	static const char references[] =
		"SELECT 'a row of ' || \"table\" || ' refers to a missing row of ' || parent "
		"FROM pragma_foreign_key_check";
	static const char *const checks[] = { integrity, references };
	cleanup_free char *text = NULL;

	for (size_t i = 0; !text && i < sizeof(checks) / sizeof(checks[0]); i++) {
		int r = backend_run(b, checks[i], NO_ARGS, first_text, &text, err);

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
	.begin = backend_begin,
	.commit = backend_commit,
	.rollback = backend_rollback,
	.run = backend_run,
	.check = backend_check,
	.where = backend_where,
};
