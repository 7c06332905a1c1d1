/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elementary changes. This folder is the only place that creates, renames, links, syncs or
 * removes; tools/check-style.py enforces it. All take directory descriptors and one name; all
 * return 0 or -errno.
 */
#ifndef FS_ATOMIC_H
#define FS_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int fs_mkdir_at(int dir_fd, const char *name, mode_t mode); /* exclusive, exact mode */
/* mkdir if missing, then open: owner and mode (exactly 0700) checked, no link followed.
 * -EPERM when it belongs to somebody else or is open to others. */
int fs_private_dir_at(int dir_fd, const char *name, int *ret_fd);
/* O_CREAT|O_EXCL|O_RDWR|O_CLOEXEC. */
int fs_create_at(int dir_fd, const char *name, mode_t mode, int *ret_fd);
/* A file without a name on DIR_FD's filesystem: gone with its last descriptor. */
int fs_anonymous_at(int dir_fd, int *ret_fd);
/* A file of ours to add to, made 0600 when missing: O_RDWR|O_APPEND, no link followed. -EPERM when it is
 * no file, belongs to somebody else or is open to others. */
int fs_open_append_at(int dir_fd, const char *name, int *ret_fd);
/* At the end of such a file, in one write; SYNC: on disk when it returns. On failure it is as long as before; a crash
 * may leave a part. The caller keeps others out. */
int fs_append(int fd, const void *data, size_t len, bool sync);
int fs_symlink_at(const char *to, int dir_fd, const char *name);
int fs_unlink_at(int dir_fd, const char *name); /* a file; absent is -ENOENT */
int fs_rmdir_at(int dir_fd, const char *name);
int fs_write_all(int fd, const void *data, size_t len);
int fs_write_at(int fd, const void *data, size_t len, uint64_t offset);
/* LEN bytes from the offset, or as many as there are. */
int fs_read_some(int fd, void *buf, size_t len, size_t *ret);
/* From the offset to the end; a NUL is put behind it. -ATOLL_E_TOO_BIG over MAX. */
int fs_read_all(int fd, size_t max, char **ret_data, size_t *ret_len);

/* RENAME_EXCHANGE, A first: watchers of A's directory then see FROM, TO. */
int fs_exchange(int a_fd, const char *a, int b_fd, const char *b);
/* RENAME_NOREPLACE. */
int fs_move(int from_fd, const char *from, int to_fd, const char *to);
/* Another name for the same inode, also of a link itself; the new one must not exist. */
int fs_link_at(int from_fd, const char *from, int to_fd, const char *to);

/* Plain rename within a directory of ours, replacing; not durable by itself. */
int fs_rename_over(int dir_fd, const char *from, const char *to);
/* The same between two directories. */
int fs_rename_over_at(int from_fd, const char *from, int to_fd, const char *to);

/* Explicit change of ctime, times kept: marks an entry as touched by us. */
int fs_bump_ctime(int dir_fd, const char *name);
int fs_set_mtime(int dir_fd, const char *name, int64_t mtime_ns); /* atime kept */
int fs_set_mode(int dir_fd, const char *name, mode_t mode);       /* not on links */
int fs_set_owner(int dir_fd, const char *name, uid_t uid, gid_t gid);
/* Size of a file of ours; ballast. Really allocated, not a hole. */
int fs_allocate(int fd, uint64_t size);
/* Cut there, or with a hole up to there. */
int fs_set_size(int fd, uint64_t size);

int fs_sync_file(int fd); /* fsync; one error is final, never retry */
int fs_sync_dir(int dir_fd);
/* Everything on FD's filesystem, other people's data too: only where nobody waits for it. */
int fs_sync_filesystem(int fd);
/* Durable replacement of a small file: temporary beside, write, fsync, rename, fsync directory.
 * Crash: the old content or the new, and perhaps a ".tmp-" with 16 hex digits beside it. */
int fs_replace_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode);

#endif
