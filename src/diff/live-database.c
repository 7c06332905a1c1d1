/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are databases, and whether one is open. See live-database.h. */
#include "diff/live-database.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define HEADER     "SQLite format 3" /* and a NUL */
#define PAGE_MIN   512
#define TRIES      10 /* a reader that passes, such as a backup, is no reason to refuse */
#define BETWEEN_NS 5000000

const char *const live_database_sides[] = { "-journal", "-wal", "-shm", NULL };

size_t live_database_stem(const char *name)
{
	size_t len = strlen(name);

	for (const char *const *side = live_database_sides; *side; side++) {
		size_t tail = strlen(*side);

		if (len > tail && strcmp(name + len - tail, *side) == 0)
			return len - tail;
	}
	return len;
}

/* A database is of whole pages, encrypted or not: most other files need no look at what is in them. */
static bool has_pages(const struct fs_stat *st)
{
	return S_ISREG(st->mode) && st->size >= PAGE_MIN && st->size % PAGE_MIN == 0;
}

static bool has_header(int dir_fd, const char *name)
{
	cleanup_close int fd = FD_NONE;
	char head[sizeof(HEADER)];

	return resolve_file_seen(dir_fd, name, &fd) >= 0 &&
	       pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       memcmp(head, HEADER, sizeof(head)) == 0;
}

static bool has_wal(int dir_fd, const char *name)
{
	cleanup_free char *wal = xasprintf("%s-wal", name);
	struct stat st;

	return fstatat(dir_fd, wal, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

bool live_database_may_be(const char *name, const struct fs_stat *old)
{
	return (old && has_pages(old)) || name[live_database_stem(name)] != '\0';
}

bool live_database_at(int dir_fd, const char *name, const struct fs_stat *old)
{
	size_t len = live_database_stem(name);
	cleanup_free char *stem = xstrndup(name, len);
	struct fs_stat st;

	if (name[len] != '\0') {
		if (fs_stat_at(dir_fd, stem, 0, &st) < 0)
			return false;
		old = &st;
	}
	return old && has_pages(old) && (has_header(dir_fd, stem) || has_wal(dir_fd, stem));
}

/* The kernel grants a write lease on a file only while this descriptor is the only one of it. Who opens the
 * file while it is granted, and then waits, is told of by a signal, which must be one that is ignored. */
static bool is_open(int fd)
{
	if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return true;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

bool live_database_is_open(int root_fd, const char *path)
{
	for (int i = 0; i < TRIES; i++) {
		cleanup_close int fd = FD_NONE;
		int r = resolve_file(root_fd, path, &fd);

		if (r == -ENOENT || r == -ENOTDIR)
			return false;
		if (r >= 0 && !is_open(fd))
			return false;
		close_fd(&fd);
		clock_sleep_ns(BETWEEN_NS);
	}
	return true;
}
