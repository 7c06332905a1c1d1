/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX ACLs with entries for other users and groups. In an ordinary user's namespace these have no number:
 * a program there reads 4294967295, and what it sets is refused (EINVAL). The kernel keeps such an ACL in all it does
 * itself, a new name or a copy in an overlay; a program that writes a new file in place of the old one
 * cannot.
 */
#ifndef FS_ACL_H
#define FS_ACL_H

#include <stdbool.h>

/* Has the entry an entry in its ACLs for users or groups other than the caller's effective ones? */
bool acl_names_others(int dir_fd, const char *name);
/* Gives TO those ACLs of FROM that name others and of which TO has none. 1: it did; 0: there was nothing
 * to do. */
int acl_put_back(int from_fd, const char *from, int to_fd, const char *to);

#endif
