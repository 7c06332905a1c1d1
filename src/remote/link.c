/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that is upgraded: libcurl connects, and TLS is its; the rest is bytes. */
#include "remote/http-impl.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX (16u << 10)
#define BODY_MAX (64u << 10)

struct remote_link {
	struct transfer x;
	char *shown;
	int fd;
	/* What came, and was not asked for yet. */
	char *spare;
	size_t spare_begin, spare_end;
};

void remote_link_close(struct remote_link *l)
{
	if (!l)
		return;
	transfer_done(&l->x);
	free(l->spare);
	free(l->shown);
	free(l);
}

void remote_link_closep(struct remote_link **l)
{
	remote_link_close(*l);
}

int remote_link_fd(const struct remote_link *l)
{
	return l->fd;
}

/* Bytes, or why there are none. libcurl does not say what broke; that it did is enough. */
static int64_t count_of(CURLcode c, size_t n)
{
	if (c == CURLE_OK)
		return (int64_t)n;
	return c == CURLE_SEND_ERROR || c == CURLE_RECV_ERROR ? -ECONNRESET : curl_code(c);
}

int64_t remote_link_send(struct remote_link *l, const void *data, size_t len)
{
	size_t n = 0;
	CURLcode c = len ? l->x.lib->send(l->x.curl, data, len, &n) : CURLE_OK;

	return count_of(c, n);
}

static int64_t receive(struct remote_link *l, void *data, size_t len)
{
	size_t n = 0;
	CURLcode c = l->x.lib->recv(l->x.curl, data, len, &n);

	return count_of(c, n);
}

int64_t remote_link_recv(struct remote_link *l, void *data, size_t len)
{
	size_t n = l->spare_end - l->spare_begin;

	if (n == 0)
		return receive(l, data, len);
	if (n > len)
		n = len;
	memcpy(data, l->spare + l->spare_begin, n);
	l->spare_begin += n;
	return (int64_t)n;
}

int remote_link_lost(const struct remote_link *l, int64_t r, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNREACHABLE, "the daemon at '%s' went away%s%s", l->shown,
	                r < 0 ? ": " : "", r < 0 ? strerrordesc_np((int)-r) : "");
	error_cause(err, "receive", NULL, r < 0 ? (int)-r : 0, NULL);
	error_hint(err, "do it again when it is there: it goes on from what was finished");
	return -ATOLL_E_UNREACHABLE;
}

/* ---- asking for it ---- */

static int late(const struct remote_link *l, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNREACHABLE,
	                "cannot reach the daemon at '%s': it does not answer in time", l->shown);
	error_hint(err, "look whether the machine and the way to it work, then do it again");
	return -ATOLL_E_UNREACHABLE;
}

static int wait_for(struct remote_link *l, short events, int64_t deadline, struct error *err)
{
	struct pollfd p = { .fd = l->fd, .events = events };
	int r = poll(&p, 1, clock_left_ms(deadline));

	if (r < 0 && errno != EINTR)
		return error_sys(err, -errno, "poll", l->shown);
	return r == 0 ? late(l, err) : 0;
}

