/* SPDX-License-Identifier: Apache-2.0 */
/* The filter of system calls; what is in it is in tools/gen-filter.c, which makes it. */
#ifndef HELPER_FILTER_H
#define HELPER_FILTER_H

#include <stdbool.h>

/* For this process and all that come of it, for ever. Privileges must be given up before. -ENOSYS:
 * the kernel has no filters, or none was made for this machine; -errno. */
int filter_install(void);
/* There is one to be had here. */
bool filter_is_there(void);

#endif
