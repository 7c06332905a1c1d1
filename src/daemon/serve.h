/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, from libmicrohttpd's callbacks to a handler and back. */
#ifndef DAEMON_SERVE_H
#define DAEMON_SERVE_H

#include "daemon/daemon.h"

/* Serves every listener; requests come as soon as this returns. */
int serve_start(struct daemon *d, struct error *err);
/* As daemon.h says. After it no request runs. False: some still do, and nothing may be freed.
 * Harmless when nothing was started. */
bool serve_stop(struct daemon *d);

#endif
