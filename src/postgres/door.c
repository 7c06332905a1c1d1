/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets of the holder. */
#include "postgres/door.h"

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

static void free_door(struct door *door)
{
	(void)close(door->listen_fd);
	if (door->life_fd != FD_NONE)
		(void)close(door->life_fd);
	free(door);
}

void doors_done(struct doors *d)
{
	while (d->first) {
		struct door *door = d->first;

		d->first = door->next;
		free_door(door);
	}
	scram_free(d->password);
	*d = (struct doors){ 0 };
}

static void add_door(struct doors *d, int listen_fd, int life_fd)
{
	struct door *door = xcalloc(1, sizeof(*door));

	*door = (struct door){ .next = d->first, .listen_fd = listen_fd, .life_fd = life_fd };
	d->first = door;
}

int doors_open(struct doors *d)
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
	add_door(d, take_fd(&fd), FD_NONE);
	return 0;
}

/* Whatever came is nothing but a TCP socket that listens. */
static bool is_listener(int fd)
{
	int domain = 0, type = 0, listening = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_INET &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

int doors_adopt(struct doors *d, int listen_fd, int life_fd)
{
	if (!is_listener(listen_fd) || fcntl(listen_fd, F_SETFL, O_NONBLOCK) < 0) {
		(void)close(listen_fd);
		(void)close(life_fd);
		return -EINVAL;
	}
	add_door(d, listen_fd, life_fd);
	return 0;
}

/* Pid 1 says nothing more, so whatever can be read is its end. */
static bool has_ended(const struct door *door)
{
	struct pollfd p = { .fd = door->life_fd, .events = POLLIN | POLLRDHUP };

	return door->life_fd != FD_NONE && poll(&p, 1, 0) > 0;
}

void doors_close_ended(struct doors *d)
{
	for (struct door **at = &d->first; *at;) {
		struct door *door = *at;

		if (!has_ended(door)) {
			at = &door->next;
			continue;
		}
		*at = door->next;
		free_door(door);
	}
}

bool doors_have_room(const struct holder *h)
{
	unsigned n = 0;

	for (const struct client *c = h->clients; c; c = client_next(c))
		n += c->prove_until != 0;
	return n < DOOR_MAX_UNPROVEN;
}

void door_accept(const struct door *door, struct holder *h)
{
	int fd = accept4(door->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	const int on = 1;
	struct client *c;

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c = client_new(h, fd);
	if (door->life_fd == FD_NONE)
		c->prove_until = clock_deadline(DOOR_PATIENCE_MS);
}
