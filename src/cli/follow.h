/* SPDX-License-Identifier: Apache-2.0 */
/* atoll log --follow: what happens, as it happens. */
#ifndef CLI_FOLLOW_H
#define CLI_FOLLOW_H

#include "cli/cli.h"

/* PLAN NULL: of all. AFTER: a number of an event; negative: from now on. Until somebody ends it, or
 * nobody reads any more. */
int follow_run(struct cli *c, const char *plan, int64_t after);

#endif
