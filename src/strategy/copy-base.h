/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base record of a `copy` whose workspace lives on after a batch: what the batch installed is
 * the base of its paths from now on. The record is written anew, `baseG.new`, and put in the place
 * of `baseG`; as it was it is kept as `baseG.bN` until nobody can take the batch back before it is
 * acknowledged.
 *
 * Crash: the old record or the new one; carrying the batch out again makes the new one again.
 */
#ifndef STRATEGY_COPY_BASE_H
#define STRATEGY_COPY_BASE_H

#include "strategy/dir.h"

/* Each can be repeated. */
/* Bytes of the record as it is; 0 when that cannot be told. */
uint64_t copy_base_size(const struct atoll_participant *p);
int copy_base_rebase(struct atoll_participant *p, struct dir_batch *b);
/* After an undo that kept the work: what is there now is the base again. */
int copy_base_back(struct atoll_participant *p, struct dir_batch *b);
int copy_base_revert(struct atoll_participant *p);
void copy_base_settle(struct atoll_participant *p);

/* What somebody else changed since the base was recorded (copy-refresh.c). */
struct copy_foreign {
	struct strlist paths; /* entries, created, changed or gone */
	struct strlist dirs;  /* directories, themselves */
};
#define COPY_FOREIGN_INIT ((struct copy_foreign){ 0 })
int copy_foreign_find(const struct tree_compare *t, struct copy_foreign *ret, struct error *err);
void copy_foreign_done(struct copy_foreign *f);
#define cleanup_copy_foreign __attribute__((__cleanup__(copy_foreign_done)))
/* Brings it into the workspace, where it is in nobody's way, and into the base record. Paths that
 * are EQUAL on both sides are only recorded. */
int copy_base_refresh(struct atoll_participant *p, const struct tree_compare *t,
                      const struct copy_foreign *f, const struct strlist *equal);

#endif
