/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, from libmicrohttpd's callbacks to a handler and back. */
#ifndef DAEMON_SERVE_H
#define DAEMON_SERVE_H

#include "daemon/daemon.h"

/* Serves every listener; requests come as soon as this returns. TLS texts are those of the files, or
 * NULL. */
int serve_start(struct daemon *d, const char *tls_cert, const char *tls_key, struct error *err);
/* As daemon.h says. After it no request runs. */
void serve_stop(struct daemon *d);

#endif
