/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, and SQLite's answers in the project's number space.
 *
 * A database that commands wrote is opened through a file layer with one door less. The journal of
 * a transaction over several databases names a further file, which SQLite, when it rolls back,
 * opens and may delete. In a file that a command made that name could be any of the user's.
 */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "util/cleanup.h"
#include "util/mem.h"

#define WORK_VFS "atoll-work"
/* As long as somebody else's writing may take; who holds a lock longer keeps it for good. */
#define BUSY_MS 5000

/* ---- the file layer ---- */

static sqlite3_vfs *unix_vfs;
static sqlite3_vfs work_vfs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int work_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                     int *ret_flags)
{
	(void)vfs;
	file->pMethods = NULL;
	if (flags & SQLITE_OPEN_SUPER_JOURNAL)
		return SQLITE_CANTOPEN;
	return unix_vfs->xOpen(unix_vfs, name, file, flags, ret_flags);
}

static void make_vfs(void)
{
	unix_vfs = sqlite3_vfs_find("unix");
	if (!unix_vfs)
		return;
	work_vfs = *unix_vfs;
	work_vfs.pNext = NULL;
	work_vfs.zName = WORK_VFS;
	work_vfs.xOpen = work_open;
	if (sqlite3_vfs_register(&work_vfs, 0) != SQLITE_OK)
		unix_vfs = NULL;
}

/* ---- errors ---- */

static const struct mapping {
	int rc;   /* extended or primary; extended ones come first */
	int code; /* positive; 0: the system's errno, else EIO */
} mappings[] = {
	{ SQLITE_IOERR_NOMEM, ENOMEM },
	{ SQLITE_IOERR_CORRUPTFS, ATOLL_E_DAMAGED },
	{ SQLITE_CANTOPEN_SYMLINK, ELOOP },
	{ SQLITE_CANTOPEN_ISDIR, EISDIR },
	{ SQLITE_FULL, ENOSPC },
	{ SQLITE_IOERR, 0 },
	{ SQLITE_CANTOPEN, 0 },
	{ SQLITE_PERM, EACCES },
	{ SQLITE_AUTH, EACCES },
	{ SQLITE_READONLY, EACCES },
	{ SQLITE_NOMEM, ENOMEM },
	{ SQLITE_CORRUPT, ATOLL_E_DAMAGED },
	{ SQLITE_NOTADB, ATOLL_E_INVALID },
	{ SQLITE_FORMAT, ATOLL_E_INVALID },
	{ SQLITE_BUSY, ATOLL_E_TIMEOUT },
	{ SQLITE_LOCKED, ATOLL_E_TIMEOUT },
	{ SQLITE_PROTOCOL, ATOLL_E_TIMEOUT },
	{ SQLITE_TOOBIG, ATOLL_E_TOO_BIG },
	{ SQLITE_ERROR, ATOLL_E_CANNOT_PREPARE },
	{ SQLITE_CONSTRAINT, ATOLL_E_CONFLICT },
	{ SQLITE_SCHEMA, ATOLL_E_CONFLICT },
};

static int code_of(int rc, int os_errno)
{
	for (size_t i = 0; i < sizeof(mappings) / sizeof(mappings[0]); i++) {
		if (mappings[i].rc != rc && mappings[i].rc != (rc & 0xff))
			continue;
		if (mappings[i].code)
			return mappings[i].code;
		return os_errno > 0 ? os_errno : EIO;
	}
	return EIO;
}

/* Which file it was about. */
static const char *path_of(struct atoll_participant *p, sqlite3 *db)
{
	const char *path = db ? sqlite3_db_filename(db, "main") : NULL;

	return path && *path ? path : p->root;
}

/* Not every call leaves its error with the connection; then what the system said last is the reason. */
static bool is_kept(sqlite3 *db, int rc)
{
	return db && (sqlite3_errcode(db) & 0xff) == (rc & 0xff);
}

int sqldb_fail(struct atoll_participant *p, sqlite3 *db, int rc, const char *op)
{
	int os_errno = is_kept(db, rc) ? sqlite3_system_errno(db) : errno;
	const char *text = is_kept(db, rc) ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
	const char *path = path_of(p, db);
	int code = code_of(rc, os_errno);

	if (p->err.code) /* said already */
		return p->err.code;
	if (code == ATOLL_E_TIMEOUT) {
		(void)error_set(&p->err, -code,
		                "'%s' is locked by somebody else, for more than %d seconds", path,
		                BUSY_MS / 1000);
		error_hint(&p->err, "end the transaction that holds it, then again");
	} else if ((rc & 0xff) == SQLITE_NOTADB) {
		(void)error_set(&p->err, -code, "'%s' is no SQLite database, or an encrypted one",
		                path);
		error_hint(&p->err,
		           "give the database itself; other files go with their directory: "
		           "atoll start --dir DIR");
	} else {
		(void)error_set(&p->err, -code, "cannot %s '%s': %s", op, path, text);
	}
	error_cause(&p->err, op, path, code < ATOLL_E_INVALID ? code : 0, text);
	return -code;
}

