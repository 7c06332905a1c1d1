/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local half of a cycle: the plan over the project that notices edits, gets what was pulled, and brings
 * it into place. cycle.h says what is on record when, and what a crash leaves.
 */
#ifndef REMOTE_PULL_H
#define REMOTE_PULL_H

#include "remote/cycle.h"

/*
 * The plan of an earlier cycle, if one is on record. One that holds a whole pull is committed; so what is
 * left in *RET_PLAN, which the caller frees, is a base, or NULL. -ATOLL_E_CONFLICT: RET has them, and
 * nothing was changed. *RET_RUN: the last run that came, or -1.
 */
int pull_settle(struct remote_session *s, const struct remote_run *run, struct remote_outcome *ret,
                struct atoll_plan **ret_plan, int64_t *ret_run, struct error *err);
/* A new base. */
int pull_base(struct remote_session *s, struct atoll_plan **ret_plan, struct error *err);
/* A base that is not needed any more. PLAN is freed, and NULL afterwards; it may be NULL before. */
int pull_drop(struct remote_session *s, struct atoll_plan **plan, struct error *err);

/* One that is the user's from now on, with what it holds; RET names it. The same of PLAN. */
int pull_leave(struct remote_session *s, struct atoll_plan **plan, struct remote_outcome *ret,
               struct error *err);

/* Makes a base ready that a dead client may have used. */
int pull_tidy(struct remote_session *s, struct atoll_plan *plan, struct error *err);
/*
 * The stream in *FD with another time for git's index, which becomes a new file in DIR_FD. Git takes an entry
 * of the index for unchanged when size, time (in seconds) and inode of the file are as it says, but for
 * what was changed no earlier than the index was written, which it reads. So an index that was written
 * there, of files that are others there, must not look newer here than the one it is made of: a file
 * that was edited here in the second of the last `git add` would count as clean.
 */
int pull_date_index(int dir_fd, int64_t mtime_ns, int *fd, struct error *err);
/* Makes the changes of the stream in FD, from its beginning, in PLAN. May be done again. */
int pull_apply(struct remote_session *s, struct atoll_plan *plan, int fd, struct error *err);
/* All of RUN is in PLAN: on record from here on. *RET_CAME: entries it changes here. */
int pull_record(struct remote_session *s, struct atoll_plan *plan, int64_t run, uint64_t *ret_came,
                struct error *err);
/* Into the project, all or nothing. */
int pull_commit(struct remote_session *s, const struct remote_run *run, struct atoll_plan *plan,
                struct remote_outcome *ret, struct error *err);

#endif
