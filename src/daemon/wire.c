/* SPDX-License-Identifier: Apache-2.0 */
/* Plain sockets, and GnuTLS as libmicrohttpd has set it up: on a socket that does not block. */
#include "daemon/wire.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <sys/socket.h>

void wire_init(struct wire *w, struct MHD_Connection *connection, int fd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);

	*w = (struct wire){ .fd = fd, .tls = info ? info->tls_session : NULL };
}

/* What does not end the session is tried again. */
static ssize_t of_tls(ssize_t n)
{
	if (n >= 0)
		return n;
	return n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED || !gnutls_error_is_fatal((int)n)
	               ? -EAGAIN
	               : -EIO;
}

static ssize_t of_socket(ssize_t n)
{
	if (n >= 0)
		return n;
	return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

ssize_t wire_receive(struct wire *w, void *buf, size_t size)
{
	if (w->tls)
		return of_tls(gnutls_record_recv(w->tls, buf, size));
	return of_socket(recv(w->fd, buf, size, MSG_DONTWAIT));
}

ssize_t wire_send(struct wire *w, const void *data, size_t len)
{
	if (w->tls)
		return of_tls(gnutls_record_send(w->tls, data, len));
	return of_socket(send(w->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool wire_pending(const struct wire *w)
{
	return w->tls && gnutls_record_check_pending(w->tls) > 0;
}

void wire_end(struct wire *w)
{
	if (w->tls)
		(void)gnutls_bye(w->tls, GNUTLS_SHUT_WR);
	(void)shutdown(w->fd, SHUT_WR);
}
