/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Atoll moved away and put back, over all plans of a store. A rename changes the ctime of an entry and
 * nothing else of it; so that other plans do not take that for a change of another process, each undo and
 * redo writes down which ctime became which. Two ctimes of one entry mean the same version when such moves
 * lead from one to the other.
 *
 * On disk: `moves/` in the store, a file for each undo or redo of a resource, in the format of a manifest:
 * records with how an entry looked before it went and how it looks since it is back. A file is of use to
 * plans that were there when it was made. One that is missing or torn only means that an entry passes for
 * changed: a conflict that is named, never a lost change. So no space is set aside for it before a decision:
 * when the disk is full, it is not written, and the undo or redo goes on.
 */
#ifndef STRATEGY_MOVES_H
#define STRATEGY_MOVES_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/stat.h"
#include "strategy/strategy.h"

struct manifest;
struct moves;

/* A record: PATH looked like WAS, went away, and is back as NOW. Kept in TO; one that is not the same version
 * is left out. Nothing is kept when TO is NULL. */
int moves_add(struct manifest *to, const char *path, const struct fs_stat *was,
              const struct fs_stat *now);
/* Writes what TO has, if anything, and has the next barrier cover it. A full disk is no error. */
int moves_write(struct atoll_participant *p, const struct manifest *to);
/* Is the entry ID with ctime NOW_NS the same version that had WAS_NS? When it cannot be told, it is not. */
bool moves_same(struct atoll_participant *p, struct fs_id id, int64_t was_ns, int64_t now_ns);
/* The same of an entry that looked like WAS: it looks like NOW because it was moved away and back. */
bool moves_same_entry(struct atoll_participant *p, const struct fs_stat *was,
                      const struct fs_stat *now);
void moves_free(struct moves *m);
/* Is there any file? */
bool moves_any(int store_fd);
/* Removes what no plan can ask for any more: files older than OLDEST_MS. */
void moves_tidy(int store_fd, int64_t oldest_ms);

#endif
