/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What overlayfs leaves in an upper directory, and a mount of one for the host.
 *
 * A *whiteout* is a character device 0:0: the name below it is deleted. A directory marked
 * *opaque* replaces the one below it. Marks are extended attributes, trusted.overlay.* for root's
 * mounts and user.overlay.* for an ordinary user's; a family other than the mount's means
 * nothing, so which one counts is always said.
 */
#ifndef FS_OVERLAYFS_H
#define FS_OVERLAYFS_H

#include <stdbool.h>
#include "fs/stat.h"

enum overlay_marks { OVERLAY_TRUSTED = 0, OVERLAY_USER };

bool overlay_is_whiteout(const struct fs_stat *st);
/* 1, 0, or -errno. NAME "" : DIR_FD itself. */
int overlay_is_opaque(int dir_fd, const char *name, enum overlay_marks marks);
/* Was it copied up from a lower entry, wherever that was? 1, and of *RET either GEN is set, which the kernel
 * notes for root's mounts, or INO, which overlay_note_origin() noted, or neither; 0: it was not; -errno. */
int overlay_origin(int dir_fd, const char *name, enum overlay_marks marks, struct fs_id *ret);
bool overlay_origin_known(struct fs_id origin);
bool overlay_origin_is(struct fs_id origin, struct fs_id id);
/* A mark of ours, beside the kernel's or in its place. -EACCES where an ordinary user may not write. */
int overlay_note_origin(int dir_fd, const char *name, enum overlay_marks marks, uint64_t ino);
int overlay_set_opaque(int dir_fd, const char *name, enum overlay_marks marks);
/* Takes every mark off, those escaped for nested overlays included. Any type of entry. */
int overlay_strip(int dir_fd, const char *name);
int overlay_make_whiteout(int dir_fd, const char *name);

/* Mounts UPPER over LOWER at TARGET, in the caller's namespace (root). All are descriptors of
 * directories. volatile: nothing in it is synced. -errno. */
int overlay_mount(int lower_fd, int upper_fd, int work_fd, int target_fd);
/* No more writers: -EBUSY while anything is open for writing. */
int overlay_freeze(const char *target);
int overlay_thaw(const char *target);
int overlay_umount(const char *target); /* -EBUSY; absent or not mounted is 0 */
/* Drops the mark that makes the kernel refuse a work directory it did not sync. */
int overlay_forget_volatile(int work_fd);

#endif
