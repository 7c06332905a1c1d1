/* SPDX-License-Identifier: Apache-2.0 */
/* Between finding sessions and making them. */
#ifndef REMOTE_SESSION_IMPL_H
#define REMOTE_SESSION_IMPL_H

#include "remote/session.h"

/* With the session's lock held. Asks for the plan of a row that is `creating`, and makes it active. */
int session_make_plan(struct remote_session *s, struct error *err);
/* Takes the lock, and has the plan made unless somebody has done so meanwhile. -ATOLL_E_NOT_FOUND: the
 * row is gone. */
int session_complete(struct remote_session *s, struct error *err);
/* Another key, no plan; durable. */
int session_begin_again(struct remote_session *s, struct error *err);

/* Changes s->row by CHANGE in one durable transaction, from what the registry has. */
typedef void (*session_change_fn)(struct session_row *row, const void *ctx);
int session_change(struct remote_session *s, session_change_fn change, const void *ctx,
                   struct error *err);

#define SESSION_DIRS         "remote" /* in the store: a directory for each */
#define SESSION_LOCK_SESSION "session"
#define SESSION_LOCK_CYCLE   "cycle"

/* What sessions that are gone have left in the store; those who died had no time for it. */
void session_sweep(struct atoll *a);

#endif