/* ---- connections ---- */

static int configure(struct atoll_participant *p, sqlite3 *db, enum sqldb_role role)
{
	static const struct {
		int option, value;
	} options[] = {
		{ SQLITE_DBCONFIG_ENABLE_TRIGGER, 0 },
		{ SQLITE_DBCONFIG_ENABLE_FKEY, 0 },
		{ SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0 },
		{ SQLITE_DBCONFIG_DEFENSIVE, 1 },
	};
	bool durable = role == SQLDB_LIVE || role == SQLDB_LIVE_NOW || role == SQLDB_KEPT;
	sqlite3_int64 no_map = 0;

	(void)sqlite3_busy_timeout(db, role == SQLDB_LIVE_NOW ? 0 : BUSY_MS);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)sqlite3_db_config(db, options[i].option, options[i].value, NULL);
	(void)sqlite3_file_control(db, "main", SQLITE_FCNTL_MMAP_SIZE, &no_map);
	/* EXTRA: the directory, too, once the journal that would undo the commit is gone. */
	return sqldb_exec(p, db,
	                  "PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON; "
	                  "PRAGMA synchronous=%s",
	                  durable ? "EXTRA" : "OFF");
}

int sqldb_open(struct atoll_participant *p, enum sqldb_role role, const char *path, sqlite3 **ret)
{
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
	                  SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI;
	bool live = role == SQLDB_LIVE || role == SQLDB_LIVE_NOW;
	cleanup_sqldb sqlite3 *db = NULL;
	int rc, r;

	(void)pthread_once(&once, make_vfs);
	if (!live && !unix_vfs)
		return error_set(&p->err, -ENOMEM, "no memory to open '%s'", path);
	rc = sqlite3_open_v2(path, &db, flags, live ? NULL : WORK_VFS);
	if (rc != SQLITE_OK) {
		r = code_of(rc, sqlite3_system_errno(db));
		(void)error_set(&p->err, -r, "cannot open '%s': %s", path,
		                r < ATOLL_E_INVALID ? strerror(r) : sqlite3_errstr(rc));
		error_cause(&p->err, "open", path, r < ATOLL_E_INVALID ? r : 0, sqlite3_errstr(rc));
		return -r;
	}
	r = configure(p, db, role);
	if (r < 0)
		return r;
	*ret = take_ptr(db);
	return 0;
}

void sqldb_close(sqlite3 *db)
{
	if (sqlite3_close(db) != SQLITE_OK)
		BUG("a statement was left");
}

void cleanup_sqldbp(sqlite3 **db)
{
	sqldb_close(*db);
}

void cleanup_stmtp(sqlite3_stmt **stmt)
{
	(void)sqlite3_finalize(*stmt);
}

void cleanup_sqlitep(void *p)
{
	sqlite3_free(*(void **)p);
}

/* ---- statements ---- */

static int compile(struct atoll_participant *p, sqlite3 *db, sqlite3_stmt **ret, const char *format,
                   va_list ap)
{
	cleanup_sqlite char *sql = sqlite3_vmprintf(format, ap);
	int rc = sql ? sqlite3_prepare_v2(db, sql, -1, ret, NULL) : SQLITE_NOMEM;

	return rc == SQLITE_OK ? 0 : sqldb_fail(p, db, rc, "read");
}

int sqldb_exec(struct atoll_participant *p, sqlite3 *db, const char *format, ...)
{
	cleanup_sqlite char *sql = NULL;
	va_list ap;
	int rc;

	va_start(ap, format);
	sql = sqlite3_vmprintf(format, ap);
	va_end(ap);
	rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, db, rc, "write");
}

int sqldb_prepare(struct atoll_participant *p, sqlite3 *db, sqlite3_stmt **ret, const char *format,
                  ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = compile(p, db, ret, format, ap);
	va_end(ap);
	return r;
}

int sqldb_step(struct atoll_participant *p, sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : sqldb_fail(p, sqlite3_db_handle(stmt), rc, "read");
}

int sqldb_number(struct atoll_participant *p, sqlite3 *db, int64_t *ret, const char *format, ...)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;
	va_list ap;
	int r;

	va_start(ap, format);
	r = compile(p, db, &stmt, format, ap);
	va_end(ap);
	if (r >= 0)
		r = sqldb_step(p, stmt);
	if (r < 0)
		return r;
	*ret = r ? sqlite3_column_int64(stmt, 0) : 0;
	return 0;
}

bool sqldb_is_wal(sqlite3 *db)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;

	return sqlite3_prepare_v2(db, "PRAGMA main.journal_mode", -1, &stmt, NULL) == SQLITE_OK &&
	       sqlite3_step(stmt) == SQLITE_ROW &&
	       strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
}
