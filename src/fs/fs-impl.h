/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share among themselves (and with their unit tests). */
#ifndef FS_FS_IMPL_H
#define FS_FS_IMPL_H

#include "fs/walk.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* openat2 below DIR_FD without links and without crossing a mount; at most PATH_MAX. -errno. */
int fs_open_below(int dir_fd, const char *path, int flags, int *ret_fd);

/* "/proc/self/fd/N/NAME", or "/proc/self/fd/N" when NAME is "". -ENAMETOOLONG. */
int fs_proc_path(int fd, const char *name, char out[PATH_MAX]);

/* id.gen of the entry with this file handle. */
uint64_t fs_handle_gen(int type, const void *handle, size_t len);

#define FS_TIME_KEEP INT64_MIN
int fs_set_times(int dir_fd, const char *name, int64_t atime_ns, int64_t mtime_ns);

/* fs_set_mode() where the kernel has no fchmodat2. */
int fs_set_mode_by_proc(int dir_fd, const char *name, mode_t mode);

/* walk_tree() that goes on past directories it cannot enter or read (POST is called for them all
 * the same); the first such error goes to *FIRST_ERROR unless that is set already. */
int walk_tree_past(int root_fd, const char *start, walk_fn fn, walk_fn post, void *ctx,
                   int *first_error);

/* Content of a regular file with its holes, into the empty file DST_FD. -EAGAIN when there is
 * less of it than SIZE. */
int copy_data(int src_fd, int dst_fd, uint64_t size);

#endif
