/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consistent copies of a database that others write to, and the workspace made of one.
 *
 * With a rollback journal the file itself is consistent as long as we hold a read lock: it is read
 * through SQLite's own descriptor (closing another one would drop the lock) as fast as `cp` does.
 * With a WAL the newest pages are elsewhere: sqlite-wal.c puts them over the copy where it can, and else
 * the backup interface copies page by page. A WAL that is empty when our transaction has begun has
 * nothing of what we read, and as long as it lasts nobody may bring later pages into the file.
 */
#include "strategy/sqlite-impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/uri.h"

#define CHUNK     (1 << 20)
#define WAL_TRIES 5 /* until nobody commits for a moment */
/* Where a command finds the work: in a directory that is its own anyway. */
#define VIEW_DIR "/run/atoll"

static const char *name_of(const struct atoll_participant *p)
{
	return strrchr(p->root, '/') + 1;
}

char *sqldb_base_path(const struct atoll_participant *p)
{
	return xasprintf("%s/base%" PRIu64, p->work, p->generation);
}

char *sqldb_work_dir(const struct atoll_participant *p)
{
	return xasprintf("%s/w%" PRIu64, p->work, p->generation);
}

char *sqldb_work_path(const struct atoll_participant *p)
{
	return xasprintf("%s/w%" PRIu64 "/%s", p->work, p->generation, name_of(p));
}

char *sqldb_link_path(const struct atoll_participant *p)
{
	return xasprintf("%s/link%" PRIu64, p->work, p->generation);
}

char *sqldb_view_dir(const struct atoll_participant *p)
{
	return xasprintf("%s/%s", VIEW_DIR, p->id);
}

static int open_dir(struct atoll_participant *p, const char *path, int *ret_fd)
{
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", path) : 0;
}

/* ---- copies ---- */

/* At most LIMIT bytes of it. */
static int read_through(struct atoll_participant *p, sqlite3 *db, int64_t limit, int to_fd,
                        const char *to)
{
	cleanup_free char *chunk = malloc(CHUNK);
	sqlite3_file *file = NULL;
	sqlite3_int64 size = 0;
	int rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file), r = 0;

	if (!chunk)
		return error_set(&p->err, -ENOMEM, "no memory to copy '%s'", p->root);
	if (rc == SQLITE_OK)
		rc = file->pMethods->xFileSize(file, &size);
	if (size > limit)
		size = limit;
	for (sqlite3_int64 at = 0; rc == SQLITE_OK && r == 0 && at < size; at += CHUNK) {
		int n = size - at < CHUNK ? (int)(size - at) : CHUNK;

		rc = file->pMethods->xRead(file, chunk, n, at);
		if (rc == SQLITE_OK)
			r = fs_write_all(to_fd, chunk, (size_t)n);
	}
	if (rc != SQLITE_OK)
		return sqldb_fail(p, db, rc, "read");
	return r < 0 ? error_sys(&p->err, r, "write", to) : 0;
}

static int back_up(struct atoll_participant *p, sqlite3 *db, const char *to)
{
	cleanup_sqldb sqlite3 *copy = NULL;
	sqlite3_backup *backup;
	int rc, r = sqldb_open(p, SQLDB_OWN, to, &copy);

	if (r >= 0)
		r = sqldb_exec(p, copy,
		               "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=OFF; "
		               "PRAGMA cache_size=200");
	if (r < 0)
		return r;
	backup = sqlite3_backup_init(copy, "main", db, "main");
	if (!backup)
		return sqldb_fail(p, copy, sqlite3_errcode(copy), "write");
	do
		rc = sqlite3_backup_step(backup, -1);
	while (rc == SQLITE_OK);
	(void)sqlite3_backup_finish(backup);
	return rc == SQLITE_DONE ? 0 : sqldb_fail(p, copy, rc, "copy into");
}

/* Marks of commits under way are no content. */
static int drop_marks(struct atoll_participant *p, const char *path)
{
	cleanup_sqldb sqlite3 *db = NULL;
	int r = sqldb_open(p, SQLDB_OWN, path, &db);

	return r < 0 ? r : sqldb_exec(p, db, "DROP TABLE IF EXISTS main." SQLDB_MARKER);
}

