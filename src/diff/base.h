/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base record: what a tree was when its workspace was made, so that later both questions can
 * be answered without the tree: what did the workspace change, and what did somebody else?
 *
 * A file of directory blocks in any order (several threads write them), each block holding the
 * entries of one directory sorted by name, then an index from directory number to block, then a
 * trailer with counts and a hash of the index. Directory 0 is the root. Blocks carry their own
 * hash. Little-endian, versioned; a reader checks every length against the file and limits.h, so
 * that a damaged file is -ATOLL_E_DAMAGED and never more. Reading and writing a directory with many
 * entries costs eight bytes of memory for each.
 *
 * Version 2 has the content of files and links (fs/content.h). Version 1 is refused.
 *
 * Crash: a record without its trailer does not open; the sandbox is then PENDING and removed.
 */
#ifndef DIFF_BASE_H
#define DIFF_BASE_H

#include <stddef.h>
#include <stdint.h>
#include "fs/spool.h"
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
		src; /* the original when it was copied: id, mode, uid, gid, size, mtime, ctime, rdev,
			content (of the copy, that is) */
	uint64_t work_ino; /* the copy, once complete */
	uint64_t work_gen; /* of a directory's copy (struct fs_id); BASE_GEN_ANY, BASE_GEN_NONE */
	int64_t work_ctime_ns; /* 0: proves nothing. Of a directory: its own metadata, not below */
	uint32_t dir;          /* number of the directory's block; BASE_NO_DIR for others */
	uint64_t
		xattrs; /* a directory's extended attributes, xattrs_hash(); of others: src.content */
};

struct base_writer;
/* FD: a new file, duplicated. The root's own entry has name "". */
int base_writer_new(int fd, struct base_writer **ret);
uint32_t base_writer_dir(struct base_writer *w); /* a new directory number; thread-safe; first: 0 */
/* Blocks with many entries are put together on DIR_FD's filesystem, kept by the caller. */
void base_writer_spill_to(struct base_writer *w, int dir_fd);
/* The block of directory DIR, entry by entry: they must be sorted by name, and directories numbered
 * after DIR, else -EINVAL. A second block for a directory takes the place of the first. Drafts of one
 * writer may be made and put by several threads, each by one. */
struct base_draft {
	struct spool v;
	uint32_t dir;
	uint64_t len;
	char *last; /* name */
	size_t last_cap;
};
void base_draft_init(struct base_draft *d, const struct base_writer *w, uint32_t dir);
int base_draft_add(struct base_draft *d, const struct base_entry *e);
int base_draft_put(struct base_draft *d, struct base_writer *w);
void base_draft_done(struct base_draft *d);
#define cleanup_base_draft __attribute__((__cleanup__(base_draft_done)))
/* The same of an array. */
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

/* Of a short one all entries are in memory, of a long one where they are. */
struct base_block {
	size_t n;
	const struct base *b;
	uint32_t dir;
	struct base_entry *v;
	void *arena;
	struct spool where;  /* instead of the two */
	struct base_entry e; /* the one of them given last */
};
#define BASE_BLOCK_INIT ((struct base_block){ 0 })
/* Thread-safe (pread); a block is for one thread. B must stay. */
int base_read(const struct base *b, uint32_t dir, struct base_block *ret, struct error *err);
/* Entry I, until the next call. 0, or a code when it could not be read again. */
int base_block_at(struct base_block *blk, size_t i, const struct base_entry **ret);
/* *ret is NULL when there is none. Asking in order is cheap. */
int base_block_find(struct base_block *blk, const char *name, const struct base_entry **ret);
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
	const char *path; /* "" (the root) only for BASE_META */
	struct base_entry
		e; /* its name and directory number are not looked at, only whether it is one */
};
/* Takes over nothing. V: amendments so far. */
int base_amendment_add(struct spool *v, const struct base_amendment *a);
/* Paths of V are in any order; of several amendments of one, the first counts. What lies below a new
 * directory is named entry by entry. V is sorted. FD: a new file; DIR_FD: as base_writer_spill_to(). */
int base_amend(const struct base *old, struct spool *v, int dir_fd, int fd, struct error *err);

#endif
