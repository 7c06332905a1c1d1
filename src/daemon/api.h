/* SPDX-License-Identifier: Apache-2.0 */
/* What handlers share. */
#ifndef DAEMON_API_H
#define DAEMON_API_H

#include <stdbool.h>
#include <stdint.h>
#include "answer/answer.h"
#include "daemon/body.h"
#include "daemon/call.h"
#include "daemon/daemon.h"
#include "daemon/reply.h"
#include "daemon/route.h"
#include "plan/plan.h"

#define KIB(n) ((size_t)(n) << 10)

void cleanup_planp(struct atoll_plan **p);
#define cleanup_plan __attribute__((__cleanup__(cleanup_planp)))

/* The query parameter NAME: "true" or "false"; "" is true. *RET stays as it is where it is not given. */
int query_bool(struct call *c, const char *name, bool *ret);
/* A whole number up to MAX. */
int query_number(struct call *c, const char *name, uint64_t max, uint64_t *ret);

/* For what an agent does in a plan: its key alone, which is for every plan, will not do. */
int api_bound(struct call *c);
/* What dead processes left is settled first, and what expired goes, as for commands that change something. P: the
 * plan that this request names, or NULL. */
void api_settle(struct call *c, const struct atoll_plan *p);

/* ATOLL_* flags from words in a list, by a table that ends with NULL. */
struct api_word {
	const char *word;
	unsigned flag;
};
int api_words(struct call *c, const char *member, const char *const *list,
              const struct api_word *table, unsigned *flags);

/* Plan, result and the rest of an answer, for fill functions. */
struct api_fill {
	struct call *c;
	struct atoll_plan *plan;
	const char *format; /* as answer_begin() has it */
	unsigned flags;
	bool opened;
	int worst;
};
/* 200 with plan and result of a decision. */
int api_decided(struct call *c, struct atoll_plan *p, const char *format, unsigned flags);

#endif
