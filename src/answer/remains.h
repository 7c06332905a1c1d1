/* SPDX-License-Identifier: Apache-2.0 */
/* What a clean-up may take, and what it takes on disk. */
#ifndef ANSWER_REMAINS_H
#define ANSWER_REMAINS_H

#include <stdint.h>
#include <atoll.h>
#include "util/json.h"
#include "util/list.h"

struct remains_plan {
	char *id, *name;
};
struct remains {
	struct strlist paths;
	struct strlist owners; /* of each the plan's id, or "" */
	uint64_t *bytes;       /* of each */
	size_t cap;
	struct remains_plan *plans; /* that were there when remains_look() was called */
	size_t n_plans, plans_cap;
};
#define REMAINS_INIT ((struct remains){ 0 })
/* For atoll_scan() and the like; USER is a struct remains. A path is noted once. */
int remains_note(void *user, const char *plan_id, const char *path);
/* Notes what a clean-up of A takes; with FORCE also what abandoned plans have. */
void remains_look(struct remains *m, struct atoll *a, bool force);
/* Of what was noted, the bytes of what is no longer there. */
uint64_t remains_freed(const struct remains *m);
/* "plans": those that are gone now, each with what that freed. */
void remains_answer_plans(struct json *j, const struct remains *m, struct atoll *a);
/* An object for a path that was noted last. */
void remains_answer(struct json *j, const struct remains *m, const char *plan_id, const char *path);
void remains_done(struct remains *m);
#define cleanup_remains __attribute__((__cleanup__(remains_done)))

#endif
