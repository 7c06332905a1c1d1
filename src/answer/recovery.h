/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery asked for by somebody, who is to hear which plans were in doubt before and after. */
#ifndef ANSWER_RECOVERY_H
#define ANSWER_RECOVERY_H

#include <atoll.h>
#include "util/json.h"
#include "util/list.h"

struct recovery {
	struct strlist before, after; /* names of plans in doubt */
	int left;                     /* as atoll_recover() says */
};
/* PLAN NULL: all plans. 0 or a negative code; RES holds what recovery said, or the failure. */
int recovery_run(struct recovery *v, struct atoll *a, const struct atoll_plan *plan, bool accept,
                 struct atoll_result *res);
/* "recovered", "left", and the result. */
void recovery_answer(struct json *j, const struct recovery *v, const struct atoll_result *res);
void recovery_done(struct recovery *v);
#define cleanup_recovery __attribute__((__cleanup__(recovery_done)))

#endif
