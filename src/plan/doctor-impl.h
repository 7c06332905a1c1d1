/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the doctor share: how a finding is told. */
#ifndef PLAN_DOCTOR_IMPL_H
#define PLAN_DOCTOR_IMPL_H

#include "plan/doctor.h"
#include "plan/plan.h"

struct doctor {
	doctor_fn fn;
	void *user;
	struct atoll *a; /* NULL when the store cannot be opened */
	bool unasked;    /* what is being looked at */
};

/* HOW is one of the three that follow; the text is made here. */
void doctor_say(struct doctor *d, const struct doctor_finding *how, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));

#define GOOD(what) (&(struct doctor_finding){ .level = DOCTOR_OK, .topic = (what) })
#define WARN(what, remedy) \
	(&(struct doctor_finding){ .level = DOCTOR_WARNING, .topic = (what), .fix = (remedy) })
#define BAD(what, why, remedy)                          \
	(&(struct doctor_finding){ .level = DOCTOR_BAD, \
	                           .topic = (what),     \
	                           .code = (why),       \
	                           .fix = (remedy) })

void doctor_host(struct doctor *d);
void doctor_fence(struct doctor *d);
void doctor_store(struct doctor *d); /* opens d->a */
void doctor_directory(struct doctor *d, const char *path);
void doctor_database(struct doctor *d, const char *url);

#endif
