/* SPDX-License-Identifier: Apache-2.0 */
/* User and group ids of new user namespaces: everybody stays who they are. */
#ifndef HELPER_IDMAP_H
#define HELPER_IDMAP_H

#include <stdbool.h>
#include <sys/types.h>

/* In a new user namespace: maps UID and GID, the caller's own, to themselves, nobody else. */
int idmap_self(uid_t uid, gid_t gid);
/* The ids that exist here, mapped to themselves in the new user namespace of the child PID.
 * PROC_FD: the /proc in which PID is its number. 0 or -errno. */
int idmap_copy(int proc_fd, pid_t pid);
/* Is this the user namespace of the host? */
bool idmap_is_initial(void);

#endif
