/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests per second:
 *
 *   bench-http hello SOCKET                        a bare libmicrohttpd that says hello, until killed
 *   bench-http load SOCKET TARGET CONNECTIONS MS   asks on so many connections that are kept; prints the
 *                                                  rate
 *
 * Both on a Unix socket. The server has a thread per connection, as atolld has. The asker has one thread
 * for all, so that it takes little from what it measures.
 */
#include <microhttpd.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define BACKLOG         256

static struct MHD_Response *hello;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(sun.sun_path))
		die(path);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	return sun;
}

/* At the second call: an answer at the first would end the connection. */
static enum MHD_Result say(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                           const char *version, const char *data, size_t *len, void **context)
{
	static int seen;

	(void)cls, (void)url, (void)method, (void)version, (void)data, (void)len;
	if (!*context) {
		*context = &seen;
		return MHD_YES;
	}
	*context = NULL;
	return MHD_queue_response(c, MHD_HTTP_OK, hello);
}

static void serve(const char *path)
{
	static char text[] = "hello\n";
	struct sockaddr_un sun = address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 || listen(fd, BACKLOG) < 0)
		die(path);
	hello = MHD_create_response_from_buffer(sizeof(text) - 1, text, MHD_RESPMEM_PERSISTENT);
	if (!MHD_start_daemon(
		    MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL,
		    0, NULL, NULL, say, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_END))
		die("MHD_start_daemon");
	(void)puts("ready");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}

/* ---- asking ---- */

struct asker {
	int fd;
	char buf[1 << 20];
	size_t len;
};

static struct asker askers[CONNECTIONS_MAX];

/* The length of the whole answer in BUF, or 0: it is not there yet. */
static size_t whole(const char *buf, size_t len)
{
	const char *end = memmem(buf, len, "\r\n\r\n", 4);
	const char *length = end ? memmem(buf, (size_t)(end - buf), "Content-Length: ", 16) : NULL;
	size_t size;

	if (!length)
		return 0;
	size = (size_t)(end + 4 - buf) + strtoul(length + 16, NULL, 10);
	return size <= len ? size : 0;
}

static void ask(struct asker *a, const char *text)
{
	if (send(a->fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		die("send");
}

/* True when an answer was complete. */
static bool take(struct asker *a)
{
	ssize_t n = recv(a->fd, a->buf + a->len, sizeof(a->buf) - a->len, 0);
	size_t size;

	if (n <= 0)
		die("recv");
	a->len += (size_t)n;
	size = whole(a->buf, a->len);
	if (size == 0)
		return false;
	if (memcmp(a->buf, "HTTP/1.1 200 ", 13) != 0) {
		(void)fprintf(stderr, "%.*s\n", (int)size, a->buf);
		exit(1);
	}
	a->len = 0;
	return true;
}

static double now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double load(const char *path, const char *target, size_t n, double seconds)
{
	struct sockaddr_un sun = address(path);
	struct pollfd fds[CONNECTIONS_MAX];
	unsigned long count = 0;
	char text[512];
	double begun;

	(void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
	for (size_t i = 0; i < n; i++) {
		askers[i].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(askers[i].fd, (struct sockaddr *)&sun, sizeof(sun)) < 0)
			die(path);
		fds[i] = (struct pollfd){ .fd = askers[i].fd, .events = POLLIN };
		ask(&askers[i], text);
	}
	begun = now();
	while (now() - begun < seconds) {
		if (poll(fds, n, -1) < 0)
			die("poll");
		for (size_t i = 0; i < n; i++) {
			if (!fds[i].revents || !take(&askers[i]))
				continue;
			count++;
			ask(&askers[i], text);
		}
	}
	return (double)count / (now() - begun);
}

int main(int argc, char **argv)
{
	size_t n = argc == 6 ? strtoul(argv[4], NULL, 10) : 0;

	if (argc == 3 && strcmp(argv[1], "hello") == 0)
		serve(argv[2]);
	if (n == 0 || n > CONNECTIONS_MAX || strcmp(argv[1], "load") != 0)
		return 2;
	(void)printf("%.0f\n", load(argv[2], argv[3], n, strtod(argv[5], NULL) / 1e3));
	return 0;
}
