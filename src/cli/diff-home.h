/* SPDX-License-Identifier: Apache-2.0 */
/* atoll diff --home: the files that are private to a plan. */
#ifndef CLI_DIFF_HOME_H
#define CLI_DIFF_HOME_H

#include "cli/cli.h"

/* Of c->plan. An exit status; with --exit-code 1 when there are any. */
int diff_home(struct cli *c);

#endif
