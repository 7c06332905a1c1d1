/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says: one JSON object per line on standard error, each in one write. Never a
 * secret, and of a request's target only the route. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include "util/error.h"

struct call;

enum log_level { LOG_ERROR = 0, LOG_INFO, LOG_REQUEST, LOG_LEVEL_END_ };

/* Lines above LEVEL are left out. LOG_REQUEST at first. Before there are threads. */
void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
/* A failure with its hint. */
void log_failure(const char *what, const struct error *err);
/* A request that is over: id, route, status, ms, who. */
void log_request(const struct call *c, int64_t took_ns, bool whole);

#endif
