/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite databases among the files of a directory. A commit puts another file in the place of each that
 * changed, whole; a process that has the old one open goes on in that, and what it writes is lost. So
 * they are named, with the way that merges rows (--sqlite), and one that is open is not replaced.
 *
 * A database is a file of whole pages that begins with SQLite's 16 bytes, or has a NAME-wal beside it.
 * NAME-wal, NAME-shm and NAME-journal are parts of it.
 */
#ifndef DIFF_LIVE_DATABASE_H
#define DIFF_LIVE_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/stat.h"

extern const char *const live_database_sides[]; /* "-wal" and the like; NULL at the end */
/* Bytes of NAME that name the database it is a part of: all of them, or all but "-wal" and the like. */
size_t live_database_stem(const char *name);
/* By its name and by OLD, which is how it looks where it is (NULL: absent), is NAME worth a look? Cheap. */
bool live_database_may_be(const char *name, const struct fs_stat *old);
/* Is NAME in DIR_FD (O_PATH will do) part of a database that is there? What cannot be read is none. */
bool live_database_at(int dir_fd, const char *name, const struct fs_stat *old);
/* Has a process the database PATH below ROOT_FD open, however idle? It cannot be told of a file of another
 * user's, or where the filesystem grants no leases: true then. A process that opens it at this moment waits
 * until it was looked at. */
bool live_database_is_open(int root_fd, const char *path);

#endif
