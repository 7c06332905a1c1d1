/* SPDX-License-Identifier: Apache-2.0 */
/* Going on in the background: for `exec --background`. */
#ifndef CLI_BACKGROUND_H
#define CLI_BACKGROUND_H

#include <stdbool.h>
#include "cli/cli.h"

/*
 * Forks, before anything is open. In the child, which leads a session of its own and follows the job
 * to its end: true; until the job runs it still talks to the user, and goes with its parent. In the
 * parent: false and *ret, the exit status, once the job runs or could not be started.
 */
bool background_go(struct cli *c, int *ret);

#endif
