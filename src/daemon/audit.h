/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of requests goes into the audit log (auth/audit.h): whatever is no GET, but for work inside a plan
 * (ROUTE_DATA), which the plan's own log has. "asked" before the handler runs: what cannot be recorded is
 * refused. How it went, before the answer is sent; a failure to record that is logged, for it is done. Who is
 * known and is refused for want of rights, once; but not every time who does it often.
 */
#ifndef DAEMON_AUDIT_H
#define DAEMON_AUDIT_H

#include "daemon/call.h"

/* 0, or a negative code and c->err. */
int audit_asked(struct call *c);
/* The answer is about to be queued. */
void audit_answered(struct call *c, unsigned status);

#endif
