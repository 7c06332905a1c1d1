/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system tree that a command sees: the host's, read-only, with private /tmp, /var/tmp, /run and
 * /dev, an own /proc, and the views of the request at their targets.
 */
#ifndef HELPER_TREE_H
#define HELPER_TREE_H

#include "helper/dev.h"
#include "helper/hide.h"
#include "helper/resolver.h"
#include "helper/submount.h"
#include "helper/view.h"

#include <stdint.h>

enum tree_own { TREE_DEV = 0, TREE_SHM, TREE_RUN, TREE_TMP, TREE_VAR_TMP, TREE_OWN_END_ };

struct tree {
	struct views views;
	struct submounts submounts;
	struct dev dev;
	int proc_fd;                /* FD_NONE: no fresh one could be mounted */
	int own_fd[TREE_OWN_END_];  /* places that are ours: there directories may be made */
	struct resolvers resolvers; /* kept in the new /run */
	struct hide hide;
	bool user_xattrs;
	bool is_root;  /* the user named 0, here: /proc holds things only root may write */
	bool old_proc; /* result: no fresh /proc could be mounted */
};

void tree_init(struct tree *t);
/*
 * To be called by pid 1 of new pid and mount namespaces. tree_begin() makes what needs no request,
 * and lets the mounts follow the host's; tree_build() makes the rest, then attaches it. A failure
 * leaves the namespace half made: the caller ends.
 */
int tree_begin(struct tree *t, struct failure *f);
int tree_build(struct tree *t, const struct request *q, struct failure *f);
void tree_done(struct tree *t);

#endif
