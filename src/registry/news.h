/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The news: every change of a plan's or a sandbox's state, and every line of history, in the order in
 * which they happened, for whoever follows the store.
 *
 * A row is written in the transaction that makes the change: it is there exactly when the change is, and
 * once, whoever is killed. Plans that are still being made have none; their first is "start".
 *
 *   state           the plan is in another state now; CLOSED: it is gone
 *   sandbox         a sandbox was added, is in another state, or is gone (CLEANED_UP)
 *   exec-begin, job-begin, job
 *                   a command begins; a job begins, with its name, and has ended
 *   ask, ask-end    somebody asks for a commit, with his words; that is over, by whom
 *   anything else   as in the history: "start" "add" "exec" "commit" ... when it is over, well or not
 *
 * Numbers grow and are never used twice. They need not follow one another: with the first row of
 * another boot they jump, for the last ones before it may have been lost with the machine, and somebody
 * elsewhere may know them (a row that is lost after that is lost with its transaction). The newest row
 * is never let go, so the next number is always greater than any before.
 *
 * Old ones go as the log's lines do; the greatest number that went is kept, so that a reader can be told
 * what it missed.
 */
#ifndef REGISTRY_NEWS_H
#define REGISTRY_NEWS_H

#include "registry/registry.h"

struct news_row {
	int64_t seq;
	int64_t at_ms;
	char plan[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1];
	char *what;
	int code;
	char *message;
	enum atoll_plan_state state; /* of the plan, after it */
	char sandbox[SANDBOX_ID_LEN + 1];
	enum atoll_sandbox_state sandbox_state;
};

/* Within a transaction. */
int registry_news_add(struct registry *r, const char *plan, const char *what, const char *message,
                      struct error *err);

struct news_bounds {
	int64_t newest; /* 0: there has been nothing yet */
	int64_t let_go; /* the greatest number that was; 0: none */
};
typedef int (*registry_news_fn)(void *ctx, const struct news_row *row);
/* At most LIMIT rows after AFTER, in order, and the bounds as they were then. FN may be NULL. */
int registry_news_list(struct registry *r, int64_t after, int64_t limit, registry_news_fn fn,
                       void *ctx, struct news_bounds *ret, struct error *err);
int registry_news_newest(struct registry *r, int64_t *ret, struct error *err);

/*
 * A descriptor to poll for reading: somebody may have written to the registry since registry_news_seen().
 * The caller's to close.
 *
 * Whoever writes holds the store lock, and when it is let go, well or by being killed, the kernel says
 * so to whoever watches the lock's file. The commit is visible by then. (The WAL itself would be too early:
 * its last frame is written before the index that makes it visible, and synced in between.) It does not
 * matter who checkpoints, vacuums or migrates. Where no more such watches can be had the descriptor is
 * a timer of REGISTRY_NEWS_PACE_MS.
 */
#define REGISTRY_NEWS_PACE_MS 50
int registry_news_watch(struct registry *r, int *ret_fd, struct error *err);
/* What is said so far is known. Before looking, so that what comes meanwhile wakes again. */
void registry_news_seen(int fd);

#endif
