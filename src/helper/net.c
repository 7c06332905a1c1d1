/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace of its own has one interface, the loopback, and that is down. Abstract sockets
 * belong to a namespace, too: with a network of its own a command reaches none of the host's. Sockets
 * that are files are reached wherever the file is seen.
 */
#include "helper/net.h"

#include "util/cleanup.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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
	r = loopback ? bring_up("lo") : 0;
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "bring the loopback up") : 0;
}

int net_refuse(const struct request *q, struct failure *f)
{
	if (!request_get(q, REQUEST_NET, 0))
		return 0;
	return failure_why(f, REPLY_NAMESPACE, -ENOSYS, "keep the command from the network",
	                   "it runs without namespaces here");
}
