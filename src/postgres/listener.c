/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets of the holder. */
#include "postgres/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "postgres/client.h"
#include "postgres/scram.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

static void free_listener(struct listener *listener)
{
	(void)close(listener->listen_fd);
	if (listener->owner_fd != FD_NONE)
		(void)close(listener->owner_fd);
	free(listener);
}

void listeners_done(struct listeners *d)
{
	while (d->first) {
		struct listener *listener = d->first;

		d->first = listener->next;
		free_listener(listener);
	}
	scram_free(d->password);
	*d = (struct listeners){ 0 };
}

static void add_listener(struct listeners *d, int listen_fd, int owner_fd)
{
	struct listener *listener = xcalloc(1, sizeof(*listener));

	*listener =
		(struct listener){ .next = d->first, .listen_fd = listen_fd, .owner_fd = owner_fd };
	d->first = listener;
}

int listeners_open(struct listeners *d)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
		                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	cleanup_close int fd = FD_NONE;

	if (d->password)
		return 0;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(fd, SOMAXCONN) < 0 || getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		return -errno;
	d->password = scram_new();
	if (!d->password)
		return -ENOMEM;
	d->port = ntohs(addr.sin_port);
	add_listener(d, take_fd(&fd), FD_NONE);
	return 0;
}

/* Whatever came is nothing but a TCP socket that listens. */
static bool is_listening(int fd)
{
	int domain = 0, type = 0, listening = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_INET &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

int listeners_adopt(struct listeners *d, int listen_fd, int owner_fd)
{
	if (!is_listening(listen_fd) || fcntl(listen_fd, F_SETFL, O_NONBLOCK) < 0) {
		(void)close(listen_fd);
		(void)close(owner_fd);
		return -EINVAL;
	}
	add_listener(d, listen_fd, owner_fd);
	return 0;
}

/* Pid 1 says nothing more, so whatever can be read is its end. */
static bool has_ended(const struct listener *listener)
{
	struct pollfd p = { .fd = listener->owner_fd, .events = POLLIN | POLLRDHUP };

	return listener->owner_fd != FD_NONE && poll(&p, 1, 0) > 0;
}

void listeners_close_ended(struct listeners *d)
{
	for (struct listener **at = &d->first; *at;) {
		struct listener *listener = *at;

		if (!has_ended(listener)) {
			at = &listener->next;
			continue;
		}
		*at = listener->next;
		free_listener(listener);
	}
}

bool listeners_have_room(const struct holder *h)
{
	unsigned n = 0;

	for (const struct client *c = h->clients; c; c = client_next(c))
		n += c->prove_until != 0;
	return n < LISTENER_MAX_AUTH;
}

void listener_accept(const struct listener *listener, struct holder *h)
{
	int fd = accept4(listener->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	const int on = 1;
	struct client *c;

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c = client_new(h, fd);
	if (listener->owner_fd == FD_NONE)
		c->prove_until = clock_deadline(LISTENER_AUTH_MS);
}
