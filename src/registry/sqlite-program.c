/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite for a short program. Settings of the whole process, which a library has no business
 * making: they are here for the one caller who owns his process.
 */
#include "registry/sqlite-impl.h"

#include "registry/registry.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <stddef.h>
#include <string.h>

static bool reads_only;

void registry_program(bool reads)
{
	/* SQLite sets memory aside for each connection and touches all of it: some thirty pages
	 * that a handful of statements never use. A setting that is refused, because SQLite is
	 * running already, costs time and nothing else. */
	(void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
	(void)sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	reads_only = reads;
}

bool sqlite_program_reads(void)
{
	return reads_only;
}
