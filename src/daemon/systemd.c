/* SPDX-License-Identifier: Apache-2.0 */
/* Two environment variables and one datagram. */
#include "daemon/systemd.h"

#include "util/cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 64

static long number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long n = text ? strtol(text, &end, 10) : -1;

	return text && *text && !*end ? n : -1;
}

int systemd_listen_fds(void)
{
	long n = number("LISTEN_FDS");
	bool ours = number("LISTEN_PID") == (long)getpid();

	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	if (!ours || n <= 0 || n > FDS_MAX)
		return 0;
	for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + n; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	return (int)n;
}

void systemd_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	cleanup_close int fd = FD_NONE;
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(sun.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(sun.sun_path, path, len);
	if (*path == '@')
		sun.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&sun,
		             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}
