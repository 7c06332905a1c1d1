/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that is started for a request, once however often that is sent (once.h). */
#ifndef DAEMON_START_H
#define DAEMON_START_H

#include "daemon/api.h"
#include "daemon/once.h"

/* Id and name (NAME NULL: made up) are on record, before anything is made: who sends the request again is to
 * get the same plan. 0; 1: the request is answered, for somebody is at it. */
int start_record(struct call *c, struct once *o, const char *name);
/* Under that id. 0; 1: it was opened by its name. */
int start_recorded(struct call *c, struct once *o, struct atoll_start *start,
                   struct atoll_plan **ret);
/* A key for agents gets tokens of the plans that it made. */
int start_note(struct call *c, const struct atoll_plan *p);

#endif
