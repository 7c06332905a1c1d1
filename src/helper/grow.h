/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory that the host does not have, for a view to be put there. What holds it cannot be written
 * to: an empty filesystem in memory takes its place, in which everything that was there is shown again,
 * and the missing directories are made. The host sees nothing of it.
 */
#ifndef HELPER_GROW_H
#define HELPER_GROW_H

/*
 * Makes PATH (absolute, in its shortest form) a directory in the mounts of this namespace, in whose root
 * we are: 0 when it is one already. -ENOTDIR, -ELOOP: something else is in its way. To be called before
 * anything is mounted that others hold descriptors of.
 */
int grow_path(const char *path);

#endif
