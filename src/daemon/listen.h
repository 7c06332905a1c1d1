/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon listens: sockets it was handed (systemd), a Unix socket, addresses. */
#ifndef DAEMON_LISTEN_H
#define DAEMON_LISTEN_H

#include "daemon/daemon.h"

/* Fills d->listeners as d->options say; sockets that were handed over count, and when there are any and
 * nothing else was asked for, they are all. A TCP address that is not loopback needs TLS. */
int listen_open(struct daemon *d, struct error *err);
/* Closes them, and removes the socket files that are ours. */
void listen_close(struct daemon *d);

#endif
