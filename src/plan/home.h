/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The home directory that a command sees with a private layer over it (ATOLL_HOME_SCRATCH): which of its
 * directories it may change there, and which it only reads.
 *
 *   entries that begin with a dot, there or new      private
 *   directories that a variable names, or a table,
 *   or the setting fence.private                     private
 *   every other directory that is there              only read: writing fails as in the rest of the system
 *   files, and new entries, directly in the home     private
 */
#ifndef PLAN_HOME_H
#define PLAN_HOME_H

#include "plan/exec-option.h"
#include "plan/plan-view.h"

/*
 * Adds to VIEWS, which are the resources' and what the caller of the command says: what lies below HOME
 * (canonical) and is only read, and what is private in that. A directory stays open, and its entries are looked
 * at as those of the home are, when the place of something in it has to be made in the layer. -errno: the
 * home, or what stays open in it, cannot be read.
 */
int home_views(struct views *views, const char *home, const struct exec_wishes *wishes,
               struct error *err);

#endif
