/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace of its own has one interface, the loopback, and that is down. Abstract sockets
 * belong to a namespace, too: with a network of its own a command reaches none of the host's. Sockets
 * that are files are reached wherever the file is seen.
 */
#include "helper/net.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/pass-fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int bring_up(const char *name)
{
	cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { 0 };

	if (fd < 0)
		return -errno;
	memcpy(ifr.ifr_name, name, strnlen(name, sizeof(ifr.ifr_name) - 1));
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
		return -errno;
	ifr.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

/* A socket that listens at PORT of the loopback. */
static int listen_at(const char *port, int *ret_fd)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
		                    .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
		                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	*ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return *ret_fd < 0 || bind(*ret_fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	                       listen(*ret_fd, SOMAXCONN) < 0
	               ? -errno
	               : 0;
}

/* The process at the Unix socket PATH; by way of the directory: an address has no room for a long path. */
static int dial(const char *path, int *ret_fd)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = xstrndup(path, slash ? (size_t)(slash - path) : 0);
	cleanup_close int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir_fd < 0)
		return -errno;
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d%s", dir_fd, slash);
	*ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return *ret_fd < 0 || connect(*ret_fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0
	               ? -errno
	               : 0;
}

/* "PORT WORD PATH". Our end of the connection stays open until we end: with it ends what the other process does at
 * the listener. */
static int give_listener(const char *wish)
{
	const char *word = strchr(wish, ' ');
	const char *path = word ? strchr(word + 1, ' ') : NULL;
	cleanup_free char *line =
		path ? xasprintf("%.*s\n", (int)(path - word - 1), word + 1) : NULL;
	cleanup_close int listener = FD_NONE, to = FD_NONE;
	int r = path ? listen_at(wish, &listener) : -EPROTO;

	if (r == 0)
		r = dial(path + 1, &to);
	if (r == 0)
		r = pass_fd(to, line, strlen(line), listener);
	if (r == 0)
		(void)take_fd(&to);
	return r;
}

static int give_listeners(const struct request *q)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < request_count(q, REQUEST_LISTEN); i++)
		r = give_listener(request_get(q, REQUEST_LISTEN, i));
	return r;
}

int net_enter(const struct request *q, struct failure *f)
{
	const char *net = request_get(q, REQUEST_NET, 0);
	bool loopback = net && strcmp(net, REQUEST_NET_LOOPBACK) == 0;
	int r;

	if (!net)
		return 0;
	if (!loopback && strcmp(net, REQUEST_NET_NONE) != 0)
		return failure_set(f, REPLY_REQUEST, -EPROTO, "give the network '%s'", net);
	if (unshare(CLONE_NEWNET) < 0)
		return failure_set(f, REPLY_NAMESPACE, -errno, "make a network namespace");
	/* Only a loopback that is up can be connected to. */
	r = loopback || request_count(q, REQUEST_LISTEN) > 0 ? bring_up("lo") : 0;
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "bring the loopback up");
	r = give_listeners(q);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "listen for the plan's database") : 0;
}

int net_refuse(const struct request *q, struct failure *f)
{
	if (!request_get(q, REQUEST_NET, 0))
		return 0;
	return failure_why(f, REPLY_NAMESPACE, -ENOSYS, "keep the command from the network",
	                   "it runs without namespaces here");
}
