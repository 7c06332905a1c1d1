/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that make something, by the key their sender gave them (Idempotency-Key): so that whoever
 * does not know whether his request was heard may send it again.
 *
 *   recorded   durable before anything is made: what was asked for (a digest), and what it will be
 *              called (the plan's id and name)
 *   made       set in the very transaction that makes it
 *   gone       REQUEST_KEPT_MS after it was recorded; or at once, when nothing could be made
 *
 * A row that is not made tells of a request under way, or of one whose server died; which of the two,
 * the lock of what it makes says.
 */
#ifndef REGISTRY_REQUEST_H
#define REGISTRY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include "registry/registry.h"

/* On disk: only ever appended to. */
enum request_kind {
	REQUEST_PLAN = 0,
	REQUEST_SANDBOX,
	REQUEST_JOB,
	REQUEST_ASK,
	REQUEST_KIND_END_
};

#define REQUEST_KEPT_MS    (INT64_C(24) * 3600 * 1000)
#define REQUEST_KEY_LEN    128
#define REQUEST_SENDER_LEN 80

struct request_row {
	char sender[REQUEST_SENDER_LEN]; /* whose key it is: two senders' keys never meet */
	char key[REQUEST_KEY_LEN + 1];
	enum request_kind kind;
	char digest[HASH_TEXT_LEN];
	char plan[PLAN_ID_LEN + 1]; /* the plan to be made, or in which something is */
	/* Of the plan or job; of an ask its number; "": the plan was there, and opened. */
	char name[LIMIT_NAME + 1];
	bool made;
	int64_t created_ms;
};

/* A descriptor that says that somebody is at the request, in whatever process it is open; for what begins
 * in a process that outlives the one that was asked. -ATOLL_E_BUSY: somebody is. */
int registry_request_hold(struct registry *r, const char *sender, const char *key);
/* 1 and *ret, or 0. */
int registry_request_get(struct registry *r, const char *sender, const char *key,
                         struct request_row *ret, struct error *err);
/* -ATOLL_E_EXISTS: the sender has used the key. Rows whose time is over go. */
int registry_request_insert(struct registry *r, const struct request_row *row, struct error *err);
/* What the request that chose the plan id PLAN asked for is there. */
int registry_request_plan_made(struct registry *r, const char *plan, struct error *err);
/* Sets plan, name and made. */
int registry_request_update(struct registry *r, const struct request_row *row, struct error *err);
int registry_request_delete(struct registry *r, const char *sender, const char *key,
                            struct error *err);

#endif
