/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry is. Nothing here follows a symbolic link. */
#ifndef FS_STAT_H
#define FS_STAT_H

#include <stdbool.h>
#include <stdint.h>

#include "util/hash.h"

/*
 * Identity: inode number and generation. GEN is a hash of the file handle (name_to_handle_at), or
 * of the birth time where the filesystem has no handles; never the inode number alone, which is
 * reused. All zero: no entry.
 */
struct fs_id {
	uint64_t ino;
	uint64_t gen;
};
bool fs_id_equal(struct fs_id a, struct fs_id b); /* false when either is "no entry" */
bool fs_id_none(struct fs_id id);

/* What an entry holds: taken by fs_content_take() alone, and only where a record is to have it. */
struct fs_content {
	unsigned char hash[HASH_SIZE];
	uint64_t xattrs; /* xattrs_hash() */
	bool known;
};

struct fs_stat {
	struct fs_id id; /* gen is 0 unless FS_STAT_ID was asked for */
	uint32_t mode;   /* with type bits; 0: no entry */
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint64_t size; /* directories: 0 */
	uint64_t disk; /* bytes it takes on disk */
	int64_t mtime_ns;
	int64_t ctime_ns;
	int64_t atime_ns;
	int64_t born_ns; /* 0 where the filesystem does not tell */
	uint64_t dev;    /* makedev number of the filesystem */
	uint64_t rdev;   /* of a device node */
	uint64_t mnt_id; /* mount, 0 when the kernel does not tell */
	bool immutable;  /* or append-only: rename and unlink will fail */
	bool mount_root; /* something is mounted here */
	struct fs_content content;
};

#define FS_STAT_ID 0x1u /* fill id.gen too: one more system call */

/* 0, -ENOENT (also for a missing parent component), or -errno. NAME "" with a descriptor: FD
 * itself (which may be O_PATH). */
int fs_stat_at(int dir_fd, const char *name, unsigned want, struct fs_stat *ret);

#endif
