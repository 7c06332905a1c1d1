/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of entries, complete: type, content with its holes, mode, owner, times to the
 * nanosecond, extended attributes, ACLs. Content travels by reflink, else copy_file_range, else
 * sendfile, else read and write; the results are equal. Special files are recreated, never
 * opened. Targets are created exclusively; on failure nothing is left of the target.
 */
#ifndef FS_COPY_H
#define FS_COPY_H

#include <stddef.h>
#include "fs/stat.h"

enum copy_method { COPY_REFLINK = 0, COPY_RANGE, COPY_SENDFILE, COPY_LOOP };

/* Tests: never use a method above (better than) this one. Process-wide. */
void copy_force(enum copy_method worst);

/*
 * Copies one entry that is not a directory. The source is opened without following links; it
 * must be the same, unchanged inode before and after (else it is copied again, a few times, then
 * -EAGAIN). RET_SRC is its state (with id) as copied, RET_DST the copy's. Either may be NULL.
 * -EACCES when the source cannot be read. Owners: set when they differ from what creation gave;
 * an ordinary user's -EPERM there is ignored (visible in RET_DST).
 */
int copy_entry_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name,
                  struct fs_stat *ret_src, struct fs_stat *ret_dst);
/* A regular file that may be growing: as much of it as there was when it was opened, and nothing but its content.
 * -EAGAIN: it was cut short meanwhile. -ELOOP: it is no regular file. */
int copy_begun_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name);
/* Mode, owner, extended attributes, times of a directory, onto DST_FD (not O_PATH). Times last. */
int copy_dir_meta(int src_fd, int dst_fd);
/* A whole subtree or a single entry. Directories get their metadata after their contents. */
int copy_tree_at(int src_dir_fd, const char *src_name, int dst_dir_fd, const char *dst_name);
/* 1 equal, 0 not, -errno. Both are regular files, or both links. */
int copy_same_content(int a_dir_fd, const char *a_name, int b_dir_fd, const char *b_name);
/* Where the next data of FD is, at or behind AT; the end of the file when there is none. Moves the
 * descriptor's place. AT where the filesystem does not tell. */
int64_t copy_next_data(int fd, int64_t at);
bool copy_is_zero(const char *data, size_t len);

#endif
