/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy LISTEN SERVER: copies bytes between clients of the Unix socket LISTEN and SERVER, one thread, and
 * knows nothing of what they mean. What a program between a client and a server costs at the least.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_PAIRS 64
#define CHUNK     (128u << 10)

static struct pollfd fds[1 + 2 * MAX_PAIRS]; /* the listener; then client and server of each pair */
static nfds_t n_fds;

static int open_socket(const char *path, bool listening)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(at.sun_path))
		return -1;
	(void)strcpy(at.sun_path, path);
	if (listening) {
		(void)unlink(path);
		return bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 16) == 0
		               ? fd
		               : -1;
	}
	return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

static void accept_pair(const char *server)
{
	int client = accept4(fds[0].fd, NULL, NULL, SOCK_CLOEXEC);
	int other = client < 0 || n_fds + 2 > sizeof(fds) / sizeof(fds[0])
	                    ? -1
	                    : open_socket(server, false);

	if (other < 0) {
		if (client >= 0)
			(void)close(client);
		return;
	}
	fds[n_fds++] = (struct pollfd){ .fd = client, .events = POLLIN };
	fds[n_fds++] = (struct pollfd){ .fd = other, .events = POLLIN };
}

/* False when one side is gone. */
static bool copy(int from, int to)
{
	static char buf[CHUNK];
	ssize_t n = read(from, buf, sizeof(buf));

	for (ssize_t at = 0, w; n > 0 && at < n; at += w) {
		w = write(to, buf + at, (size_t)(n - at));
		if (w < 0)
			return false;
	}
	return n > 0;
}

int main(int argc, char **argv)
{
	if (argc != 3 || (fds[0].fd = open_socket(argv[1], true)) < 0) {
		(void)fprintf(stderr, "usage: proxy LISTEN SERVER\n");
		return 1;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	fds[0].events = POLLIN;
	for (n_fds = 1; poll(fds, n_fds, -1) >= 0 || errno == EINTR;) {
		if (fds[0].revents)
			accept_pair(argv[2]);
		for (nfds_t i = 1; i < n_fds; i++) {
			nfds_t pair = i - (i - 1) % 2;

			if (!fds[i].revents || copy(fds[i].fd, fds[i % 2 ? i + 1 : i - 1].fd))
				continue;
			(void)close(fds[pair].fd);
			(void)close(fds[pair + 1].fd);
			n_fds -= 2;
			fds[pair] = fds[n_fds];
			fds[pair + 1] = fds[n_fds + 1];
			break; /* the others are asked again */
		}
	}
	return 0;
}