static int has_marks(struct atoll_participant *p, sqlite3 *db, bool *ret)
{
	int64_t n = 0;
	int r = sqldb_number(
		p, db, &n, "SELECT count(*) FROM main.sqlite_schema WHERE name='" SQLDB_MARKER "'");

	*ret = n > 0;
	return r;
}

/* Asked within a transaction. */
static bool is_in_wal(sqlite3 *db)
{
	const char *wal = sqlite3_filename_wal(sqlite3_db_filename(db, "main"));
	struct fs_stat st;
	int r = sqldb_is_wal(db) ? fs_stat_at(AT_FDCWD, wal, 0, &st) : -ENOENT;

	return r != -ENOENT && (r < 0 || st.size > 0);
}

/* The resource itself: only of that are the side files nobody's who means harm. */
static bool is_live(const struct atoll_participant *p, sqlite3 *db)
{
	return strcmp(sqlite3_db_filename(db, "main"), p->root) == 0;
}

/* The first look takes the lock; what is no database shows itself here. */
static int begin_read(struct atoll_participant *p, sqlite3 *db, bool *ret_marked)
{
	int r = sqldb_exec(p, db, "BEGIN");

	return r < 0 ? r : has_marks(p, db, ret_marked);
}

/* Begins a transaction. *ret_known: where in the WAL, since nobody committed meanwhile. */
static int begin_known(struct atoll_participant *p, sqlite3 *db, bool *ret_marked,
                       struct sqldb_wal *ret, bool *ret_known)
{
	struct sqldb_wal before;
	int r = begin_read(p, db, ret_marked);

	*ret_known = false;
	for (int i = 0; r >= 0 && i < WAL_TRIES && is_live(p, db) && is_in_wal(db); i++) {
		bool seen = sqldb_wal_look(db, &before);

		r = sqldb_exec(p, db, "ROLLBACK");
		if (r >= 0)
			r = begin_read(p, db, ret_marked);
		*ret_known = r >= 0 && seen && sqldb_wal_look(db, ret) &&
		             memcmp(before.index, ret->index, sizeof(before.index)) == 0;
		if (*ret_known)
			break;
	}
	return r;
}

/* 1: done; 0: not this way. */
static int copy_with_wal(struct atoll_participant *p, sqlite3 *db, const struct sqldb_wal *wal,
                         int fd, const char *path)
{
	/* What is behind the last page may be cut off while it is read. */
	int r = read_through(p, db, sqldb_wal_size(wal), fd, path);

	if (r < 0)
		return r;
	r = sqldb_wal_put(db, wal, fd);
	return r < 0 ? error_sys(&p->err, r, "copy the WAL into", path) : r;
}

static int copy_all(struct atoll_participant *p, sqlite3 *db, const struct sqldb_wal *wal, int fd,
                    const char *path)
{
	int r;

	if (!is_in_wal(db))
		return read_through(p, db, INT64_MAX, fd, path);
	r = wal ? copy_with_wal(p, db, wal, fd, path) : 0;
	if (r == 0 && (r = fs_allocate(fd, 0)) < 0)
		return error_sys(&p->err, r, "write", path);
	return r != 0 ? r : back_up(p, db, path);
}

int sqldb_snapshot(struct atoll_participant *p, sqlite3 *db, const char *dir, const char *name)
{
	cleanup_free char *path = xasprintf("%s/%s", dir, name);
	cleanup_close int dir_fd = FD_NONE, fd = FD_NONE;
	bool in_transaction = !sqlite3_get_autocommit(db), marked = false, known = false;
	struct sqldb_wal wal;
	int r = open_dir(p, dir, &dir_fd);

	if (r >= 0) {
		r = remove_tree_at(dir_fd, name);
		if (r >= 0)
			r = fs_create_at(dir_fd, name, 0600, &fd);
		if (r < 0)
			return error_sys(&p->err, r, "make", path);
	}
	if (r >= 0)
		r = in_transaction ? has_marks(p, db, &marked)
		                   : begin_known(p, db, &marked, &wal, &known);
	if (r >= 0)
		r = copy_all(p, db, known ? &wal : NULL, fd, path);
	if (!in_transaction)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	if (r >= 0 && marked)
		r = drop_marks(p, path);
	return r;
}

