/* SPDX-License-Identifier: Apache-2.0 */
/* The elementary changes, each one or two system calls. */
#include "fs/atomic.h"

#include "fs/fs-impl.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Since Linux 6.6; the number is the same on every architecture. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define MODE_BITS   07777u
#define READ_ROOM   4096u
#define ZEROS_CHUNK (64u << 10)
#define TMP_HEX     16

static int done(int r)
{
	return r < 0 ? -errno : 0;
}

int fs_mkdir_at(int dir_fd, const char *name, mode_t mode)
{
	int r;

	if (mkdirat(dir_fd, name, mode & 0700) < 0)
		return -errno;
	/* The umask, a setgid parent and default ACLs all meddle with the mode. */
	r = fs_set_mode(dir_fd, name, mode);
	if (r < 0)
		(void)unlinkat(dir_fd, name, AT_REMOVEDIR);
	return r;
}

int fs_private_dir_at(int dir_fd, const char *name, int *ret_fd)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;
	int r;

	r = fs_mkdir_at(dir_fd, name, 0700);
	if (r < 0 && r != -EEXIST)
		return r;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? -EPERM : -errno;
	r = fs_stat_at(fd, "", 0, &st);
	if (r < 0)
		return r;
	/* A setgid bit is no opening, and is there for a moment when two create it at once below a
	 * setgid directory. */
	if (st.uid != geteuid() || (st.mode & MODE_BITS & ~(unsigned)S_ISGID) != 0700)
		return -EPERM;
	*ret_fd = take_fd(&fd);
	return 0;
}

int fs_create_at(int dir_fd, const char *name, mode_t mode, int *ret_fd)
{
	cleanup_close int fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (fchmod(fd, mode) < 0) {
		int e = errno;

		(void)unlinkat(dir_fd, name, 0);
		return -e;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

int fs_anonymous_at(int dir_fd, int *ret_fd)
{
	char name[sizeof(".tmp-") + TMP_HEX] = ".tmp-";
	int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), r;

	if (fd >= 0) {
		*ret_fd = fd;
		return 0;
	}
	if (errno != EOPNOTSUPP && errno != EISDIR)
		return -errno;
	random_hex(name + strlen(name), TMP_HEX);
	r = fs_create_at(dir_fd, name, 0600, ret_fd);
	if (r == 0)
		(void)unlinkat(dir_fd, name, 0);
	return r;
}

int fs_open_append_at(int dir_fd, const char *name, int *ret_fd)
{
	cleanup_close int fd =
		openat(dir_fd, name,
	               O_CREAT | O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return errno == ELOOP || errno == EISDIR || errno == ENXIO ? -EPERM : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return -EPERM;
	*ret_fd = take_fd(&fd);
	return 0;
}

int fs_append(int fd, const void *data, size_t len, bool sync)
{
	off_t before = lseek(fd, 0, SEEK_END);
	ssize_t n;

	if (before < 0)
		return -errno;
	do
		n = write(fd, data, len);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)len)
		return sync ? fs_sync_file(fd) : 0;
	if (n < 0)
		return -errno;
	/* The disk was full in the middle of it. */
	return ftruncate(fd, before) < 0 ? -errno : -ENOSPC;
}

int fs_symlink_at(const char *to, int dir_fd, const char *name)
{
	return done(symlinkat(to, dir_fd, name));
}

int fs_unlink_at(int dir_fd, const char *name)
{
	return done(unlinkat(dir_fd, name, 0));
}

int fs_rmdir_at(int dir_fd, const char *name)
{
	return done(unlinkat(dir_fd, name, AT_REMOVEDIR));
}

int fs_write_at(int fd, const void *data, size_t len, uint64_t offset)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int fs_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fs_read_some(int fd, void *buf, size_t len, size_t *ret)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	*ret = got;
	return 0;
}

int fs_read_all(int fd, size_t max, char **ret_data, size_t *ret_len)
{
	cleanup_free char *data = NULL;
	size_t cap = 0;
	size_t len = 0;

	for (;;) {
		void *p = data;
		int r = grow(&p, &cap, len + READ_ROOM, 1);
		ssize_t n;

		data = p;
		if (r < 0)
			return r;
		n = read(fd, data + len, cap - len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
		if (len > max)
			return -ATOLL_E_TOO_BIG;
		if (n == 0)
			break;
	}
	data[len] = '\0';
	*ret_len = len;
	*ret_data = take_ptr(data);
	return 0;
}

int fs_exchange(int a_fd, const char *a, int b_fd, const char *b)
{
	return done(renameat2(a_fd, a, b_fd, b, RENAME_EXCHANGE));
}

int fs_move(int from_fd, const char *from, int to_fd, const char *to)
{
	return done(renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE));
}

int fs_rename_over(int dir_fd, const char *from, const char *to)
{
	return done(renameat(dir_fd, from, dir_fd, to));
}

int fs_rename_over_at(int from_fd, const char *from, int to_fd, const char *to)
{
	return done(renameat(from_fd, from, to_fd, to));
}

int fs_link_at(int from_fd, const char *from, int to_fd, const char *to)
{
	return done(linkat(from_fd, from, to_fd, to, 0));
}

static struct timespec to_timespec(int64_t ns)
{
	int64_t sec = ns / 1000000000;
	int64_t rest = ns % 1000000000;

