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
int copy_base_rebase(struct atoll_participant *p, struct dir_batch *b);
/* After an undo that kept the work: what is there now is the base again. */
int copy_base_back(struct atoll_participant *p, struct dir_batch *b);
int copy_base_revert(struct atoll_participant *p);
void copy_base_settle(struct atoll_participant *p);

#endif
