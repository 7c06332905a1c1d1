/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Project ids, by which XFS, ext4 and f2fs count the space of trees. A directory may give its own to all that
 * is made in it. Such a one takes in by rename or link only what has that id: else -EXDEV, though all is
 * on one filesystem.
 */
#ifndef FS_PROJECT_H
#define FS_PROJECT_H

#include <stdbool.h>
#include <stdint.h>

struct fs_project {
	uint32_t id;
	bool inherits; /* a directory that gives it */
};

/* Of an entry, no link followed; NAME "" with a descriptor that can be read: FD itself. Where the filesystem
 * knows of none: 0. -EOPNOTSUPP when it cannot be told: of a link before Linux 6.17, of what may not be
 * opened. */
int fs_project_at(int dir_fd, const char *name, struct fs_project *ret);
/* The directory TO_FD gives the same as FROM_FD does. Nothing is done where that gives none, or is another
 * filesystem. */
int fs_project_copy(int from_fd, int to_fd);

#endif