	if (ns == FS_TIME_KEEP)
		return (struct timespec){ .tv_nsec = UTIME_OMIT };
	if (rest < 0) { /* before 1970 */
		rest += 1000000000;
		sec--;
	}
	return (struct timespec){ .tv_sec = sec, .tv_nsec = rest };
}

int fs_set_times(int dir_fd, const char *name, int64_t atime_ns, int64_t mtime_ns)
{
	const struct timespec ts[2] = { to_timespec(atime_ns), to_timespec(mtime_ns) };
	char path[PATH_MAX];
	int r;

	if (name[0] != '\0')
		return done(utimensat(dir_fd, name, ts, AT_SYMLINK_NOFOLLOW));
	if (futimens(dir_fd, ts) == 0)
		return 0;
	if (errno != EBADF)
		return -errno;
	r = fs_proc_path(dir_fd, "", path); /* O_PATH */
	return r < 0 ? r : done(utimensat(AT_FDCWD, path, ts, 0));
}

int fs_bump_ctime(int dir_fd, const char *name)
{
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	/* The mtime is left out, so a write in between keeps its own. */
	return r < 0 ? r : fs_set_times(dir_fd, name, st.atime_ns, FS_TIME_KEEP);
}

int fs_set_mtime(int dir_fd, const char *name, int64_t mtime_ns)
{
	return fs_set_times(dir_fd, name, FS_TIME_KEEP, mtime_ns);
}

int fs_set_mode_by_proc(int dir_fd, const char *name, mode_t mode)
{
	cleanup_close int own_fd = FD_NONE;
	char path[PATH_MAX];
	struct fs_stat st;
	int fd = dir_fd;
	int r;

	if (name[0] != '\0') {
		own_fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (own_fd < 0)
			return -errno;
		fd = own_fd;
	}
	r = fs_stat_at(fd, "", 0, &st);
	if (r == 0 && S_ISLNK(st.mode))
		r = -EOPNOTSUPP;
	if (r == 0)
		r = fs_proc_path(fd, "", path);
	return r < 0 ? r : done(chmod(path, mode & MODE_BITS));
}

int fs_set_mode(int dir_fd, const char *name, mode_t mode)
{
	static atomic_bool missing;
	int flags = AT_SYMLINK_NOFOLLOW | (name[0] == '\0' ? AT_EMPTY_PATH : 0);

	if (!atomic_load_explicit(&missing, memory_order_relaxed)) {
		if (syscall(SYS_fchmodat2, dir_fd, name, mode & MODE_BITS, flags) == 0)
			return 0;
		if (errno != ENOSYS)
			return -errno;
		atomic_store_explicit(&missing, true, memory_order_relaxed);
	}
	return fs_set_mode_by_proc(dir_fd, name, mode);
}

int fs_set_owner(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
	int flags = AT_SYMLINK_NOFOLLOW | (name[0] == '\0' ? AT_EMPTY_PATH : 0);

	return done(fchownat(dir_fd, name, uid, gid, flags));
}

/* Where fallocate is missing, writing is the only way to own the blocks. */
static int fill_zeros(int fd, uint64_t from, uint64_t to)
{
	static const char zeros[ZEROS_CHUNK];

	while (from < to) {
		uint64_t left = to - from;
		size_t len = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
		ssize_t n = pwrite(fd, zeros, len, (off_t)from);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += (uint64_t)n;
	}
	return 0;
}

int fs_allocate(int fd, uint64_t size)
{
	struct fs_stat st;
	int r = fs_stat_at(fd, "", 0, &st);

	if (r < 0)
		return r;
	if (st.size > size && ftruncate(fd, (off_t)size) < 0)
		return -errno;
	if (size == 0)
		return 0;
	do {
		r = done(fallocate(fd, 0, 0, (off_t)size));
	} while (r == -EINTR);
	if (r == -EOPNOTSUPP || r == -ENOSYS)
		r = fill_zeros(fd, st.size < size ? st.size : size, size);
	return r;
}

int fs_set_size(int fd, uint64_t size)
{
	return done(ftruncate(fd, (off_t)size));
}

int fs_sync_file(int fd)
{
	return done(fsync(fd));
}

int fs_sync_dir(int dir_fd)
{
	cleanup_close int fd = FD_NONE;

	if (fsync(dir_fd) == 0)
		return 0;
	if (errno != EBADF)
		return -errno;
	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* it was O_PATH */
	return fd < 0 ? -errno : done(fsync(fd));
}

int fs_sync_filesystem(int fd)
{
	return done(syncfs(fd));
}

static int write_durably(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
{
	cleanup_close int fd = FD_NONE;
	int r = fs_create_at(dir_fd, name, mode, &fd);

	if (r < 0)
		return r;
	r = fs_write_all(fd, data, len);
	if (r == 0)
		r = fs_sync_file(fd);
	if (r < 0)
		(void)unlinkat(dir_fd, name, 0);
	return r;
}

int fs_replace_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
{
	char tmp[sizeof(".tmp-") + TMP_HEX] = ".tmp-";
	int r;

	random_hex(tmp + strlen(tmp), TMP_HEX);
	r = write_durably(dir_fd, tmp, data, len, mode);
	if (r < 0)
		return r;
	r = done(renameat(dir_fd, tmp, dir_fd, name));
	if (r < 0) {
		(void)unlinkat(dir_fd, tmp, 0);
		return r;
	}
	return fs_sync_dir(dir_fd);
}
