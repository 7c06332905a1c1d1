/* SPDX-License-Identifier: Apache-2.0 */
/* What lies under a path: which mount, which filesystem, and whether we may trust it. */
#ifndef FS_MOUNT_H
#define FS_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

struct mount_info {
	uint64_t mnt_id;
	uint64_t dev;
	uint64_t type;    /* f_type */
	const char *name; /* "ext4", "nfs", ...; "0x1234" numbers are "unknown" */
	char fsid[40];    /* f_fsid, hex: the filesystem's identity across boots where it has one */
	bool read_only;
	bool network; /* NFS, SMB, 9p, AFS, Ceph, ... or FUSE: no locks, no exchange to rely on */
	bool overlay;
	bool kernel;          /* proc, sysfs, ...: what is there are no files of anybody's */
	uint64_t free_bytes;  /* for us */
	uint64_t free_inodes; /* UINT64_MAX where they are not limited */
};
int mount_info(int fd, struct mount_info *ret); /* any descriptor, also O_PATH */
/* rename(2) works between the two: same mount and same device (btrfs: same subvolume). */
bool mount_same(const struct mount_info *a, const struct mount_info *b);

struct mount_place {
	const char *path; /* canonical */
	int fd;           /* of it; O_PATH will do */
};
/* Is one of the two the other, or inside it, by different mounts of one filesystem? Names do not
 * tell. 1, 0 or -errno; 0 where the mount is the same: there names do. */
int mount_overlap(const struct mount_place *a, const struct mount_place *b);

/* Is anything mounted below PATH (canonical)? 1, 0 or -errno. */
int mount_below(const char *path);

#endif
