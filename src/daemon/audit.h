/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of requests goes into the audit log (auth/audit.h): whatever is no GET, but for work inside a plan
 * (ROUTE_DATA), which the plan's own log has. "asked" before the handler runs: what cannot be recorded is
 * refused. How it went, before the answer is sent; a failure to record that is logged, for it is done. Who is
 * known and is refused for want of rights, once; but not every time who does it often.
 *
 * And every decision (plan.h): what is made of a plan's work is recorded where the library does it, under the plan's
 * lock, whatever it was asked by, a step of a session too. The entry's `what` is the verb alone ("commit"), `plan`
 * the id, and `request` that of the request or of the stream.
 */
#ifndef DAEMON_AUDIT_H
#define DAEMON_AUDIT_H

#include "daemon/call.h"

/* 0, or a negative code and c->err. */
int audit_asked(struct call *c);
/* The answer is about to be queued. */
void audit_answered(struct call *c, unsigned status);

/* Decisions through c->atoll, until stores_give(), are c's: also when a stream has taken it. */
void audit_decisions(const struct call *c);

#endif
