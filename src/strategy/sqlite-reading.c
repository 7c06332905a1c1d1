/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a plan while its commands run. They may do to its files what they like, at any moment: a mapping of
 * one of them would end this process when it is cut short. SQLite maps the -shm file of a database in WAL mode,
 * unless it has the database to itself. So what is read is a private copy: the database, its journal and its WAL, but
 * not the -shm, which SQLite then keeps in its own memory.
 *
 * The copy is consistent when the commands keep to SQLite's rules:
 *
 *   a rollback journal   changes the database only under an exclusive lock: we have the shared one
 *   a WAL                grows at its end, and what is half written there has no valid checksum. It comes into the
 *                        database in a checkpoint, which we lock out, and is begun anew with another salt, which we
 *                        compare
 *
 * The locks are of our open files (SQLite's are the process's), so that none of SQLite's is dropped here. Where the
 * commands keep to no rules, SQLite finds a damaged database, and that is all.
 */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define TRIES      10 /* until the files are the same before and after */
#define LOCK_MS    5000
#define LOOK_NS    5000000
#define WAL_HEADER 32
/* SQLite's own numbers (fileformat2, walformat): the shared lock of a database, and the byte of a checkpoint. */
#define SHARED_FIRST    0x40000002
#define SHARED_SIZE     510
#define CHECKPOINT_BYTE 121

struct reading {
	const char *name;
	int from_fd, to_fd;
	int main_fd, shm_fd;
};

struct look {
	struct stat main;
	unsigned char wal[WAL_HEADER];
	ssize_t wal_len; /* -1: there is none */
};

static int open_regular(int dir_fd, const char *name, int *ret_fd)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ELOOP;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int lock_shared(int fd, off_t start, off_t len)
{
	struct flock range = { .l_type = F_RDLCK,
		               .l_whence = SEEK_SET,
		               .l_start = start,
		               .l_len = len };
	int64_t until = clock_deadline(LOCK_MS);

	while (fcntl(fd, F_OFD_SETLK, &range) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		if (clock_boot_ns() > until)
			return -ETIMEDOUT;
		clock_sleep_ns(LOOK_NS);
	}
	return 0;
}

/* Closing the files unlocks them. */
static int lock_files(struct reading *in)
{
	cleanup_free char *shm = xasprintf("%s-shm", in->name);
	int r = open_regular(in->from_fd, in->name, &in->main_fd);

	if (r == 0)
		r = lock_shared(in->main_fd, SHARED_FIRST, SHARED_SIZE);
	if (r == 0)
		r = open_regular(in->from_fd, shm, &in->shm_fd);
	if (r == 0)
		r = lock_shared(in->shm_fd, CHECKPOINT_BYTE, 1);
	return r == -ENOENT && in->main_fd != FD_NONE ? 0 : r;
}

static int look_at(const struct reading *in, struct look *ret)
{
	cleanup_free char *wal = xasprintf("%s-wal", in->name);
	cleanup_close int fd = FD_NONE;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (fstat(in->main_fd, &ret->main) < 0)
		return -errno;
	r = open_regular(in->from_fd, wal, &fd);
	ret->wal_len = r < 0 ? -1 : pread(fd, ret->wal, WAL_HEADER, 0);
	return r == -ENOENT ? 0 : r;
}

static bool is_same(const struct look *a, const struct look *b)
{
	return a->main.st_ino == b->main.st_ino && a->main.st_size == b->main.st_size &&
	       a->main.st_mtim.tv_sec == b->main.st_mtim.tv_sec &&
	       a->main.st_mtim.tv_nsec == b->main.st_mtim.tv_nsec && a->wal_len == b->wal_len &&
	       memcmp(a->wal, b->wal, WAL_HEADER) == 0;
}

/* 1: done; 0: they changed meanwhile. */
static int copy_files(const struct reading *in)
{
	static const char *const parts[] = { "", "-journal", "-wal" };
	struct look before, after;
	int r = look_at(in, &before);

	for (size_t i = 0; r >= 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
		cleanup_free char *name = xasprintf("%s%s", in->name, parts[i]);

		r = fs_unlink_at(in->to_fd, name);
		r = r < 0 && r != -ENOENT ? r : copy_begun_at(in->from_fd, name, in->to_fd, name);
		if (r == -ENOENT && i > 0)
			r = 0;
	}
	if (r == -EAGAIN)
		return 0;
	if (r >= 0)
		r = look_at(in, &after);
	return r < 0 ? r : is_same(&before, &after);
}

static int copy_work(struct reading *in)
{
	int r = lock_files(in);

	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = copy_files(in);
		if (r == 0)
			clock_sleep_ns(LOOK_NS);
	}
	close_fd(&in->main_fd);
	close_fd(&in->shm_fd);
	return r == 0 ? -ETIMEDOUT : r < 0 ? r : 0;
}

static int open_dir_at(int dir_fd, const char *name, int *ret_fd)
{
	*ret_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

/* Nobody but us has its name: so SQLite may take it for its own, and after the first look it needs no names. */
static int open_copy(struct atoll_participant *p, const char *path, sqlite3 **ret)
{
	cleanup_sqldb sqlite3 *db = NULL;
	int64_t n;
	int r = sqldb_open(p, SQLDB_WORK, path, &db);

	if (r >= 0)
		(void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (r >= 0)
		r = sqldb_exec(p, db, "PRAGMA locking_mode=EXCLUSIVE");
	if (r >= 0)
		r = sqldb_number(p, db, &n, "SELECT count(*) FROM main.sqlite_schema");
	if (r < 0)
		return r;
	*ret = take_ptr(db);
	return 0;
}

static int say_failed(struct atoll_participant *p, int r, const char *path)
{
	if (r != -ETIMEDOUT)
		return error_sys(&p->err, r, "copy", path);
	r = error_set(
		&p->err, -ATOLL_E_TIMEOUT,
		"'%s' is written to or locked by a command of the plan, for more than %d seconds",
		path, LOCK_MS / 1000);
	error_hint(&p->err, "retry when the command has ended");
	return r;
}

int sqldb_reading_open(struct atoll_participant *p, const char *dir, const char *name,
                       sqlite3 **ret)
{
	static atomic_uint count;
	cleanup_free char *own =
		xasprintf("read%ld-%u", (long)getpid(), atomic_fetch_add(&count, 1));
	cleanup_free char *path = xasprintf("%s/%s/%s", p->work, own, name);
	cleanup_close int work_fd = FD_NONE, from_fd = FD_NONE, to_fd = FD_NONE;
	struct reading in = { .name = name, .main_fd = FD_NONE, .shm_fd = FD_NONE };
	int r = open_dir_at(AT_FDCWD, p->work, &work_fd);

	if (r == 0)
		r = open_dir_at(AT_FDCWD, dir, &from_fd);
	if (r == 0)
		r = remove_tree_at(work_fd, own); /* of a process that had our number */
	if (r >= 0)
		r = fs_mkdir_at(work_fd, own, 0700);
	if (r == 0)
		r = open_dir_at(work_fd, own, &to_fd);
	in.from_fd = from_fd;
	in.to_fd = to_fd;
	if (r == 0)
		r = copy_work(&in);
	r = r < 0 ? say_failed(p, r, p->root) : open_copy(p, path, ret);
	if (work_fd != FD_NONE)
		(void)remove_tree_at(work_fd, own);
	return r;
}
