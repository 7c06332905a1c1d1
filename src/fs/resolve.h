/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a path below a root to a directory descriptor: openat2 with RESOLVE_BENEATH, no symbolic
 * links, no magic links, no crossing of mounts. Paths longer than PATH_MAX are opened in pieces.
 * PATH is relative, without leading or trailing slash, "" is the root itself; components "." and
 * ".." are -EINVAL.
 */
#ifndef FS_RESOLVE_H
#define FS_RESOLVE_H

/* Directory PATH, O_RDONLY (or O_PATH where it cannot be read and PATH_ONLY). -errno; -ELOOP for a
 * link, -EXDEV for a mount point, -ENOTDIR. */
int resolve_dir(int root_fd, const char *path, int *ret_fd);
int resolve_dir_path(int root_fd, const char *path, int *ret_fd); /* O_PATH */
/* The directory that holds PATH (O_RDONLY, else O_PATH when unreadable), and its last component (points into PATH). PATH "" is
 * -EINVAL. */
int resolve_parent(int root_fd, const char *path, int *ret_fd, const char **ret_name);
/* Opens PATH for reading after checking that it is a regular file; never blocks on a FIFO.
 * -EISDIR, -ELOOP for a link, -ENXIO for a special file. */
int resolve_file(int root_fd, const char *path, int *ret_fd);
/* The same for NAME in DIR_FD, of which the caller has just seen that it is a regular file: in fewer
 * calls, and checked again once it is open. */
int resolve_file_seen(int dir_fd, const char *name, int *ret_fd);
/* The link PATH itself, as O_PATH, for readlinkat(fd, ""). -EINVAL when it is none. */
int resolve_link(int root_fd, const char *path, int *ret_fd);

/* A path given by a person: absolute, symbolic links resolved, no "..", no trailing slash. The
 * file must exist. Caller frees. */
int resolve_canonical(const char *path, char **ret_path);
/* Where what is open is now, as the kernel says. Caller frees. */
int resolve_fd(int fd, char **ret_path);

#endif
