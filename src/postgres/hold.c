/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-postgres hold: the process that keeps a sandbox's transaction open. It lives in a session
 * of its own and ends when the manager says so, when the transaction is lost, or when its
 * directory is.
 */
#include "postgres/hold.h"

#include "postgres/client.h"
#include "postgres/manage.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MANAGE_LIMIT_S     5   /* for a line to arrive */
#define MANAGE_PATIENCE_MS 500 /* with a client that is about to end its transaction */

struct loop {
	struct holder h;
	int clients_fd, manage_fd;
	struct pollfd *fds; /* clients_fd, manage_fd, the server, then clients */
	size_t n, cap;
	int manager_fd; /* who asks, waiting for a moment when nothing is under way */
	int64_t manager_until;
};

static int listen_at(const char *dir, const char *name, mode_t mode, struct error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir, name);

	if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
		return error_sys(err, -ENAMETOOLONG, "make a socket in", dir);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    chmod(addr.sun_path, mode) < 0 || listen(fd, SOMAXCONN) < 0)
		return error_sys(err, -errno, "listen at", addr.sun_path);
	return take_fd(&fd);
}

/* ---- one round ---- */

static void add_fd(struct loop *l, int fd, short events)
{
	if (grow((void **)&l->fds, &l->cap, l->n + 1, sizeof(*l->fds)) == 0)
		l->fds[l->n++] = (struct pollfd){ .fd = fd, .events = events };
}

static short client_events(const struct client *c)
{
	short events = POLLRDHUP;

	if (wire_buf_left(&c->in) < WIRE_HIGH || c->holds == 0)
		events |= POLLIN;
	if (wire_buf_left(&c->out) > 0)
		events |= POLLOUT;
	return events;
}

static void gather(struct loop *l)
{
	const struct client *o = l->h.owner;
	short events = 0;

	l->n = 0;
	add_fd(l, l->clients_fd, POLLIN);
	add_fd(l, l->manage_fd, l->manager_fd < 0 ? POLLIN : 0);
	if (!o || wire_buf_left(&o->out) < WIRE_HIGH)
		events |= POLLIN;
	if (wire_buf_left(&l->h.out) > 0)
		events |= POLLOUT;
	add_fd(l, backend_fd(l->h.b), events);
	for (const struct client *c = l->h.clients; c; c = client_next(c))
		add_fd(l, c->fd, client_events(c));
}

static int next_deadline(const struct loop *l)
{
	int64_t first = l->manager_fd >= 0 ? l->manager_until : CLOCK_NEVER;

	for (const struct client *c = l->h.clients; c; c = client_next(c))
		if (c->wait_until && c->wait_until < first)
			first = c->wait_until;
	return clock_left_ms(first);
}

/* Those who wait have it in the order they came. */
static void pump_all(struct loop *l)
{
	struct client *longest = NULL;

	for (struct client *c = l->h.clients; c; c = client_next(c))
		if (!c->wait_until)
			client_pump(c);
	while (!l->h.owner) {
		for (struct client *c = l->h.clients; c; c = client_next(c))
			if (c->wait_until && (!longest || c->wait_until < longest->wait_until))
				longest = c;
		if (!longest)
			return;
		longest->wait_until = 0;
		client_pump(longest);
		longest = NULL;
	}
}

static void serve_clients(struct loop *l)
{
	struct client *next;
	size_t i = 3;
	int64_t now = clock_boot_ns();

	for (struct client *c = l->h.clients; c && i < l->n; c = client_next(c), i++)
		if (l->fds[i].revents)
			client_read(c);
	pump_all(l);
	for (struct client *c = l->h.clients; c; c = client_next(c))
		client_expire(c, now);
	for (struct client *c = l->h.clients; c; c = next) {
		next = client_next(c);
		client_write(c);
		(void)client_reap(c);
	}
	pump_all(l);
}

static void accept_client(struct loop *l)
{
	int fd = accept4(l->clients_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		(void)client_new(&l->h, fd);
}

static void accept_manager(struct loop *l)
{
	const struct timeval limit = { .tv_sec = MANAGE_LIMIT_S };

	l->manager_fd = accept4(l->manage_fd, NULL, NULL, SOCK_CLOEXEC);
	l->manager_until = clock_deadline(MANAGE_PATIENCE_MS);
	if (l->manager_fd >= 0)
		(void)setsockopt(l->manager_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

static void serve_manager(struct loop *l)
{
	if (l->manager_fd < 0 || (!holder_idle(&l->h) && clock_boot_ns() < l->manager_until))
		return;
	manage_serve(&l->h, l->manager_fd);
	close_fd(&l->manager_fd);
}

static void round_once(struct loop *l)
{
	gather(l);
	if (poll(l->fds, l->n, next_deadline(l)) < 0)
		return;
	if (l->fds[2].revents & (POLLIN | POLLHUP | POLLERR))
		holder_read(&l->h);
	serve_clients(l);
	holder_write(&l->h);
	client_cancel(&l->h);
	if (l->fds[0].revents)
		accept_client(l);
	if (l->fds[1].revents)
		accept_manager(l);
	serve_manager(l);
}

int hold(const struct hold_options *opt, struct error *err)
{
	struct loop l = { .clients_fd = FD_NONE, .manage_fd = FD_NONE, .manager_fd = FD_NONE };
	int r = holder_open(&l.h, opt->url, opt->unguarded, err);

	if (r == 0)
		r = l.clients_fd = listen_at(opt->dir, HOLD_CLIENTS, 0600, err);
	if (r >= 0)
		r = l.manage_fd = listen_at(opt->dir, HOLD_MANAGE, 0600, err);
	if (r >= 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		l.h.wait_ms = opt->wait_ms > 0 ? opt->wait_ms : HOLDER_WAIT_MS;
		opt->ready(opt->user, &l.h);
		while (!l.h.gone && !l.h.finished)
			round_once(&l);
		if (l.h.gone)
			r = error_set(err, -ATOLL_E_STATE, "its transaction is gone: %s", l.h.gone);
	}
	for (struct client *c = l.h.clients; c; c = client_next(c))
		client_write(c);
	holder_done(&l.h);
	close_fd(&l.clients_fd);
	close_fd(&l.manage_fd);
	close_fd(&l.manager_fd);
	free(l.fds);
	return r < 0 ? r : 0;
}
