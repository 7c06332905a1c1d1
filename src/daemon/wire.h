/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a connection that is no HTTP any more, plain or through TLS. The library would carry them
 * between its TLS session and a pair of sockets, in pieces as large as what its memory for the request
 * has left: four bytes. So the session is used here, while its thread is ours.
 */
#ifndef DAEMON_WIRE_H
#define DAEMON_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct MHD_Connection;
struct gnutls_session_int;

struct wire {
	int fd;                         /* of the connection; for poll() */
	struct gnutls_session_int *tls; /* or NULL */
};

void wire_init(struct wire *w, struct MHD_Connection *connection, int fd);
/* Never wait: how many bytes; 0: their end; -EAGAIN; -errno. */
ssize_t wire_receive(struct wire *w, void *buf, size_t size);
/* After -EAGAIN the same bytes are to be sent. */
ssize_t wire_send(struct wire *w, const void *data, size_t len);
/* Bytes have come that poll() does not know of. */
bool wire_pending(const struct wire *w);
/* Nothing more will be sent. */
void wire_end(struct wire *w);

#endif