static int send_all(struct remote_link *l, const char *data, size_t len, int64_t deadline,
                    struct error *err)
{
	while (len > 0) {
		int64_t n = remote_link_send(l, data, len);
		int r;

		if (n < 0 && n != -EAGAIN)
			return remote_link_lost(l, n, err);
		if (n == -EAGAIN && (r = wait_for(l, POLLOUT, deadline, err)) < 0)
			return r;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int ask(struct remote_link *l, const struct http_target *t, const struct remote_upgrade *u,
               struct error *err)
{
	char *bearer = u->bearer ? http_bearer_line(u->bearer) : NULL;
	char *head = xasprintf("POST %s HTTP/1.1\r\n"
	                       "Host: %s\r\n"
	                       "Connection: Upgrade\r\n"
	                       "Upgrade: %s\r\n"
	                       "Content-Length: 0\r\n"
	                       "%s%s\r\n",
	                       u->path, strstr(t->base, "://") + 3, u->protocol,
	                       bearer ? bearer : "", bearer ? "\r\n" : "");
	int r = send_all(l, head, strlen(head), u->deadline, err);

	http_wipe_data(bearer, bearer ? strlen(bearer) : 0);
	http_wipe_data(head, strlen(head));
	return r;
}

/* ---- what is answered ---- */

/* More of it into SB, up to MAX in all. 1: there is more; 0: the end. */
static int more(struct remote_link *l, struct strbuf *sb, size_t max, int64_t deadline,
                struct error *err)
{
	char buf[4096];
	int64_t n;
	int r;

	for (;;) {
		n = receive(l, buf, sizeof(buf));
		if (n != -EAGAIN)
			break;
		r = wait_for(l, POLLIN, deadline, err);
		if (r < 0)
			return r;
	}
	if (n < 0)
		return remote_link_lost(l, n, err);
	if (sb->len + (size_t)n > max)
		return error_set(err, -ATOLL_E_TOO_BIG, "the daemon at '%s' answered too much",
		                 l->shown);
	strbuf_add(sb, buf, (size_t)n);
	return n > 0;
}

/* The value of a field of the head, which ends with an empty line; "" when it has none. */
static void field(const char *head, const char *name, char *out, size_t size)
{
	size_t n = strlen(name);

	out[0] = '\0';
	for (const char *at = strstr(head, "\r\n"); at && at[2] != '\r';
	     at = strstr(at + 2, "\r\n")) {
		const char *line = at + 2;

		if (strncasecmp(line, name, n) != 0 || line[n] != ':')
			continue;
		line += n + 1;
		line += strspn(line, " \t");
		n = strcspn(line, "\r\n");
		if (n < size) {
			memcpy(out, line, n);
			out[n] = '\0';
		}
		return;
	}
}

static int refused(struct remote_link *l, const struct http_target *t, int status,
                   struct strbuf *sb, size_t head_len, int64_t deadline, struct error *err)
{
	char value[32];
	unsigned long length;
	int r = 1;

	field(sb->buf, "Content-Length", value, sizeof(value));
	length = value[0] ? strtoul(value, NULL, 10) : BODY_MAX;
	while (r > 0 && sb->len < head_len + length && sb->len < head_len + BODY_MAX)
		r = more(l, sb, head_len + BODY_MAX, deadline, NULL);
	return http_problem(t, status, sb->buf + head_len, sb->len - head_len, err);
}

static int read_answer(struct remote_link *l, const struct http_target *t,
                       const struct remote_upgrade *u, int *ret_status, struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	char protocol[64];
	size_t head_len;
	char *end;
	int r;

	while (!(end = strstr(strbuf_str(&sb), "\r\n\r\n"))) {
		r = more(l, &sb, HEAD_MAX, u->deadline, err);
		if (r <= 0)
			return r < 0 ? r : remote_link_lost(l, 0, err);
	}
	head_len = (size_t)(end - sb.buf) + 4;
	if (sscanf(sb.buf, "HTTP/1.1 %3d", ret_status) != 1)
		return http_problem(t, 0, NULL, 0, err);
	if (*ret_status != 101)
		return refused(l, t, *ret_status, &sb, head_len, u->deadline, err);
	field(sb.buf, "Upgrade", protocol, sizeof(protocol));
	if (strcasecmp(protocol, u->protocol) != 0)
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "the daemon at '%s' speaks another protocol than %s", l->shown,
		                 u->protocol);
	l->spare_begin = head_len;
	l->spare_end = sb.len;
	l->spare = strbuf_take(&sb);
	return 0;
}

int remote_upgrade(const struct http_target *t, const struct remote_upgrade *u,
                   struct remote_link **ret_link, int *ret_status, struct error *err)
{
	cleanup_remote_link struct remote_link *l = xcalloc(1, sizeof(*l));
	curl_socket_t fd = CURL_SOCKET_BAD;
	int status = 0;
	CURLcode c;
	int r;

	if (ret_status)
		*ret_status = 0;
	l->shown = xstrdup(t->shown);
	r = transfer_init(&l->x, t, u->path, err);
	if (r < 0)
		return r;
	(void)l->x.lib->setopt(l->x.curl, CURLOPT_CONNECT_ONLY, 1L);
	c = l->x.lib->perform(l->x.curl);
	if (c == CURLE_OK)
		c = l->x.lib->getinfo(l->x.curl, CURLINFO_ACTIVESOCKET, &fd);
	if (c != CURLE_OK)
		return transfer_failed(&l->x, t, c, err);
	l->fd = fd;
	r = ask(l, t, u, err);
	if (r == 0)
		r = read_answer(l, t, u, &status, err);
	if (ret_status)
		*ret_status = status;
	if (r == 0)
		*ret_link = take_ptr(l);
	return r;
}
