/* SPDX-License-Identifier: Apache-2.0 */
/* SCM_RIGHTS, for one descriptor. */
#include "util/pass-fd.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr head; /* for its alignment */
	char bytes[CMSG_SPACE(sizeof(int))];
};

int pass_fd(int socket, const void *data, size_t len, int fd)
{
	union control control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control.bytes,
		              .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(socket, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t take_passed(int socket, void *data, size_t len, int *ret_fd)
{
	union control control = { 0 };
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control.bytes,
		              .msg_controllen = sizeof(control.bytes) };
	const struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int))) {
		close_fd(ret_fd);
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	}
	return n;
}
