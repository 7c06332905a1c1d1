/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP server for the tests of the token cache. */
#include "lib/token-server.h"
#include "lib/atest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct connection {
	struct server *s;
	int fd;
};

static void nap(int ms)
{
	(void)poll(NULL, 0, ms);
}

static void put(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

/* The head of a request; the client sends no body. */
static bool read_head(int fd, char *buf, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		ssize_t n = recv(fd, buf + len, size - len - 1, 0);

		if (n <= 0)
			return false;
		len += (size_t)n;
		buf[len] = '\0';
		if (strstr(buf, "\r\n\r\n"))
			return true;
	}
	return false;
}

static void answer(struct server *s, int fd, int status, const char *body, size_t claim)
{
	const char *after = atomic_load(&s->retry_after);
	char head[512];
	int n = snprintf(
		head, sizeof(head),
		"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"%s%s%sConnection: close\r\n\r\n",
		status, claim, after ? "Retry-After: " : "", after ? after : "",
		after ? "\r\n" : "");

	put(fd, head, (size_t)n);
	put(fd, body, strlen(body));
}

static void answer_token(struct server *s, int fd, int n, size_t more)
{
	const char *fields = atomic_load(&s->fields);
	char body[1024];

	(void)snprintf(body, sizeof(body),
	               "{\"token\": \"tok-%d\", \"expires_in\": %d, \"n\": %d%s}", n,
	               atomic_load(&s->expires_in), n, fields ? fields : "");
	answer(s, fd, 200, body, strlen(body) + more);
}

static void misbehave(struct server *s, int fd, int n)
{
	const char *body = atomic_load(&s->body);

	body = body ? body : "{\"title\": \"not now\"}";
	switch ((enum server_mode)atomic_load(&s->mode)) {
	case SERVER_TOKENS:
		answer_token(s, fd, n, 0);
		break;
	case SERVER_STATUS:
		answer(s, fd, atomic_load(&s->status), body, strlen(body));
		break;
	case SERVER_BODY:
		answer(s, fd, 200, body, strlen(body));
		break;
	case SERVER_HALF:
		answer_token(s, fd, n, 100);
		break;
	case SERVER_CLOSE:
		break;
	case SERVER_HANG:
		for (struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };
		     !atomic_load(&s->ending) && poll(&p, 1, 20) == 0;)
			;
		break;
	}
}

static void *serve_one(void *arg)
{
	struct connection *c = arg;
	struct server *s = c->s;
	char head[16384];

	if (read_head(c->fd, head, sizeof(head)) &&
	    strncmp(head, "POST /v1/sandboxes/", strlen("POST /v1/sandboxes/")) == 0) {
		int n = atomic_fetch_add(&s->requests, 1) + 1;

		if (!strstr(head, "\r\nAuthorization: Bearer " SERVER_KEY "\r\n"))
			atomic_fetch_add(&s->unauthorized, 1);
		atomic_fetch_add(&s->waiting, 1);
		while (atomic_load(&s->gated) && !atomic_load(&s->ending))
			nap(1);
		atomic_fetch_sub(&s->waiting, 1);
		nap(atomic_load(&s->delay_ms));
		misbehave(s, c->fd, n);
	}
	close(c->fd);
	free(c);
	atomic_fetch_sub(&s->open, 1);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct server *s = arg;

	for (;;) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		struct connection *c;
		pthread_t thread;

		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0)
			return NULL;
		c = malloc(sizeof(*c));
		*c = (struct connection){ s, fd };
		atomic_fetch_add(&s->open, 1);
		if (pthread_create(&thread, NULL, serve_one, c) != 0)
			abort();
		pthread_detach(thread);
	}
}

static void begin(struct server *s, int fd)
{
	s->fd = fd;
	expect_eq(listen(s->fd, 4096), 0);
	expect_eq(pthread_create(&s->thread, NULL, accept_all, s), 0);
}

static void init(struct server *s)
{
	memset(s, 0, sizeof(*s));
	atomic_store(&s->expires_in, 3600);
	atomic_store(&s->status, 503);
}

void server_start(struct server *s)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	init(s);
	expect(fd >= 0);
	expect_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	expect_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	s->port = ntohs(at.sin_port);
	(void)snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%d", s->port);
	begin(s, fd);
}

void server_start_unix(struct server *s, const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	init(s);
	expect(fd >= 0 && strlen(path) < sizeof(at.sun_path));
	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	expect_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	(void)snprintf(s->url, sizeof(s->url), "http://atoll.example");
	begin(s, fd);
}

void server_stop(struct server *s)
{
	atomic_store(&s->ending, true);
	(void)shutdown(s->fd, SHUT_RDWR);
	(void)pthread_join(s->thread, NULL);
	close(s->fd);
	for (int i = 0; i < 20000 && atomic_load(&s->open) > 0; i++)
		nap(1);
	expect_eq(atomic_load(&s->open), 0);
}

void server_wait_gate(struct server *s, int n)
{
	for (int i = 0; i < 60000 && atomic_load(&s->waiting) < n; i++)
		nap(1);
	expect(atomic_load(&s->waiting) >= n);
}
