/* SPDX-License-Identifier: Apache-2.0 */
/* Removal that never follows a link and never crosses a mount. */
#ifndef FS_REMOVE_H
#define FS_REMOVE_H

/*
 * Removes NAME and everything below. Directories the owner locked (mode 0000, 0500) are opened
 * up first. Goes on past failures; returns 0 when all is gone (or was absent), else the first
 * error: -EPERM for an immutable entry, -EBUSY for a mount point (left alone).
 */
int remove_tree_at(int dir_fd, const char *name);
/* The same for a path given by our own records; its parent is opened without following links in
 * the last component. Absent is 0. */
int remove_tree(const char *path);

#endif
