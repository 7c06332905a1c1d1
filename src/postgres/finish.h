/* SPDX-License-Identifier: Apache-2.0 */
/* Ending what was prepared, by whoever comes: the holder is gone by then. See protocol.h. */
#ifndef POSTGRES_FINISH_H
#define POSTGRES_FINISH_H

#include <stdbool.h>
#include "util/error.h"

struct finish_options {
	const char *url;
	const char *gid; /* "-": never prepared */
	const char *xid;
	const char *server; /* whose number that is */
	bool commit;
	bool decided; /* to be rolled back, though it may have been committed: nothing is taken for granted */
};
/* 0: it is so now. -ATOLL_E_CONFLICT: the opposite was done, for good. -ATOLL_E_NEEDS_RECOVERY: it cannot
 * be told. */
int finish(const struct finish_options *opt, struct error *err);

#endif
