/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate and its key, as texts: libmicrohttpd (GnuTLS) reads them. */
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include "daemon/daemon.h"

/* Reads the files that the options name, if they do. The key must not be readable by everybody. */
int tls_open(struct daemon *d, struct error *err);
void tls_close(struct daemon *d); /* the key is wiped */

#endif
