/* SPDX-License-Identifier: Apache-2.0 */
/* Finding atoll-helper, starting it with its descriptors, and reading what it answers. */
#include "exec/exec-impl.h"

#include "exec/exec.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef ATOLL_HELPER_PATH
#define ATOLL_HELPER_PATH "/usr/libexec/atoll/atoll-helper"
#endif

#define FDS_MAX 4

struct start {
	const char *const *argv;
	const struct channels *ch;
	int lock_fd;
};

void channels_done(struct channels *ch)
{
	close_fd(&ch->request);
	close_fd(&ch->reply[0]);
	close_fd(&ch->reply[1]);
	close_fd(&ch->lifeline[0]);
	close_fd(&ch->lifeline[1]);
}

int channels_open(struct channels *ch)
{
	ch->request = memfd_create("atoll-request", MFD_CLOEXEC);
	if (ch->request < 0)
		return -errno;
	if (pipe2(ch->reply, O_CLOEXEC) < 0 || pipe2(ch->lifeline, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static int spawn_at(struct child *c, const char *file, const struct start *s)
{
	struct child_fd fds[FDS_MAX] = {
		{ s->ch->request, REQUEST_FD },
		{ s->ch->reply[1], REPLY_FD },
		{ s->ch->lifeline[0], LIFELINE_FD },
		{ s->lock_fd, LOCK_FD },
	};
	struct child_options opt = {
		.file = file,
		.argv = s->argv,
		.fds = fds,
		.n_fds = s->lock_fd == FD_NONE ? FDS_MAX - 1 : FDS_MAX,
	};

	return child_spawn(c, &opt);
}

char *exec_helper_path(void)
{
	static const char *const beside[] = { "atoll-helper", "../helper/atoll-helper" };
	const char *named = secure_getenv("ATOLL_HELPER");
	cleanup_free char *dir = NULL;

	if (named && *named)
		return xstrdup(named);
	dir = child_self_dir();
	for (size_t i = 0; dir && i < sizeof(beside) / sizeof(beside[0]); i++) {
		cleanup_free char *file = xasprintf("%s/%s", dir, beside[i]);

		/* Asking costs a hundredth of a process that only finds out. */
		if (access(file, X_OK) == 0)
			return take_ptr(file);
	}
	return xstrdup(ATOLL_HELPER_PATH);
}

static int spawn_helper(struct child *c, const struct start *s, struct error *err)
{
	cleanup_free char *where = exec_helper_path();
	int r = spawn_at(c, where, s);

	if (r == 0)
		return 0;
	if (r == -EBADF) /* of ours all are open: it is for numbers beyond the limit */
		r = -EMFILE;
	if (r != -ENOENT && r != -EACCES && r != -ENOTDIR)
		return exec_sys_error(r, "start", where, err);
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "the helper program '%s' cannot be started: %s",
	                where, strerror(-r));
	error_cause(err, "start", where, -r, NULL);
	error_hint(err, "install atoll-helper there, or name it in ATOLL_HELPER");
	return -ATOLL_E_UNSUPPORTED;
}

int helper_spawn(struct child *c, struct channels *ch, const char *const *argv, int lock_fd,
                 struct error *err)
{
	const struct start s = { argv, ch, lock_fd };
	int r = spawn_helper(c, &s, err);

	/* Ours must be gone, or the end of the helper would not show. */
	close_fd(&ch->reply[1]);
	return r;
}

/* 0; -EPIPE when the helper went without an answer. */
static int read_reply(int fd, struct reply *ret)
{
	char *p = (char *)ret;
	size_t have = 0;

	while (have < sizeof(*ret)) {
		ssize_t n = read(fd, p + have, sizeof(*ret) - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EPIPE;
		have += (size_t)n;
	}
	return ret->magic == REQUEST_MAGIC ? 0 : -EPROTO;
}

int helper_reply(struct child *c, const struct channels *ch, struct reply *ret, struct error *err)
{
	int r = read_reply(ch->reply[0], ret);
	int status = 0;

	if (r == -EPIPE) {
		(void)child_wait(c, CLOCK_NEVER, &status);
		(void)error_set(err, -EIO, "atoll-helper ended without an answer (%s %d)",
		                WIFSIGNALED(status) ? "signal" : "exit status",
		                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		error_hint(err, "somebody killed it, or memory was short: see dmesg");
		return -EIO;
	}
	if (r < 0)
		return error_sys(err, r, "read", "the reply of atoll-helper");
	ret->text[sizeof(ret->text) - 1] = '\0';
	return 0;
}
