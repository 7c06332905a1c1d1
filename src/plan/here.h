/* SPDX-License-Identifier: Apache-2.0 */
/* Why the current directory has no path. */
#ifndef PLAN_HERE_H
#define PLAN_HERE_H

#include "util/error.h"

/* R: what realpath(".") or getcwd() failed with. Sets ERR, and returns R. */
int here_failed(int r, struct error *err);
/* PATH could not be opened because it is relative, and the current directory was deleted. */
bool here_is_deleted(const char *path);

#endif
