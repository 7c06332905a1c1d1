/* SPDX-License-Identifier: Apache-2.0 */
/* What systemd wants of a service, by hand: sockets handed over, and a word when it is ready
 * (sd_listen_fds(3), sd_notify(3)). Without systemd nothing happens. */
#ifndef DAEMON_SYSTEMD_H
#define DAEMON_SYSTEMD_H

#define SYSTEMD_FIRST_FD 3

/* How many sockets, from SYSTEMD_FIRST_FD on, were handed to this process; they are close-on-exec
 * then, and the variables are gone. Before there are threads. */
int systemd_listen_fds(void);
/* "READY=1", "STOPPING=1"; lines. */
void systemd_notify(const char *state);

#endif
