/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of records that may be long: a table of eight bytes for each is in memory, and the records
 * themselves, once there are more than a few, in a file without a name. Records are bytes, encoded by
 * whoever owns the list, and read back one at a time; reading them in order is cheap either way.
 *
 * A list that is given no directory, or one where nothing can be written, stays in memory: what only
 * looks must be able to where nothing can be written. So a failure to write is no failure by itself; it
 * is -ENOMEM when the memory is not there either, which spool_add() says. What was added can be read
 * without memory or disk in proportion to anything.
 *
 * All zero is an empty list in memory. Not for two threads at once, reading neither.
 */
#ifndef FS_SPOOL_H
#define FS_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPOOL_RECORD_MAX ((1u << 24) - 1) /* bytes of one record */
#define SPOOL_MEMORY     (256u << 10)     /* bytes of records that are kept in memory in any case */

struct spool_window;
struct spool {
	size_t n;       /* records */
	uint64_t *refs; /* offset and length of each */
	size_t cap;
	char *tail; /* what is not in the file: from FILE_LEN on */
	size_t tail_len, tail_cap;
	int over_fd; /* the file that was there already, when OVER_LEN is not 0 */
	uint64_t over_len;
	int fd; /* our own, of what follows that, once FILE_LEN is more */
	uint64_t file_len;
	bool may_spill; /* DIR_FD is where */
	int dir_fd;
	struct spool_window *window; /* what was read last */
};

/* From now on what is added may go to a file on DIR_FD's filesystem; kept by the caller until the last
 * record is added. */
void spool_spill_to(struct spool *s, int dir_fd);
/* 0, -ENOMEM, -ATOLL_E_TOO_BIG for a record that is too long. */
int spool_add(struct spool *s, const void *data, size_t len);
/* Another record in the place of record I. */
int spool_set(struct spool *s, size_t i, const void *data, size_t len);
/* Record I, until the next call with S. 0, -errno of reading, -ENOMEM. */
int spool_get(const struct spool *s, size_t i, const void **ret_data, size_t *ret_len);
/* Record FROM takes the place TO, which is not behind it; for going through a list and leaving some
 * out, before spool_cut(). */
void spool_move(struct spool *s, size_t from, size_t to);
void spool_cut(struct spool *s, size_t n); /* the first N stay */
/* Stable. What comes in long runs that are sorted already, as mostly, costs one reading for each
 * doubling of their length. The order of CMP is over whole records. */
typedef int (*spool_cmp_fn)(const void *a, size_t a_len, const void *b, size_t b_len);
int spool_sort(struct spool *s, spool_cmp_fn cmp);
/* Among the first N, which are sorted: 1 and *ret, 0 when there is none. Asking in order is cheap. */
typedef int (*spool_key_fn)(const void *key, const void *data, size_t len);
int spool_search(const struct spool *s, size_t n, spool_key_fn cmp, const void *key, size_t *ret);
/* A list of records that lie in file FD, which is duplicated and never written to: then each is named,
 * and then others may be added. */
int spool_over(struct spool *s, int fd, uint64_t len);
int spool_name(struct spool *s, uint64_t offset, size_t len);
/* Empties it; the directory is forgotten, too. */
void spool_done(struct spool *s);

#endif
