/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, and their text for Prometheus. Counting takes no lock. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "daemon/route.h"

#define METRICS_CLASSES 6 /* 1xx .. 5xx, and 0: the client went before an answer */
#define METRICS_STEPS   8 /* of the histogram of durations */

struct metrics {
	_Atomic uint64_t requests[ROUTES_MAX + 1][METRICS_CLASSES]; /* last row: no route */
	_Atomic uint64_t steps[METRICS_STEPS + 1];
	_Atomic uint64_t sum_us;
	_Atomic uint64_t refused;     /* by the guard */
	_Atomic uint64_t denied;      /* 401, 403 */
	_Atomic uint64_t connections; /* accepted so far */
	_Atomic int64_t open;         /* connections */
	_Atomic int64_t running;      /* requests */
	int64_t started_ms;
};

/* ROUTE NULL: none. */
void metrics_request(struct metrics *m, const struct route *route, unsigned status,
                     int64_t took_ns);
/* The whole page; LATE: see peers_late(). The caller frees. */
char *metrics_text(struct metrics *m, uint64_t late, size_t *ret_len);

#endif
