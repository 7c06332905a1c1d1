/* SPDX-License-Identifier: Apache-2.0 */
/* The filter of system calls; what is in it is in tools/gen-filter.c, which makes it. */
#ifndef HELPER_FILTER_H
#define HELPER_FILTER_H

#include <stdbool.h>

/* For this process and all that come of it, for ever. Privileges must be given up before. -ENOSYS:
 * the kernel has no filters, or none was made for this machine; -errno. */
int filter_install(void);
/*
 * One more: renames, with LINKS links, and questions whether a file may be written to, wait until they are answered through RET_FD (helper/calls.h), where the first filter allows
 * them. -errno: nothing waits; the kernel cannot do that (before Linux 5.19), or another process listens already.
 */
int filter_listen(bool links, int *ret_fd);
/* There is one to be had here. */
bool filter_is_there(void);

#endif
