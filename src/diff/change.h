/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Change sets: what a workspace would do to its resource, as the fewest operations on disjoint
 * paths. A new or replaced directory is one change with everything below it; so is a deleted one.
 */
#ifndef DIFF_CHANGE_H
#define DIFF_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/spool.h"
#include "fs/stat.h"
#include "fs/usage.h"

enum change_op {
	CHANGE_CREATE = 0, /* absent in the base */
	CHANGE_REPLACE,    /* another inode takes its place: content, type or metadata */
	CHANGE_DELETE,
	CHANGE_ATTR, /* a directory that stays: mode, owner, extended attributes */
	CHANGE_OP_END_
};

struct change {
	enum change_op op;
	char *path;    /* relative to the root; "" (the root) only for CHANGE_ATTR */
	unsigned what; /* ATOLL_CHANGE_* */
	/* BASE_*: of the entry; of all below it when a directory goes; BASE_UNREADABLE also for
	 * what lies in a stand-in. */
	unsigned base_flags;
	uint32_t base_dir;   /* block of the base directory, or BASE_NO_DIR */
	struct fs_stat base; /* as recorded; mode 0: absent */
	struct fs_stat work; /* in the workspace, with id; mode 0: absent */
	uint64_t entries;    /* that a listing of it has, itself included, once they are counted */
	bool counted;
	struct usage goes; /* of a directory that goes, with all below it, once it was read */
	bool databases;    /* of a directory that goes: there may be some in it, once it was read */
	bool in_part;      /* of a new directory: only some of what is below it is meant */
	bool settled;      /* somebody else's version, now in `base`, is to be replaced */
};

/* A directory that stays and below which something changes: its times are set after the rest. */
struct change_dir {
	char *path;
	struct fs_stat base;   /* identity to find it by */
	int64_t work_mtime_ns; /* what the view showed */
};

/* Of a long one most lies in a file, where it may: spool_spill_to(&cs->v, ...). */
struct changeset {
	struct spool v;          /* sorted: component by component, by bytes; changeset_get() */
	struct change_dir *dirs; /* the same order; parents of every change, and directories whose
				    mtime alone differs (silent: they make no change set) */
	size_t n_dirs;
	size_t cap_dirs;
	struct spool theirs; /* given up for what is there now; `base` is that */
};
#define CHANGESET_INIT ((struct changeset){ 0 })

/* A directory that comes or goes, with what is below it. */
bool change_is_tree(const struct change *c);

/* Takes over nothing. */
int changeset_give_up(struct changeset *cs, const struct change *c);
/* Both take over PATH, also on failure. */
int changeset_add(struct changeset *cs, const struct change *c);
int changeset_add_dir(struct changeset *cs, const struct change_dir *d);
/* Sorts, adds nothing. */
int changeset_sort(struct changeset *cs);
/* Change I of CS->v or CS->theirs, with a path of its own. 0, -errno of reading it back. */
int changeset_get(const struct spool *v, size_t i, struct change *ret);
int changeset_set(struct spool *v, size_t i, const struct change *c);
/* The first change that is not before PATH; CS->v.n when there is none. */
int changeset_from(const struct changeset *cs, const char *path, size_t *ret);
/* The change of PATH: 1 with *ret, as changeset_get(); 0. */
int changeset_find(const struct changeset *cs, const char *path, struct change *ret);
void change_done(struct change *c);
#define CHANGE_INIT    ((struct change){ 0 })
#define cleanup_change __attribute__((__cleanup__(change_done)))
void changeset_done(struct changeset *cs);
#define cleanup_changeset __attribute__((__cleanup__(changeset_done)))

/* The defined order of paths: component by component, by bytes. */
int path_compare(const char *a, const char *b);
/* The same of bytes without a NUL. */
int path_compare_len(const char *a, size_t a_len, const char *b, size_t b_len);
/* PATH is DIR or below it. DIR "" contains everything. */
bool path_below(const char *path, const char *dir);

#endif
