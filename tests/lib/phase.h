/* SPDX-License-Identifier: Apache-2.0 */
/* Between phase.c and the strategies in faulty.c. */
#ifndef ATEST_PHASE_H
#define ATEST_PHASE_H

#include "lib/atest.h"

/* What was set for the phase, in the order it was set; the first answer that is not 0. */
int phase_run(struct atoll_participant *p, enum phase phase);
/* A line in the effect log. */
void phase_log(struct atoll_participant *p, enum phase phase);

#endif
