/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base record: what a tree was when its workspace was made, so that later both questions can
 * be answered without the tree: what did the workspace change, and what did somebody else?
 *
 * A file of directory blocks in any order (several threads write them), each block holding the
 * entries of one directory sorted by name, then an index from directory number to block, then a
 * trailer with counts and a hash of the index. Directory 0 is the root. Blocks carry their own
 * hash. Little-endian, versioned; a reader checks every length against the file and limits.h, so
 * that a damaged file is -ATOLL_E_DAMAGED and never more. Reading costs memory for one directory.
 *
 * Crash: a record without its trailer does not open; the sandbox is then PENDING and removed.
 */
#ifndef DIFF_BASE_H
#define DIFF_BASE_H

#include <stddef.h>
#include <stdint.h>
#include "fs/stat.h"
#include "util/error.h"

#define BASE_NO_DIR UINT32_MAX

#define BASE_GEN_ANY  0          /* not known: a directory of this name is the copy */
#define BASE_GEN_NONE UINT64_MAX /* the workspace has no copy of it */

#define BASE_UNREADABLE 0x1u /* its content could not be read: an empty stand-in is in the view */
#define BASE_SKIPPED    0x2u /* not in the view at all (a device an ordinary user cannot make) */

struct base_entry {
	const char *name;
	unsigned flags;
	struct fs_stat
		src; /* the original when it was copied: id, mode, uid, gid, size, mtime, ctime, rdev */
	uint64_t work_ino; /* the copy, once complete */
	uint64_t work_gen; /* of a directory's copy (struct fs_id); BASE_GEN_ANY, BASE_GEN_NONE */
	int64_t work_ctime_ns; /* 0: proves nothing. Of a directory: its own metadata, not below */
	uint32_t dir;          /* number of the directory's block; BASE_NO_DIR for others */
	uint64_t xattrs;       /* a directory's extended attributes, xattrs_hash(); 0 for others */
};

struct base_writer;
/* FD: a new file, duplicated. The root's own entry has name "". */
int base_writer_new(int fd, struct base_writer **ret);
uint32_t base_writer_dir(struct base_writer *w); /* a new directory number; thread-safe; first: 0 */
/* Entries must be sorted by name, and directories numbered after DIR: else -EINVAL. A second block
 * for a directory takes the place of the first. Thread-safe. */
int base_writer_block(struct base_writer *w, uint32_t dir, const struct base_entry *v, size_t n);
/* The copy WORK_INO has several names and this ctime since the last of them was made: readers get
 * it in place of what the blocks say, for entries whose original had several names. */
int base_writer_link(struct base_writer *w, uint64_t work_ino, int64_t work_ctime_ns);
int base_writer_finish(struct base_writer *w,
                       const struct base_entry *root); /* index and trailer */
void base_writer_free(struct base_writer *w);
void cleanup_base_writerp(struct base_writer **w);
#define cleanup_base_writer __attribute__((__cleanup__(cleanup_base_writerp)))

struct base;
int base_open(int fd, struct base **ret, struct error *err); /* FD duplicated */
void base_free(struct base *b);
void cleanup_basep(struct base **b);
#define cleanup_base __attribute__((__cleanup__(cleanup_basep)))
const struct base_entry *base_root(const struct base *b);
uint64_t base_count(const struct base *b); /* entries, without the root */

struct base_block {
	struct base_entry *v;
	size_t n;
	void *arena;
};
#define BASE_BLOCK_INIT ((struct base_block){ 0 })
/* Thread-safe (pread). */
int base_read(const struct base *b, uint32_t dir, struct base_block *ret, struct error *err);
const struct base_entry *base_block_find(const struct base_block *blk, const char *name);
void base_block_done(struct base_block *blk);
#define cleanup_base_block __attribute__((__cleanup__(base_block_done)))
/* The entry at PATH ("" the root): 1 and *ret (name allocated in *ret_block), 0 absent. */
int base_lookup(const struct base *b, const char *path, struct base_entry *ret,
                struct base_block *ret_block, struct error *err);

/*
 * A record like another but for some paths: their base is something else since a batch was
 * committed or taken back. Entries of OLD that are not named stay as they are.
 */
enum base_amend_kind {
	BASE_SET = 0, /* this entry; of a directory without what OLD has below it */
	BASE_META,    /* a directory's own SRC, XATTRS and WORK_* (not WORK_GEN); the rest stays */
	BASE_REMOVE   /* not there, nor anything below it */
};
struct base_amendment {
	enum base_amend_kind kind;
	char *path; /* "" (the root) only for BASE_META */
	struct base_entry
		e; /* its name and directory number are not looked at, only whether it is one */
};
/* V is sorted by path_compare(), paths differ; what lies below a new directory is named entry by
 * entry. FD: a new file. */
int base_amend(const struct base *old, const struct base_amendment *v, size_t n, int fd,
               struct error *err);

#endif
