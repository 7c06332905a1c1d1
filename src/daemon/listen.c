/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon listens. The rule for TCP is one and looks at the socket, however it came: loopback,
 * or TLS, or not at all.
 */
#include "daemon/listen.h"

#include "daemon/listen-unix.h"
#include "daemon/systemd.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG    128
#define PORT_LEN   8
#define USUAL_NAME "atolld.sock"

static bool is_loopback(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)ss)->sin_addr.s_addr) >> 24 == 127;
	return ss->ss_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)ss)->sin6_addr);
}

static void name_address(struct listener *l, const struct sockaddr_storage *ss)
{
	char host[INET6_ADDRSTRLEN] = "?", port[PORT_LEN] = "?";

	(void)getnameinfo((const struct sockaddr *)ss, sizeof(*ss), host, sizeof(host), port,
	                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	(void)snprintf(l->name, sizeof(l->name), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
	               port);
}

static int no_tls(const struct listener *l, struct error *err)
{
	(void)error_set(err, -ATOLL_E_INVALID,
	                "%s can be reached from elsewhere, and there is no TLS", l->name);
	error_hint(err, "give --tls-cert FILE and --tls-key FILE, or listen on 127.0.0.1");
	return -ATOLL_E_INVALID;
}

/* Takes FD, also on failure: a socket that listens, or is about to. */
static int add(struct daemon *d, int fd, struct error *err)
{
	struct listener *l = &d->listeners[d->n_listeners];
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (d->n_listeners == DAEMON_LISTENERS) {
		(void)close(fd);
		return error_set(err, -ATOLL_E_TOO_BIG, "more than %d places to listen",
		                 DAEMON_LISTENERS);
	}
	*l = (struct listener){ .fd = fd };
	d->n_listeners++;
	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return error_sys(err, -errno, "look at", "a socket that was handed over");
	l->is_unix = ss.ss_family == AF_UNIX;
	l->tls = !l->is_unix && d->options.tls_cert;
	if (l->is_unix) {
		(void)snprintf(l->name, sizeof(l->name), "unix:%s",
		               ((struct sockaddr_un *)&ss)->sun_path);
		return 0;
	}
	name_address(l, &ss);
	return l->tls || is_loopback(&ss) ? 0 : no_tls(l, err);
}

static int add_handed(struct daemon *d, int n, struct error *err)
{
	for (int i = 0; i < n; i++) {
		int r = add(d, SYSTEMD_FIRST_FD + i, err), type = 0;
		socklen_t len = sizeof(type);

		if (r < 0)
			return r;
		if (getsockopt(SYSTEMD_FIRST_FD + i, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
		    type != SOCK_STREAM)
			return error_set(err, -ATOLL_E_INVALID,
			                 "what was handed over is no stream socket");
	}
	return 0;
}

/* ---- addresses ---- */

static int bind_address(const struct addrinfo *ai, int *ret_fd)
{
	cleanup_close int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* "HOST:PORT", "[::1]:PORT". HOST goes to the names the guard knows, as a Host would have it. */
static int split_address(struct daemon *d, const char *text, char **ret_host, const char **ret_port,
                         struct error *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	cleanup_free char *host = len > 0 ? xstrndup(text, len) : NULL;

	if (!host || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    (strchr(host, ':') && (host[0] != '[' || host[len - 1] != ']')))
		return error_set(err, -ATOLL_E_INVALID, "--listen: '%s' is not HOST:PORT", text);
	strlist_add(&d->guard.hosts, host);
	*ret_port = colon + 1;
	*ret_host = host[0] == '[' ? xstrndup(host + 1, len - 2) : xstrdup(host);
	return 0;
}

static int add_resolved(struct daemon *d, const char *text, const struct addrinfo *list,
                        struct error *err)
{
	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
		int fd = FD_NONE, r = bind_address(ai, &fd);

		if (r >= 0)
			r = add(d, fd, err);
		else
			(void)error_sys(err, r, "listen on", text);
		if (r >= 0 && listen(fd, BACKLOG) < 0)
			r = error_sys(err, -errno, "listen on", text);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_address(struct daemon *d, const char *text, struct error *err)
{
	const struct addrinfo want = { .ai_family = AF_UNSPEC,
		                       .ai_socktype = SOCK_STREAM,
		                       .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	cleanup_free char *host = NULL;
	struct addrinfo *list;
	const char *port = NULL;
	int r = split_address(d, text, &host, &port, err);

	if (r < 0)
		return r;
	r = getaddrinfo(host, port, &want, &list);
	if (r != 0)
		return error_set(err, -ATOLL_E_INVALID, "--listen: '%s': %s", text,
		                 gai_strerror(r));
	r = add_resolved(d, text, list, err);
	freeaddrinfo(list);
	return r;
}

/* ---- all of them ---- */

static int add_unix(struct daemon *d, const char *path, struct error *err)
{
	struct listener *l = &d->listeners[d->n_listeners];
	int fd, r = listen_unix(path, &fd, err);

	if (r < 0)
		return r;
	r = add(d, fd, err);
	if (r >= 0)
		listen_unix_remember(l, path);
	return r;
}

static void know_names(struct daemon *d)
{
	static const char *const loopback[] = { "localhost", "127.0.0.1", "[::1]" };

	for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
		strlist_add(&d->guard.hosts, loopback[i]);
	for (size_t i = 0; i < d->options.hosts.n; i++)
		strlist_add(&d->guard.hosts, d->options.hosts.v[i]);
	for (size_t i = 0; i < d->options.origins.n; i++)
		strlist_add(&d->guard.origins, d->options.origins.v[i]);
}

int listen_open(struct daemon *d, struct error *err)
{
	int r = add_handed(d, systemd_listen_fds(), err);

	know_names(d);
	if (r >= 0 && d->options.socket)
		r = add_unix(d, d->options.socket, err);
	for (size_t i = 0; r >= 0 && i < d->options.listen.n; i++)
		r = add_address(d, d->options.listen.v[i], err);
	if (r >= 0 && d->n_listeners == 0) {
		cleanup_free char *usual = xasprintf("%s/%s", stores_home(d->stores), USUAL_NAME);

		r = add_unix(d, usual, err);
	}
	return r;
}

void listen_close(struct daemon *d)
{
	for (size_t i = 0; i < d->n_listeners; i++) {
		listen_unix_remove(&d->listeners[i]);
		close_fd(&d->listeners[i].fd);
	}
	d->n_listeners = 0;
	strlist_done(&d->guard.hosts);
	strlist_done(&d->guard.origins);
}