/* ---- the workspace ---- */

void sqldb_workspace_remove(struct atoll_participant *p, uint64_t generation)
{
	static const char *const parts[] = { "base", "base-journal", "w", "link" };
	cleanup_close int dir_fd = open(p->work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; dir_fd >= 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
		size_t letters = strcspn(parts[i], "-");
		char name[48];

		(void)snprintf(name, sizeof(name), "%.*s%" PRIu64 "%s", (int)letters, parts[i],
		               generation, parts[i] + letters);
		(void)remove_tree_at(dir_fd, name);
	}
}

/* Side files are made in the directory of what a link leads to: so the link leads into a directory
 * of the sandbox's own, which commands see at VIEW_DIR. */
static int make_work(struct atoll_participant *p, int dir_fd, const struct fs_stat *live)
{
	cleanup_free char *view = sqldb_view_dir(p), *dir = sqldb_work_dir(p);
	cleanup_free char *to = xasprintf("%s/%s", view, name_of(p));
	cleanup_close int work_fd = FD_NONE;
	char w[32], base[32], link[32];
	int r;

	(void)snprintf(w, sizeof(w), "w%" PRIu64, p->generation);
	(void)snprintf(base, sizeof(base), "base%" PRIu64, p->generation);
	(void)snprintf(link, sizeof(link), "link%" PRIu64, p->generation);
	r = fs_mkdir_at(dir_fd, w, 0700);
	if (r >= 0) {
		work_fd = openat(dir_fd, w, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = work_fd < 0 ? -errno : 0;
	}
	if (r >= 0)
		r = copy_entry_at(dir_fd, base, work_fd, name_of(p), NULL, NULL);
	if (r >= 0)
		r = fs_set_mode(work_fd, name_of(p), live->mode & 0777);
	if (r >= 0)
		r = fs_symlink_at(to, dir_fd, link);
	return r < 0 ? error_sys(&p->err, r, "make the workspace in", dir) : 0;
}

/* What a commit will need, asked now. */
static int check_writable(struct atoll_participant *p, sqlite3 *db)
{
	cleanup_free char *dir = xstrndup(p->root, (size_t)(name_of(p) - p->root));

	/* It opens what it could not open for writing, whatever the reason, for reading. */
	if (sqlite3_db_readonly(db, "main") == 1 &&
	    faccessat(AT_FDCWD, p->root, W_OK, AT_EACCESS) == 0)
		return error_set(
			&p->err, -EIO,
			"SQLite took '%s' for a readonly database, though you may write to "
			"it; nothing was changed, try again",
			p->root);
	if (sqlite3_db_readonly(db, "main") == 1)
		return error_set(&p->err, -EACCES,
		                 "you may read '%s' but not write to it, so nothing could be "
		                 "committed",
		                 p->root);
	if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	if (errno != EACCES && errno != EPERM && errno != EROFS)
		return error_sys(&p->err, -errno, "look at", dir);
	return error_set(&p->err, -EACCES,
	                 "you may not make files in '%s', where SQLite needs a journal to "
	                 "commit to '%s'",
	                 dir, p->root);
}

static int fill(struct atoll_participant *p, int dir_fd)
{
	cleanup_sqldb sqlite3 *live = NULL;
	char base[32];
	struct fs_stat st;
	int r = sqldb_open(p, SQLDB_LIVE, p->root, &live);

	(void)snprintf(base, sizeof(base), "base%" PRIu64, p->generation);
	if (r >= 0)
		r = check_writable(p, live);
	if (r >= 0) {
		r = fs_stat_at(AT_FDCWD, p->root, 0, &st);
		if (r < 0)
			return error_sys(&p->err, r, "look at", p->root);
		r = sqldb_snapshot(p, live, p->work, base);
	}
	crashpoint("sqlite.create.copied");
	return r < 0 ? r : make_work(p, dir_fd, &st);
}

int sqldb_workspace_make(struct atoll_participant *p)
{
	cleanup_close int dir_fd = FD_NONE;
	int r = open_dir(p, p->work, &dir_fd);

	if (r < 0)
		return r;
	sqldb_workspace_remove(p, p->generation); /* what an interrupted attempt left */
	r = fill(p, dir_fd);
	if (r < 0)
		sqldb_workspace_remove(p, p->generation);
	return r;
}

/* Only what SQLite makes is opened: a FIFO would hold us for ever. A journal over several databases
 * means that a command was killed in such a transaction; only where it ran can that be ended. */
static int check_files(struct atoll_participant *p, bool alone)
{
	static const char *const sides[] = { "", "-journal", "-wal", "-shm" };
	cleanup_free char *dir = sqldb_work_dir(p);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;
	size_t len = strlen(name_of(p));
	bool found = false;
	int r = open_dir(p, dir, &fd);

	if (r >= 0 && (r = dirlist_read(fd, &list)) < 0)
		return error_sys(&p->err, r, "read", dir);
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		const char *name = list.v[i].name;

		if (strncmp(name, name_of(p), len) != 0)
			continue;
		for (size_t k = 0; k < sizeof(sides) / sizeof(sides[0]); k++)
			if (strcmp(name + len, sides[k]) == 0 && list.v[i].type != DT_REG)
				return error_set(&p->err, -ATOLL_E_POLICY,
				                 "'%s/%s' is no regular file any more", dir, name);
		found = found || !name[len];
		if (alone && strncmp(name + len, "-mj", 3) == 0) {
			r = error_set(&p->err, -ATOLL_E_CANNOT_PREPARE,
			              "a command was killed in a transaction over '%s' and other "
			              "databases",
			              p->root);
			error_hint(&p->err, "atoll exec %s -- sqlite3 %s .schema ends it", p->plan,
			           p->root);
		}
	}
	if (r >= 0 && !found) {
		r = error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		              "the plan deleted the database '%s', which is not committed",
		              p->root);
		error_hint(&p->err, "atoll discard %s begins again", p->plan);
	}
	return r;
}

