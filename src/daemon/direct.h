/* SPDX-License-Identifier: Apache-2.0 */
/* A program of ours, run by the daemon as it is: for what is not to go through a plan's view. */
#ifndef DAEMON_DIRECT_H
#define DAEMON_DIRECT_H

#include <atoll.h>

/* FDS: its three, and the control (atoll.h, option `control`), of which only the end counts: then it and
 * all it started are killed. Waits for its end. 0 or -errno, with RES. */
int direct_run(const char *const *argv, const int fds[4], struct atoll_exec_status *ret,
               struct atoll_result *res);

#endif
