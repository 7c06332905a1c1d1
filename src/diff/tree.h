/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing trees: a workspace with its base record, a base record with the resource as it is
 * now. Nothing is followed; nothing is opened but directories and, where metadata cannot prove
 * equality, regular files.
 *
 * Unchanged is proven by what no editor can forge: the copy's inode number and ctime are those
 * recorded when it was made. Otherwise metadata is compared, then content with the original, and
 * only if the original is itself unchanged; if it is not, the entry counts as changed (and will
 * conflict).
 */
#ifndef DIFF_TREE_H
#define DIFF_TREE_H

#include "diff/base.h"
#include "diff/change.h"
#include "util/error.h"
#include "util/list.h"

struct tree_compare {
	int work_fd; /* root of the workspace */
	int orig_fd; /* root of the resource */
	const struct base *base;
	const struct strlist *excludes; /* relative paths left alone, or NULL */
	unsigned threads;               /* 0: default */
	/* Is NOW how we left the original PATH ourselves, its content and metadata those of the
	 * base? NULL: we never touched one. */
	bool (*left_by_us)(const void *ctx, const char *path, const struct fs_stat *base,
	                   const struct fs_stat *now);
	const void *left_ctx;
};
/* Fills CS, sorted. A change of an entry that could not be read (BASE_UNREADABLE) is in the set
 * with its base_flags. ATOLL_CHANGE_ESCAPING_LINK, _SETUID, _SPECIAL, CHANGE_GIT_NAMED are set for what is new
 * or changed at the entry itself, and found inside new directories too. On failure CS is empty. */
int tree_diff(const struct tree_compare *t, struct changeset *cs, struct error *err);

/* Every entry of the change set one by one, for people: a new directory with all below it, a
 * deleted one with all the base record lists below it. FN: path, kind, what, old, new. Order of
 * path_compare(). OLD_STAT or NEW_STAT is NULL where absent, LINK_TARGET where no link is now. A
 * negative answer ends. */
typedef int (*tree_entry_fn)(void *ctx, const char *path, enum atoll_change_kind kind,
                             unsigned what, const struct fs_stat *old_stat,
                             const struct fs_stat *new_stat, const char *link_target);
int tree_expand(const struct tree_compare *t, const struct changeset *cs, tree_entry_fn fn,
                void *ctx, struct error *err);
/* The same for one change. */
int tree_expand_one(const struct tree_compare *t, const struct change *c, tree_entry_fn fn,
                    void *ctx, struct error *err);

/* Did somebody else change what CHANGE is about? 0: no. 1: yes, *ret_why says ("changed",
 * "deleted", "created", "replaced", "contains changes: <path>"), caller frees. 2: the resource
 * already is what the change would make it (drop the change). For directories deleted or replaced
 * the whole subtree is compared with the base record; new entries below count, vanished ones do
 * not; what goes with one that nobody changed is measured. */
int tree_conflict(const struct tree_compare *t, struct change *c, char **ret_why,
                  struct error *err);
/* Does the resource already hold what change C (no CHANGE_ATTR) would put there? Times aside. */
bool tree_already(int work_fd, int orig_fd, const struct change *c);
/* The same for a parent directory: still the same directory? */
int tree_conflict_dir(const struct tree_compare *t, const struct change_dir *d, char **ret_why,
                      struct error *err);

/* Is a link at PATH with TARGET leaving the tree? Absolute targets do, and relative ones that
 * climb above the root. Text only; nothing is looked up. */
bool tree_link_escapes(const char *path, const char *target);

/* Builds a workspace: a complete copy of ORIG_FD's tree into WORK_FD (an empty directory), in
 * parallel, and its base record, which it finishes. Hard links within the tree stay linked.
 * Entries that cannot be read, and mount points, become empty stand-ins and are reported to NOTE.
 * A directory that changes while it is copied is looked at again; -EAGAIN when it keeps changing.
 * Directories get their metadata after their contents. NOTE may be NULL; it is called from any
 * thread, never from two at once. On failure WORK_FD holds part of a copy. */
typedef void (*tree_note_fn)(void *ctx, const char *path, const char *why);
int tree_copy(int orig_fd, int work_fd, const struct strlist *excludes, struct base_writer *w,
              unsigned threads, tree_note_fn note, void *ctx, struct error *err);

#endif
