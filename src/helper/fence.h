/* SPDX-License-Identifier: Apache-2.0 */
/* What a command in views may do, beyond what it sees. */
#ifndef HELPER_FENCE_H
#define HELPER_FENCE_H

#include "helper/failure.h"
#include "helper/run-impl.h"

/*
 * In the child, last before execve: no program gives it more privileges than it has, its system
 * calls are filtered, and its capabilities are few (RUN->is_root) or none. 0 or -errno and F.
 */
int fence_self(const struct run *run, struct failure *f);

#endif
