/* SPDX-License-Identifier: Apache-2.0 */
/* Identity by the kernel's word: whoever has our uid on the Unix socket is us. */
#include "daemon/auth.h"

#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct auth {
	uid_t uid; /* ours */
};

const char *scope_name(enum scope s)
{
	static const char *const names[] = {
		[SCOPE_ADMIN] = "admin",
		[SCOPE_AGENT] = "agent",
		[SCOPE_REVIEW] = "review",
	};

	return names[s];
}

int auth_open(struct auth **ret, struct error *err)
{
	struct auth *a = xcalloc(1, sizeof(*a));

	(void)err;
	a->uid = geteuid();
	*ret = a;
	return 0;
}

void auth_close(struct auth *a)
{
	free(a);
}

static int denied(struct error *err)
{
	(void)error_set(err, -ATOLL_E_DENIED, "no credentials that are known here");
	error_hint(err, "use the Unix socket as the user who runs the daemon");
	return -ATOLL_E_DENIED;
}

int auth_check(struct auth *a, const struct auth_request *q, struct identity *ret,
               unsigned *ret_retry_s, struct error *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	(void)ret_retry_s;
	if (!q->is_unix || getsockopt(q->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    peer.uid != a->uid)
		return denied(err);
	*ret = (struct identity){ .scope = SCOPE_ADMIN, .by_socket = true };
	(void)snprintf(ret->name, sizeof(ret->name), "uid %u", (unsigned)peer.uid);
	return 0;
}
