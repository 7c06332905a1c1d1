/* SPDX-License-Identifier: Apache-2.0 */
/* Ending every process that descends from this one. */
#ifndef HELPER_REAP_H
#define HELPER_REAP_H

#include <stdbool.h>

/* Makes this process the one that orphans below it are given to. 0 or -errno. */
int reap_adopt(void);
/* Kills all that is left and waits until it is gone. What may not be killed (it changed its
 * user) is waited for: as long as it runs the plan is not free. */
void reap_all(void);
/* For pid 1 of a namespace: ends all that is in it with us, also what joined it and is nobody's child
 * here. PROC_FD: the namespace's own /proc, or FD_NONE. True when it is seen there that we are alone. */
bool reap_namespace(int proc_fd);

#endif
