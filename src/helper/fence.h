/* SPDX-License-Identifier: Apache-2.0 */
/* What a command in views may do, beyond what it sees. */
#ifndef HELPER_FENCE_H
#define HELPER_FENCE_H

#include <stdbool.h>

/*
 * In the child, last before execve: no program gives it more privileges than it has. IN_OURS: it
 * is root in the user namespace that owns its mounts, and keeps only the capabilities over files
 * and users; elsewhere they reach nothing that was made outside. 0 or -errno.
 */
int fence_self(bool in_ours);

#endif
