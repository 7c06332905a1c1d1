/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking for a commit (registry/ask.h has the states). Takes no lock of the plan: an ask only says what
 * somebody saw, and whoever commits does so by the digest of what he saw himself.
 */
#ifndef PLAN_ASK_H
#define PLAN_ASK_H

#include "plan/plan.h"
#include "registry/ask.h"
#include "registry/request.h"

const char *ask_state_name(enum ask_state s);

/* Asks for what has ROW's digest, at once with REQUEST (NULL: none), which names it then. Sets id and
 * at_ms. The plan's history tells of it. */
int plan_ask(struct atoll_plan *p, struct ask_row *row, struct request_row *request,
             struct error *err);
/* PLAN_ID NULL: of all plans. The newest first. */
int plan_ask_list(struct atoll *a, const char *plan_id, bool open_only, registry_ask_fn fn,
                  void *user, struct error *err);
/* Ends the open one; history tells of it unless it CHANGED. 1, or 0 when it was not open. */
int plan_ask_end(struct atoll_plan *p, int64_t id, enum ask_state to, const char *by,
                 struct error *err);

#endif