/* Nothing was written: no pages, and none that wait in a journal. */
int sqldb_workspace_untouched(struct atoll_participant *p)
{
	cleanup_free char *dir = sqldb_work_dir(p), *base = sqldb_base_path(p);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int base_fd = FD_NONE, fd = FD_NONE;
	int r = open_dir(p, dir, &fd);

	if (r >= 0)
		r = open_dir(p, p->work, &base_fd);
	if (r >= 0 && (r = dirlist_read(fd, &list)) < 0)
		return error_sys(&p->err, r, "read", dir);
	if (r < 0 || list.n != 1 || strcmp(list.v[0].name, name_of(p)) != 0 ||
	    list.v[0].type != DT_REG)
		return r < 0 ? r : 0;
	r = copy_same_content(base_fd, strrchr(base, '/') + 1, fd, name_of(p));
	return r < 0 ? 0 : r;
}

int sqldb_workspace_open(struct atoll_participant *p, bool alone, sqlite3 **ret)
{
	cleanup_free char *path = sqldb_work_path(p), *base = sqldb_base_path(p);
	cleanup_free char *uri = uri_of_file(base, "mode=ro&immutable=1");
	cleanup_sqldb sqlite3 *db = NULL;
	cleanup_free char *dir = sqldb_work_dir(p);
	int r = check_files(p, alone);

	if (r >= 0 && !alone && !sabotage("private-copy"))
		r = sqldb_reading_open(p, dir, name_of(p), &db);
	else if (r >= 0)
		r = sqldb_open(p, SQLDB_WORK, path, &db);
	if (r >= 0 && alone) /* no shared memory that a command could have left in any state */
		r = sqldb_exec(p, db, "PRAGMA locking_mode=EXCLUSIVE");
	if (r >= 0)
		r = sqldb_exec(p, db, "ATTACH %Q AS " SQLDB_BASE, uri);
	if (r < 0)
		return r;
	*ret = take_ptr(db);
	return 0;
}
