/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts as descriptors: made first, attached to the tree later. All return 0 or -errno. */
#ifndef HELPER_MOUNT_FD_H
#define HELPER_MOUNT_FD_H

#include <stdint.h>

/* O_PATH. A link in the last component is not followed (-ENOTDIR). */
int mount_open_dir(const char *path, int *ret_fd);
/* A bind of FD and of what is mounted below it, detached. FD must belong to this namespace. */
int mount_clone(int fd, int *ret_fd);
/* The same by name; a link is not followed, and is no source. */
int mount_clone_at(int dir_fd, const char *path, int *ret_fd);
/* An empty filesystem in memory; its root has MODE (octal text). */
int mount_tmpfs(const char *mode, int *ret_fd);
/* Of this pid namespace. -EPERM where parts of the present /proc are covered. */
int mount_proc(int *ret_fd);
/* An instance of its own, with no terminals yet. */
int mount_devpts(int *ret_fd);
/* The message queues of this ipc namespace. */
int mount_mqueue(int *ret_fd);
enum mount_scope { MOUNT_ONE = 0, MOUNT_ALL /* and those below */ };
/* MOUNT_ATTR_* set and cleared. */
int mount_change(int fd, enum mount_scope scope, uint64_t set, uint64_t clear);
/* The same for FD alone, of which no mount made elsewhere shows any more. */
int mount_cut(int fd, uint64_t set);
/* MOUNT_FD, in any form, at PATH, which holds no link in any component (-ELOOP). */
int mount_attach(int mount_fd, const char *path);
int mount_attach_at(int mount_fd, int target_fd);
/* PATH, relative to the current directory, is bound there once more, with all that is mounted below it. */
int mount_bind_here(const char *path);
/* PATH, no link in any component, O_PATH. */
int mount_open_target(const char *path, int *ret_fd);

#endif
