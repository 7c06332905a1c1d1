/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-postgres hold: the process that keeps a sandbox's transaction open. It lives in a session
 * of its own and ends when the manager says so, when the transaction is lost, or when its
 * directory is.
 */
#include "postgres/hold.h"

#include "fs/atomic.h"
#include "postgres/client.h"
#include "postgres/manage.h"
#include "postgres/protocol.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MANAGE_LIMIT_S     5   /* for a line to arrive */
#define MANAGE_PATIENCE_MS 500 /* with a client that is about to end its transaction */

/* Places in what is polled; clients follow, then listeners and their owners. */
enum { AT_CLIENTS, AT_MANAGE, AT_WATCH, AT_SERVER, AT_FIRST };

struct loop {
	struct holder h;
	int dir_fd, clients_fd, manage_fd;
	int watch_fd; /* of changes to the directory */
	struct pollfd *fds;
	size_t n, cap;
	size_t listeners_at; /* in FDS */
	int manager_fd;      /* who asks, waiting for a moment when nothing is under way */
	int64_t manager_until;
};

/* By way of the descriptor: an address has no room for a long path. */
static int listen_at(const struct loop *l, const char *name, struct error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", l->dir_fd,
	               name);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    fchmodat(l->dir_fd, name, 0600, 0) < 0 || listen(fd, SOMAXCONN) < 0)
		return error_sys(err, -errno, "listen at", name);
	return take_fd(&fd);
}

static int watch(struct loop *l, const char *dir, struct error *err)
{
	char path[64];

	l->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", l->dir_fd);
	if (l->watch_fd < 0 ||
	    inotify_add_watch(l->watch_fd, path,
	                      IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVE_SELF) < 0)
		return error_sys(err, -errno, "watch", dir);
	return 0;
}

static int open_places(struct loop *l, const char *dir, struct error *err)
{
	int r;

	l->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (l->dir_fd < 0)
		return error_sys(err, -errno, "open", dir);
	r = l->clients_fd = listen_at(l, PROTOCOL_CLIENTS, err);
	if (r >= 0)
		r = l->manage_fd = listen_at(l, PROTOCOL_MANAGE, err);
	return r < 0 ? r : watch(l, dir, err);
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
	bool room = listeners_have_room(&l->h);
	short events = 0;

	l->n = 0;
	add_fd(l, l->clients_fd, POLLIN);
	add_fd(l, l->manage_fd, l->manager_fd < 0 ? POLLIN : 0);
	add_fd(l, l->watch_fd, POLLIN);
	if (!o || wire_buf_left(&o->out) < WIRE_HIGH)
		events |= POLLIN;
	if (wire_buf_left(&l->h.out) > 0)
		events |= POLLOUT;
	add_fd(l, backend_fd(l->h.b), events);
	for (const struct client *c = l->h.clients; c; c = client_next(c))
		add_fd(l, c->left ? FD_NONE : c->fd, client_events(c));
	l->listeners_at = l->n;
	for (const struct listener *d = l->h.listeners.first; d; d = d->next) {
		add_fd(l, d->listen_fd, d->owner_fd != FD_NONE || room ? POLLIN : 0);
		add_fd(l, d->owner_fd, POLLIN | POLLRDHUP);
	}
}

static int next_deadline(const struct loop *l)
{
	int64_t first = l->manager_fd >= 0 ? l->manager_until : CLOCK_NEVER;

	for (const struct client *c = l->h.clients; c; c = client_next(c)) {
		if (c->wait_until && c->wait_until < first)
			first = c->wait_until;
		if (c->prove_until && c->prove_until < first)
			first = c->prove_until;
	}
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
	size_t i = AT_FIRST;
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

static void serve_listeners(struct loop *l)
{
	size_t i = l->listeners_at;
	bool ended = false;

	for (const struct listener *d = l->h.listeners.first; d && i + 1 < l->n;
	     d = d->next, i += 2) {
		if (l->fds[i].revents)
			listener_accept(d, &l->h);
		ended |= l->fds[i + 1].revents != 0;
	}
	if (ended)
		listeners_close_ended(&l->h.listeners);
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
	if (manage_serve(&l->h, l->manager_fd))
		l->manager_fd = FD_NONE;
	close_fd(&l->manager_fd);
}

static void look_at_places(struct loop *l)
{
	char events[1024];

	while (read(l->watch_fd, events, sizeof(events)) > 0)
		;
	if (faccessat(l->dir_fd, PROTOCOL_MANAGE, F_OK, 0) < 0)
		holder_lose(&l->h, "the sandbox was removed");
}

/* What waited for the server to take more goes on at once: when all was taken, and the client has sent
 * all there is, nothing else would wake us. */
static bool resume(struct loop *l)
{
	bool any = false;

	for (struct client *c = l->h.clients; c; c = client_next(c)) {
		if (!c->throttled || l->h.gone || wire_buf_left(&l->h.out) >= WIRE_HIGH)
			continue;
		c->throttled = false;
		client_pump(c);
		any = true;
	}
	return any;
}

static void round_once(struct loop *l)
{
	gather(l);
	if (poll(l->fds, l->n, next_deadline(l)) < 0)
		return;
	if (l->fds[AT_SERVER].revents & (POLLIN | POLLHUP | POLLERR))
		holder_read(&l->h);
	serve_clients(l);
	do
		holder_write(&l->h);
	while (resume(l));
	client_cancel(&l->h);
	if (l->fds[AT_CLIENTS].revents)
		accept_client(l);
	serve_listeners(l);
	if (l->fds[AT_MANAGE].revents)
		accept_manager(l);
	if (l->fds[AT_WATCH].revents)
		look_at_places(l);
	serve_manager(l);
}

/* Nobody is to wait for us, nor a directory to stay busy. */
static void let_go(void)
{
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd <= 2 && null_fd >= 0; fd++)
		(void)dup2(null_fd, fd);
	(void)chdir("/");
}

static void leave_word(const struct loop *l)
{
	cleanup_close int fd = FD_NONE;

	if (fs_create_at(l->dir_fd, PROTOCOL_GONE, 0600, &fd) == 0)
		(void)fs_write_all(fd, l->h.gone, strlen(l->h.gone));
}

int hold(const struct hold_options *opt, struct error *err)
{
	struct loop l = { .dir_fd = FD_NONE,
		          .clients_fd = FD_NONE,
		          .manage_fd = FD_NONE,
		          .watch_fd = FD_NONE,
		          .manager_fd = FD_NONE };
	int r = holder_open(&l.h, opt->url, err);

	if (r == 0)
		r = open_places(&l, opt->dir, err);
	if (r == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		l.h.wait_ms = opt->wait_ms > 0 ? opt->wait_ms : HOLDER_WAIT_MS;
		opt->ready(opt->user, &l.h);
		let_go();
		while (!l.h.gone && !l.h.finished)
			round_once(&l);
		if (l.h.gone) {
			leave_word(&l);
			r = -ATOLL_E_STATE;
		}
	}
	for (struct client *c = l.h.clients; c; c = client_next(c))
		client_write(c);
	holder_done(&l.h);
	close_fd(&l.clients_fd);
	close_fd(&l.manage_fd);
	close_fd(&l.watch_fd);
	close_fd(&l.manager_fd);
	close_fd(&l.dir_fd);
	free(l.fds);
	return r < 0 ? r : 0;
}
