/* SPDX-License-Identifier: Apache-2.0 */
/* Ending every process that descends from this one. */
#ifndef HELPER_REAP_H
#define HELPER_REAP_H

/* Makes this process the one that orphans below it are given to. 0 or -errno. */
int reap_adopt(void);
/* Kills all that is left and waits until it is gone. What may not be killed (it changed its
 * user) is waited for: as long as it runs the plan is not free. */
void reap_all(void);

#endif
