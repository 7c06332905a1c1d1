/* SPDX-License-Identifier: Apache-2.0 */
/* Running git for a participant: in its area, with failures in its error. */
#ifndef STRATEGY_GIT_RUN_H
#define STRATEGY_GIT_RUN_H

#include "strategy/git-call.h"
#include "strategy/strategy-impl.h"

/* As git_call(). Beside a working tree the filters of its files (filter.NAME.clean ...) do not run: what they
 * start may lie in that tree, and be what the plan made of it. A file that goes through one differs then from what
 * git has of it: it is not merged, and git looks at it once more after a commit. */
int git_ask(struct atoll_participant *p, const struct git *g, const char *const *args,
            const struct strbuf *in, struct strbuf *out);
/* The same where no is an error, too. */
int git_do(struct atoll_participant *p, const struct git *g, const char *const *args,
           const struct strbuf *in, struct strbuf *out);

/* Adds PATH to a list for `alternates`, quoted. */
void git_path_list(struct strbuf *list, const char *path);

#endif
