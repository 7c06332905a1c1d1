/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The WAL of a live database, for a copy at the speed of `cp`. A transaction that reads sees the file, and
 * over it the frames of the WAL up to the last that was committed when it began. Nobody brings later ones
 * into the file, nor begins the WAL anew, as long as it lasts; earlier ones may come into the file while it
 * is read, which is why they are written over the copy, whole. Where the transaction began is not told, but
 * can be known: when nothing was committed between a look before and one after.
 *
 * The formats are SQLite's, published as such (fileformat2, walformat). The shared memory is looked at through
 * SQLite's own mapping: closing a descriptor of that file would drop SQLite's locks.
 */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"

#define SHM_REGION   32768
#define INDEX_FORMAT 3007000u
#define HEADER       32 /* of the WAL; its salt is at 16 */
#define FRAME        24 /* of a frame, before its page; page number at 0, salt at 8 */
#define SALT         8

/* The header of the shared memory, in the machine's order, but for the salt. */
struct wal_index {
	uint32_t format, unused, change;
	uint8_t is_init, big_end;
	uint16_t page_size; /* 1: 65536 */
	uint32_t frames, pages, checksum[2];
	unsigned char salt[SALT];
	uint32_t own_checksum[2];
};
_Static_assert(sizeof(struct wal_index) == sizeof(((struct sqldb_wal *)0)->index), "as in SQLite");

bool sqldb_wal_look(sqlite3 *db, struct sqldb_wal *ret)
{
	struct wal_index both[2];
	sqlite3_file *file = NULL;
	volatile void *shm = NULL;

	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
	    !file->pMethods || file->pMethods->iVersion < 2 || !file->pMethods->xShmMap ||
	    file->pMethods->xShmMap(file, 0, SHM_REGION, 0, &shm) != SQLITE_OK || !shm)
		return false;
	file->pMethods->xShmBarrier(file);
	for (size_t i = 0; i < sizeof(both); i++)
		((unsigned char *)both)[i] = ((volatile unsigned char *)shm)[i];
	/* Somebody writes it right now, or it is of a format that we do not know. */
	if (memcmp(&both[0], &both[1], sizeof(both[0])) != 0 || both[0].format != INDEX_FORMAT ||
	    !both[0].is_init)
		return false;
	(void)memcpy(ret->index, &both[0], sizeof(ret->index));
	return true;
}

static size_t page_size(const struct wal_index *x)
{
	return x->page_size == 1 ? 65536 : x->page_size;
}

int64_t sqldb_wal_size(const struct sqldb_wal *wal)
{
	struct wal_index x;

	(void)memcpy(&x, wal->index, sizeof(x));
	return (int64_t)x.pages * (int64_t)page_size(&x);
}

static uint32_t load_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* 1: as due; 0: the WAL is another by now. */
static int read_at(int fd, unsigned char *to, size_t len, off_t at)
{
	ssize_t n;

	do
		n = pread(fd, to, len, at);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : (size_t)n == len;
}

static int put_page(int to_fd, const struct wal_index *x, const unsigned char *frame, size_t size)
{
	uint32_t page = load_u32(frame);

	if (page == 0 || page > x->pages)
		return 0; /* cut off later */
	if (lseek(to_fd, (off_t)(page - 1) * (off_t)size, SEEK_SET) < 0)
		return -errno;
	return fs_write_all(to_fd, frame + FRAME, size);
}

static int put_frames(int wal_fd, const struct wal_index *x, int to_fd)
{
	size_t size = page_size(x), len = FRAME + size;
	cleanup_free unsigned char *frame = malloc(len);
	unsigned char header[HEADER];
	int r = frame ? read_at(wal_fd, header, sizeof(header), 0) : -ENOMEM;

	if (r == 1)
		r = memcmp(header + 16, x->salt, SALT) == 0;
	for (uint32_t i = 0; r == 1 && i < x->frames; i++) {
		r = read_at(wal_fd, frame, len, HEADER + (off_t)i * (off_t)len);
		if (r == 1)
			r = memcmp(frame + 8, x->salt, SALT) == 0;
		if (r == 1) {
			r = put_page(to_fd, x, frame, size);
			r = r < 0 ? r : 1;
		}
	}
	if (r != 1)
		return r;
	r = fs_allocate(to_fd, (uint64_t)x->pages * size);
	return r < 0 ? r : 1;
}

int sqldb_wal_put(sqlite3 *db, const struct sqldb_wal *wal, int to_fd)
{
	const char *path = sqlite3_filename_wal(sqlite3_db_filename(db, "main"));
	cleanup_close int wal_fd = FD_NONE;
	struct sqldb_wal now;
	struct wal_index x, after;
	int r;

	(void)memcpy(&x, wal->index, sizeof(x));
	if (x.frames == 0)
		return 0;
	wal_fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (wal_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = put_frames(wal_fd, &x, to_fd);
	if (r != 1)
		return r;
	/* All of it was in the file already, so it could be begun anew under our hands. */
	if (!sqldb_wal_look(db, &now))
		return 0;
	(void)memcpy(&after, now.index, sizeof(after));
	return memcmp(after.salt, x.salt, SALT) == 0;
}
