/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/program.h"

#include "util/program.h"

char *sync_program_path(void)
{
	static const struct program sync = { .name = "atoll-sync",
		                             .folder = "src/sync",
		                             .variable = "ATOLL_SYNC" };

	return program_path(&sync);
}
