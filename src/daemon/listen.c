/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket. */
#include "daemon/listen.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

/* A socket that nobody listens to is what a dead daemon left; one that answers is not ours to take. */
static int clear_path(const struct sockaddr_un *sun)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0)
		return -EADDRINUSE;
	if (errno != ECONNREFUSED)
		return errno == ENOENT ? 0 : -errno;
	return fs_unlink_at(AT_FDCWD, sun->sun_path);
}

static int bind_unix(const char *path, int *ret_fd)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	mode_t mask;
	int r;

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	r = clear_path(&sun);
	if (r < 0)
		return r;
	mask = umask(0177);
	r = bind(fd, (const struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (r == 0 && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

int listen_open(struct daemon *d, struct error *err)
{
	struct listener *l = &d->listeners[0];
	int r = bind_unix(d->options.socket, &l->fd);

	if (r < 0)
		return error_sys(err, r, "listen on", d->options.socket);
	l->is_unix = true;
	l->d = d;
	l->unlink_path = xstrdup(d->options.socket);
	(void)snprintf(l->name, sizeof(l->name), "unix:%s", d->options.socket);
	d->n_listeners = 1;
	return 0;
}

void listen_close(struct daemon *d)
{
	for (size_t i = 0; i < d->n_listeners; i++) {
		struct listener *l = &d->listeners[i];

		close_fd(&l->fd);
		if (l->unlink_path)
			(void)fs_unlink_at(AT_FDCWD, l->unlink_path);
		free(l->unlink_path);
	}
	d->n_listeners = 0;
}
