/* SPDX-License-Identifier: Apache-2.0 */
/* One overlay mount, detached: its options, and the ways to hand its layers to the kernel. */
#ifndef HELPER_OVERLAY_H
#define HELPER_OVERLAY_H

#include <stdbool.h>

struct overlay_layers {
	int lower, upper, work; /* O_PATH; upper and work on one writable mount */
	bool user_xattrs;       /* in a user namespace trusted.* cannot be written */
};
#define OVERLAY_LOG 256
/*
 * Mounts it, writable and volatile. RET_CONTEXT_FD configures the superblock later on. LOG gets
 * what the kernel says about a failure, or "". $ATOLL_OVERLAY_STRINGS=1: layers by name, as older
 * kernels need it. -errno.
 */
int overlay_make(const struct overlay_layers *l, int *ret_mount_fd, int *ret_context_fd,
                 char log[OVERLAY_LOG]);
/* Removes from WORK what a volatile mount in this boot left, which would forbid the next. */
int overlay_clear_work(int work_fd);
/* The superblock becomes read-only: from here on its upper layer does not change. -EBUSY:
 * somebody has a file of it open for writing. */
int overlay_stop(int context_fd);

#endif
