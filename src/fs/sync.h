/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A barrier: the set of files and directories that must be on disk before the next step.
 *
 * Collect with syncset_add(), then syncset_run() makes all of it durable, per filesystem with
 * one syncfs() when little is dirty (Dirty in /proc/meminfo below 32 MiB, and 128 KiB more for each
 * entry: as much as is written in the time of the fsync it saves) or very much is to be synced, else by writeback-kick and fsync of each: from several threads, on btrfs one by one.
 * One error is final for the whole barrier: the caller withdraws; it never syncs again.
 */
#ifndef FS_SYNC_H
#define FS_SYNC_H

struct syncset;
struct syncset *syncset_new(void);
void syncset_free(struct syncset *s);
void cleanup_syncsetp(struct syncset **s);
#define cleanup_syncset __attribute__((__cleanup__(cleanup_syncsetp)))

/* What is in the set may lie in a file on DIR_FD's filesystem, which is duplicated. */
void syncset_spill_to(struct syncset *s, int dir_fd);
/* The entry PATH below ROOT_FD (kept as a duplicate; several adds of one root share it). A
 * regular file: its data and inode; a directory: its entries; other types are made durable by
 * their directory and ignored. Absent at run time: ignored (it was moved; both directories are
 * in the set). */
int syncset_add(struct syncset *s, int root_fd, const char *path);
/* And everything below it. */
int syncset_add_tree(struct syncset *s, int root_fd, const char *path);
/* An open descriptor, duplicated. */
int syncset_add_fd(struct syncset *s, int fd);
unsigned syncset_size(const struct syncset *s);
/* Empties the set, also on failure. */
int syncset_run(struct syncset *s);

/* Tests: 0 decide as said above, 1 always syncfs(), 2 always each. Process-wide. */
void syncset_force(int method);

#endif
