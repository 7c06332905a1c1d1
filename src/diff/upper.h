/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Change sets from the upper directory of an overlay: only what a command touched is there, so
 * the cost follows the change, not the tree. The lower tree is looked at only beside it.
 *
 *   in the upper                       means
 *   character device 0:0               the name is deleted (a whiteout)
 *   directory, below it a directory    merged: entered; its own attributes may differ
 *   directory marked opaque            replaces what is below it, whole
 *   anything else                      takes the place of what is below it, or is new
 *
 * The upper may hold anything a hostile command could make: whiteouts inside new directories are
 * nothing, marks of the other family mean nothing, nothing is followed, nothing special opened.
 */
#ifndef DIFF_UPPER_H
#define DIFF_UPPER_H

#include "diff/change.h"
#include "diff/tree.h"
#include "fs/overlayfs.h"
#include "util/error.h"
#include "util/list.h"

struct upper_compare {
	int upper_fd;
	int orig_fd; /* the lower: the resource as it is now */
	enum overlay_marks marks;
	const struct strlist *excludes;
	const char *root, *plan; /* for hints: path of the resource and name of the plan, or NULL */
};

/* Fills CS, sorted. A change's base is the resource's entry as it is now; whether that is what the
 * view was made of is for the caller to judge (strategy/overlay-base.c). Entries copied up and
 * not changed are no changes. */
int upper_diff(const struct upper_compare *u, struct changeset *cs, struct error *err);

/* The same changes one by one, in the same order, as they are found: nothing is kept, so memory
 * follows the largest directory and the depth. FN may take C's path over, leaving NULL. A negative
 * answer ends. */
typedef int (*upper_change_fn)(void *ctx, struct change *c);
int upper_each(const struct upper_compare *u, upper_change_fn fn, void *ctx, struct error *err);

/* Merged directories, for which the caller records the base: every directory the upper shares
 * with the resource, in order. */
typedef int (*upper_dir_fn)(void *ctx, const char *path, const struct fs_stat *base);
int upper_merged(const struct upper_compare *u, upper_dir_fn fn, void *ctx, struct error *err);

/* As tree_expand(). A directory replaced by another is compared entry by entry. */
int upper_expand(const struct upper_compare *u, const struct changeset *cs, tree_entry_fn fn,
                 void *ctx, struct error *err);
/* The same for one change. Nothing is said of a failure. */
int upper_expand_one(const struct upper_compare *u, const struct change *c, tree_entry_fn fn,
                     void *ctx);
/* The same, and BASE_FN is shown every entry that the resource has there, told or not: who judges
 * them and who counts the change share one reading. BASE: without identity where the upper has no
 * such entry. A directory that cannot be read is a failure here. */
typedef int (*upper_base_fn)(void *ctx, int dir_fd, const char *name, const char *path,
                             const struct fs_stat *base);
int upper_expand_base(const struct upper_compare *u, const struct change *c, tree_entry_fn fn,
                      upper_base_fn base_fn, void *ctx);

#endif
