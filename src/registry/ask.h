/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks: whoever works in a plan and may not commit asks somebody who may. An ask is for what the diff
 * was when it was made, known by its digest.
 *
 *   open       until one of the following; a plan has one at most
 *   withdrawn  by whoever asked, or by another ask
 *   changed    the work is not what was asked for any more
 *   declined   by a reviewer
 *   decided    the plan was committed, rolled back or reset
 *
 * It goes with its plan.
 */
#ifndef REGISTRY_ASK_H
#define REGISTRY_ASK_H

#include <stdint.h>
#include "registry/registry.h"

/* On disk: only ever appended to. */
enum ask_state {
	ASK_OPEN = 0,
	ASK_WITHDRAWN,
	ASK_CHANGED,
	ASK_DECLINED,
	ASK_DECIDED,
	ASK_STATE_END_
};

#define ASK_WHO_LEN    80
#define ASK_DIGEST_LEN 72

struct ask_row {
	int64_t id;
	char plan[PLAN_ID_LEN + 1];
	char who[ASK_WHO_LEN]; /* who asks */
	char *message;
	char digest[ASK_DIGEST_LEN];
	int64_t at_ms;
	enum ask_state state;
	int64_t ended_ms;           /* 0: open */
	char ended_by[ASK_WHO_LEN]; /* or "" */
};

/* Sets the id. What was open before is WITHDRAWN. */
int registry_ask_insert(struct registry *r, struct ask_row *row, struct error *err);
typedef int (*registry_ask_fn)(void *ctx, const struct ask_row *row);
/* PLAN NULL: of all plans. The newest first. */
int registry_ask_list(struct registry *r, const char *plan, bool open_only, registry_ask_fn fn,
                      void *ctx, struct error *err);
/* The open one with the number ID, or, with 0, whichever is open. How many: 1 or 0. */
int registry_ask_end(struct registry *r, const char *plan, int64_t id, enum ask_state to,
                     const char *by, struct error *err);

#endif
