/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of a resource's changes a batch takes, and how its conflicts are settled. Paths are
 * relative to the resource's root; "" is all of it. No selection at all (NULL) takes everything and
 * settles nothing.
 */
#ifndef STRATEGY_SELECT_H
#define STRATEGY_SELECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include "util/list.h"

struct selection {
	struct strlist paths;    /* what lies at or below one of them ... */
	struct strlist excludes; /* ... and matches none of these (util/glob.h) */
	atomic_bool *used;       /* per exclude: it left something out; NULL: not of interest */
	/* Conflicts at or below: the plan's version is taken, or what is there now stays. Of two that
	 * cover a path the nearer one counts; none is in both. */
	struct strlist ours, theirs;
};

void selection_free(struct selection *s);
/* Nothing is left out. */
bool selection_is_whole(const struct selection *s);
/* Names a path inside the resource, not only the resource. */
bool selection_is_inside(const struct selection *s);
bool selection_has(const struct selection *s, const char *path, bool is_dir);
/* The one of PATHS that PATH lies at or below, the nearest of several, or NULL. */
const char *selection_cover(const struct strlist *paths, const char *path);

#endif
