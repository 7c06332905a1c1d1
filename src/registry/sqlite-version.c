/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has anything changed? Every reader of a database with a WAL begins by looking at the header of the
 * WAL's index, which is in memory that all processes share: as long as it has the same bytes, nothing
 * has (https://www.sqlite.org/walformat.html). Looking there ourselves takes no lock and no system
 * call; `PRAGMA data_version` tells the same with four.
 */
#include "registry/sqlite-impl.h"

#include "util/hash.h"

#include <stdatomic.h>
#include <string.h>

#define INDEX_REGION 32768 /* what SQLite maps at once */
#define HEADER_LEN   48    /* two equal copies at the beginning */
#define TRIES        4

/* The header's bytes. False: there is none to see, or somebody is writing it just now. */
static bool read_header(struct backend *b, unsigned char out[HEADER_LEN])
{
	volatile void *map = NULL;
	unsigned char again[HEADER_LEN];
	sqlite3_file *file = NULL;

	if (sqlite3_file_control(b->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
	    !file || !file->pMethods || file->pMethods->iVersion < 2 ||
	    file->pMethods->xShmMap(file, 0, INDEX_REGION, 0, &map) != SQLITE_OK || !map)
		return false;
	for (int i = 0; i < TRIES; i++) {
		const volatile unsigned char *from = map;

		/* Written second copy first, so read first copy first. */
		for (size_t k = 0; k < HEADER_LEN; k++)
			out[k] = from[k];
		atomic_thread_fence(memory_order_acquire);
		for (size_t k = 0; k < HEADER_LEN; k++)
			again[k] = from[HEADER_LEN + k];
		if (memcmp(out, again, HEADER_LEN) == 0)
			return true;
	}
	return false;
}

int sqlite_version(struct backend *b, uint64_t *ret, struct error *err)
{
	unsigned char header[HEADER_LEN];
	int64_t version = 0;
	int r;

	if (read_header(b, header)) {
		*ret = hash64(header, sizeof(header));
		return 0;
	}
	r = sqlite_ask(b, "PRAGMA data_version", &version, err);
	if (r >= 0)
		*ret = (uint64_t)version;
	return r < 0 ? r : 0;
}
