/* SPDX-License-Identifier: Apache-2.0 */
/* What undo and redo have in common: which commit is meant, and where else it was. */
#ifndef CLI_UNDO_WAY_H
#define CLI_UNDO_WAY_H

#include "cli/cli.h"
#include "plan/plan-undo.h"
#include "util/list.h"

/* Are there too many words? 0, or an exit status after it said so. Before the store is opened. */
int undo_way_check(struct cli *c);
/* Sets c->plan: the one that is named, else the one whose commit is next in the current directory. 0, or an
 * exit status after it said why not. */
int undo_way_find(struct cli *c, enum undo_way way);
/* The options --ours and --keep-theirs, and the words behind the plan, which say what --keep-theirs is about, else
 * more of --ours. The plan is open. 0 or an exit status. */
struct undo_way_sides {
	struct strlist ours, theirs;
	const char **our_paths, **their_paths; /* the same for the library */
};
int undo_way_sides(struct cli *c, struct undo_way_sides *ret);
void undo_way_sides_done(struct undo_way_sides *s);
#define cleanup_undo_way_sides __attribute__((__cleanup__(undo_way_sides_done)))
/* "; also in ~/lib, ~/notes.db": the resources with OUTCOME that do not hold the current directory; ": ~/lib" where
 * none does; or "". The caller frees. */
char *undo_way_also(const struct cli *c, enum atoll_outcome outcome);

#endif
