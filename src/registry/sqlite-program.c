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

static bool reads_only, ends;

void registry_program(bool reads)
{
	/* SQLite sets memory aside for each connection and touches all of it: some thirty pages
	 * that a handful of statements never use. A setting that is refused, because SQLite is
	 * running already, costs time and nothing else. */
	(void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
	(void)sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
#ifndef __SANITIZE_ADDRESS__ /* which has to see every piece */
	(void)sqlite3_config(SQLITE_CONFIG_MALLOC, &sqlite_memory);
#endif
	reads_only = reads;
}

void registry_program_ends(void)
{
	ends = true;
}

/* Where it is found by who looks for leaks. */
bool sqlite_program_keeps(sqlite3 *db)
{
	static sqlite3 *kept;

	if (!ends || kept)
		return false;
	kept = db;
	return true;
}

bool sqlite_program_reads(void)
{
	return reads_only;
}
