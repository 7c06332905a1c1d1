/* SPDX-License-Identifier: Apache-2.0 */
/* One table from SQLite's result codes to ours. */
#include "registry/sqlite-impl.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/statvfs.h>

struct mapping {
	int rc;       /* extended or primary; extended ones come first */
	int code;     /* positive; 0: ask the system's errno */
	int fallback; /* positive, when that is not known */
};

static const struct mapping mappings[] = {
	{ SQLITE_IOERR_NOMEM, ENOMEM, 0 },
	{ SQLITE_IOERR_CORRUPTFS, ATOLL_E_DAMAGED, 0 },
	{ SQLITE_CANTOPEN_SYMLINK, ELOOP, 0 },
	{ SQLITE_CANTOPEN_ISDIR, EISDIR, 0 },
	{ SQLITE_CONSTRAINT_FOREIGNKEY, ATOLL_E_NOT_FOUND, 0 },
	{ SQLITE_FULL, ENOSPC, 0 },
	{ SQLITE_IOERR, 0, EIO },
	{ SQLITE_CANTOPEN, 0, EIO },
	{ SQLITE_PERM, EACCES, 0 },
	{ SQLITE_AUTH, EACCES, 0 },
	{ SQLITE_NOMEM, ENOMEM, 0 },
	{ SQLITE_CORRUPT, ATOLL_E_DAMAGED, 0 },
	{ SQLITE_NOTADB, ATOLL_E_DAMAGED, 0 },
	{ SQLITE_FORMAT, ATOLL_E_DAMAGED, 0 },
	{ SQLITE_BUSY, ATOLL_E_BUSY, 0 },
	{ SQLITE_LOCKED, ATOLL_E_BUSY, 0 },
	{ SQLITE_PROTOCOL, ATOLL_E_BUSY, 0 },
	{ SQLITE_CONSTRAINT, ATOLL_E_INVALID, 0 },
	{ SQLITE_TOOBIG, ATOLL_E_TOO_BIG, 0 },
};

/* SQLite calls a page that the disk did not give a damaged one, and forgets why. What the system said
 * last is still there: whoever is told that it is damaged should not be sent to a repair. */
static bool is_unread(int rc, int last_errno)
{
	return last_errno == EIO && (rc & 0xff) == SQLITE_CORRUPT;
}

static int code_of(sqlite3 *db, int rc, int home_fd)
{
	struct statvfs vfs;
	int os_errno = db ? sqlite3_system_errno(db) : 0;

	/* SQLite does not keep the reason why it fell back to reading. */
	if ((rc & 0xff) == SQLITE_READONLY)
		return fstatvfs(home_fd, &vfs) == 0 && (vfs.f_flag & ST_RDONLY) ? EROFS : EACCES;
	for (size_t i = 0; i < sizeof(mappings) / sizeof(mappings[0]); i++) {
		const struct mapping *m = &mappings[i];

		if (m->rc != rc && m->rc != (rc & 0xff))
			continue;
		if (m->code != 0)
			return m->code;
		return os_errno != 0 ? os_errno : m->fallback;
	}
	return EIO;
}

int sqlite_damaged(const char *path, const char *what, struct error *err)
{
	int r = error_set(err, -ATOLL_E_DAMAGED, "the registry '%s' is damaged: %s", path, what);

	error_hint(err, "atoll doctor");
	return r;
}

int sqlite_unknown(const char *path, int os_errno, struct error *err)
{
	int r = error_set(err, -ATOLL_E_NEEDS_RECOVERY,
	                  "writing the registry '%s' failed (%s); whether the last change is on "
	                  "disk is unknown",
	                  path, os_errno ? strerror(os_errno) : sqlite3_errstr(SQLITE_IOERR));

	error_hint(err, "atoll recover");
	error_cause(err, "commit", path, os_errno, sqlite3_errstr(SQLITE_IOERR));
	return r;
}

int sqlite_error(sqlite3 *db, int rc, const char *path, int home_fd, const char *op,
                 struct error *err)
{
	bool unread = is_unread(rc, errno);
	const char *text = unread ? strerror(EIO) : db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
	int code = unread ? EIO : code_of(db, rc, home_fd);

	if (code == ATOLL_E_DAMAGED)
		return sqlite_damaged(path, text, err);
	(void)error_set(err, -code, "cannot %s the registry '%s': %s", op, path, text);
	error_cause(err, op, path, code < ATOLL_E_INVALID ? code : 0, text);
	return -code;
}
