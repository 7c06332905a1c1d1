/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a directory batch: what will be done, complete enough to be carried out or
 * taken back by another process after a power cut, with nothing but the area and the root.
 *
 * Every operation is a swap between a target (a path below the root) and a private slot (`sK` in
 * the batch's directory). OLD is what the target held, NEW what it shall hold; either may be
 * absent:
 *
 *   CREATE   no old:  slot -> target;  back: target -> slot
 *   REPLACE  both:    slot <-> target (RENAME_EXCHANGE), both ways
 *   DELETE   no new:  target -> slot;  back: slot -> target
 *
 * A batch that leaves work behind also takes out of the workspace what it used up and no slot
 * receives: whiteouts, and entries of which the resource got a copy (MANIFEST_WORK).
 *
 * Whether an operation is done is read from the slot, which nobody else can touch, and by
 * identity (inode and generation). Operations are on disjoint paths, so their order does not
 * matter and any subset may be on disk after a power cut. Directories that stay get their
 * attributes and times last, deepest first.
 *
 * On disk: magic, version, counts, records with explicit lengths, little-endian; its hash is in
 * the registry from the decision on. Since version 2 a state may have its content (fs/content.h) behind
 * it, of which a flag tells; version 1, which had none, is read as it is.
 */
#ifndef STRATEGY_MANIFEST_H
#define STRATEGY_MANIFEST_H

#include <stddef.h>
#include <stdint.h>
#include "diff/change.h"
#include "fs/spool.h"
#include "fs/stat.h"
#include "fs/xattr.h"
#include "util/error.h"
#include "util/hash.h"

/* The slot was filled by copying; else the entry comes from the workspace, at the same path, when
 * the batch is carried out. */
#define MANIFEST_STAGED 0x1u
#define MANIFEST_STRIP  0x2u  /* set-id bits and capabilities are taken off */
#define MANIFEST_TEMP   0x4u  /* a directory without write permission: opened up while moved */
#define MANIFEST_MARKS  0x8u  /* from an overlay: whiteouts and marks are taken off */
#define MANIFEST_OPAQUE 0x10u /* was opaque: marked so again when it returns to the workspace */

/* A DELETE in the workspace instead: what the batch uses up there, kept in its slot. */
#define MANIFEST_WORK 0x20u
#define MANIFEST_PART 0x40u /* a new directory with some of its entries; the others stay behind */
/* With MANIFEST_WORK: the plan's version was given up for what somebody else made of the path. A
 * CREATE is one of which there is no entry to keep: it was deleted in the plan. */
#define MANIFEST_THEIRS 0x80u

/* Not an operation but a record of what was there; may be of the root (path ""), as MANIFEST_THEIRS of
 * attributes may. */
#define MANIFEST_RECORD 0x200u

/* Of a record in `found` (dir-found.c): another process's version, which --ours moved out of its place;
 * and the way that looked for it may not have been decided. */
#define MANIFEST_INSISTED 0x4000u
#define MANIFEST_PENDING  0x8000u

/* On disk only: the content of the old state, of the new one, follows. In memory the states tell. */
#define MANIFEST_OLD_CONTENT 0x1000u
#define MANIFEST_NEW_CONTENT 0x2000u

struct manifest_op {
	enum change_op op; /* never CHANGE_ATTR */
	unsigned flags;
	char *path;
	struct fs_stat old_stat; /* mode 0: none */
	struct fs_stat new_stat;
};

#define MANIFEST_DIR_ATTR 0x1u /* mode, owner, extended attributes change */
#define MANIFEST_DIR_TEMP 0x2u /* opened up while its entries change; mode put back */
#define MANIFEST_DIR_TIME 0x4u /* entries change: mtime is set afterwards */

struct manifest_dir {
	unsigned flags;
	char *path; /* "" is the root */
	struct fs_stat old_stat;
	struct fs_stat new_stat;  /* mode, uid, gid, mtime */
	struct xattrs old_xattrs; /* only with MANIFEST_DIR_ATTR */
	struct xattrs new_xattrs;
};

struct manifest {
	int64_t created_ns;        /* UTC; originals written to after it are late */
	struct spool ops;          /* as on disk, where most of a long one lies: manifest_get() */
	struct manifest_dir *dirs; /* sorted; applied backwards: deepest first */
	size_t n_dirs, cap_dirs;
};
#define MANIFEST_INIT ((struct manifest){ 0 })

/* Both take over what RECORD owns, also on failure. Operations are added to memory until they are told
 * where else they may go: spool_spill_to(&m->ops, ...). */
int manifest_add_op(struct manifest *m, struct manifest_op *record);
int manifest_add_dir(struct manifest *m, struct manifest_dir *record);
void manifest_done(struct manifest *m);

/* Operation K as it is on disk, with a path of its own. 0, -errno of reading it back. */
int manifest_get(const struct manifest *m, size_t k, struct manifest_op *ret);
void manifest_op_done(struct manifest_op *o);
#define MANIFEST_OP_INIT    ((struct manifest_op){ 0 })
#define cleanup_manifest_op __attribute__((__cleanup__(manifest_op_done)))
/* Operations in the order of path_compare(). */
int manifest_sort(struct manifest *m);
/* The operation at PATH among the first N, which are sorted: 1 with *ret, which has no path; 0. */
int manifest_find(const struct manifest *m, size_t n, const char *path, struct manifest_op *ret);
/* The one at PATH or, if there is none, the nearest above it. Sorted as a whole. */
int manifest_find_above(const struct manifest *m, const char *path, struct manifest_op *ret);
/* The first that is not before PATH; M->ops.n when there is none. */
int manifest_from(const struct manifest *m, const char *path, size_t *ret);

/* One of records only, written as they come, and kept nowhere else: memory and disk are needed for
 * nothing but the file itself. In the order in which they are to be found again. */
struct manifest_writer;
/* File NAME in DIR_FD; an older one is dropped first. */
int manifest_writer_open(int dir_fd, const char *name, int64_t created_ns,
                         struct manifest_writer **ret);
/* Takes over nothing. */
int manifest_writer_add(struct manifest_writer *w, const struct manifest_op *o);
int manifest_writer_finish(struct manifest_writer *w);
void manifest_writer_close(struct manifest_writer *w);

/* Bytes that nobody writes more of, nor reads. */
uint64_t manifest_limit(void);

#define MANIFEST_HEADER_SIZE 28
#define MANIFEST_OP_SIZE     116 /* bytes of an operation on disk, without its path */
#define MANIFEST_CONTENT     24  /* more, for each state that has its content */
#define MANIFEST_NAME        "manifest"
/* Writes file NAME in BATCH_FD (an older one is dropped first); not yet durable: the barrier's
 * business. */
int manifest_write(const struct manifest *m, int batch_fd, const char *name,
                   char ret_hash[HASH_TEXT_LEN], struct error *err);
/* HASH "" : not compared (no decision was made). -ENOENT, -ATOLL_E_DAMAGED. The operations of a long one
 * are read when they are asked for, from the file as it was opened here. */
int manifest_read(int batch_fd, const char *name, const char *hash, struct manifest *ret,
                  struct error *err);
/* Its operations one by one, none of them kept: memory does not follow their number. */
struct manifest_reader;
int manifest_reader_open(int batch_fd, const char *name, struct manifest_reader **ret,
                         struct error *err);
/* 1 with *ret, valid until the next call; 0 at the end. */
int manifest_reader_next(struct manifest_reader *m, const struct manifest_op **ret,
                         struct error *err);
void manifest_reader_close(struct manifest_reader *m);
/* Only the parsing, for tests: DATA is untrusted. */
int manifest_parse(const void *data, size_t len, struct manifest *ret, struct error *err);

#endif
