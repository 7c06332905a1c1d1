/* SPDX-License-Identifier: Apache-2.0 */
/* Starting atoll-helper with its descriptors, and reading what it answers. */
#include "exec/exec-impl.h"

#include "exec/exec.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRONG_USE 2 /* what the helper exits with */

void channels_done(struct channels *ch)
{
	close_fd(&ch->reply[0]);
	close_fd(&ch->reply[1]);
	close_fd(&ch->lifeline[0]);
	close_fd(&ch->lifeline[1]);
}

int channels_open(struct channels *ch)
{
	if (pipe2(ch->reply, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ch->lifeline) < 0)
		return -errno;
	return 0;
}

unsigned exec_add_stdio(const struct exec_options *opt, int first, struct child_fd *fds, unsigned n)
{
	for (int i = first; i <= STDERR_FILENO; i++)
		if (opt && opt->stdio && opt->stdio[i] != FD_NONE)
			fds[n++] = (struct child_fd){ opt->stdio[i], i };
	return n;
}

static int spawn_at(struct child *c, const char *file, const struct channels *ch,
                    const char *const *argv, const struct exec_options *how)
{
	bool detached = how && how->detached;
	cleanup_close int null_fd = detached ? open("/dev/null", O_RDWR | O_CLOEXEC) : FD_NONE;
	const int nowhere[] = { null_fd, null_fd, null_fd };
	const struct exec_options none = { .stdio = nowhere };
	struct child_fd fds[5] = { { ch->reply[1], REPLY_FD }, { ch->lifeline[0], LIFELINE_FD } };
	const struct child_options opt = {
		.file = file,
		.argv = argv,
		.fds = fds,
		.n_fds = exec_add_stdio(detached ? &none : how, STDIN_FILENO, fds, 2),
		.leads_session = how && (how->control || how->terminal),
		.holds_signals = true,
	};

	if (detached && null_fd < 0)
		return -errno;

	return child_spawn(c, &opt);
}

static const struct program helper_program = { .name = "atoll-helper",
	                                       .folder = "src/helper",
	                                       .variable = "ATOLL_HELPER" };

char *exec_helper_path(void)
{
	return program_path(&helper_program);
}

static int spawn_helper(struct child *c, const struct channels *ch, const char *const *argv,
                        const struct exec_options *opt, struct error *err)
{
	cleanup_free char *where = exec_helper_path();
	int r = spawn_at(c, where, ch, argv, opt);

	if (r == 0)
		return 0;
	if (r == -EBADF) /* of ours all are open: it is for numbers beyond the limit */
		r = -EMFILE;
	if (r != -ENOENT && r != -EACCES && r != -ENOTDIR)
		return exec_sys_error(r, "start", where, err);
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "the helper program '%s' cannot be started: %s",
	                where, strerror(-r));
	error_cause(err, "start", where, -r, NULL);
	error_hint(err, "atoll-helper belongs there; install atoll again");
	return -ATOLL_E_UNSUPPORTED;
}

int helper_spawn(struct child *c, struct channels *ch, const char *const *argv,
                 const struct exec_options *opt, struct error *err)
{
	int r = channels_open(ch);

	if (r < 0)
		return exec_sys_error(r, "open", "a channel to atoll-helper", err);
	r = spawn_helper(c, ch, argv, opt, err);
	/* Ours must be gone, or the end of the helper would not show. */
	close_fd(&ch->reply[1]);
	close_fd(&ch->lifeline[0]);
	return r;
}

/* ---- ahead of time ---- */

#define LEFT_MS 2000 /* it has nothing more to do than to end */

static struct {
	struct child child;
	struct channels ch;
	int word_fd;
	int mounts_fd; /* our /proc/self/mountinfo, opened before */
	bool there;
} ahead = { .child = { .pid = -1, .pidfd = -1 },
	    .ch = { { -1, -1 }, { -1, -1 } },
	    .word_fd = -1,
	    .mounts_fd = -1 };
static struct child left = { .pid = -1, .pidfd = -1 };

static const char *const run_argv[] = { "atoll-helper", NULL };

static int fork_helper(int (*helper)(void *ctx), void *ctx)
{
	const struct child_fd fds[] = { { ahead.ch.reply[1], REPLY_FD },
		                        { ahead.ch.lifeline[0], LIFELINE_FD } };
	const struct child_copy copy = { .inside = helper, .ctx = ctx, .fds = fds, .n_fds = 2 };

	return child_fork(&ahead.child, &copy, &ahead.word_fd);
}

/* A failure is nobody's yet. One that is named is not ours. */
void exec_ahead(int (*helper)(void *ctx), void *ctx)
{
	if (ahead.there || program_is_named(&helper_program))
		return;
	ahead.mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	ahead.there = ahead.mounts_fd >= 0 && channels_open(&ahead.ch) == 0 &&
	              fork_helper(helper, ctx) == 0;
	/* Ours must be gone, or the end of the helper would not show. */
	close_fd(&ahead.ch.reply[1]);
	close_fd(&ahead.ch.lifeline[0]);
	if (ahead.there)
		return;
	channels_done(&ahead.ch);
	close_fd(&ahead.mounts_fd);
}

/* It has the mounts of the time when it was started, and where they are private no others come to it. From
 * the opening of that file on, the kernel tells of every change. */
static bool mounts_changed(void)
{
	struct pollfd mounts = { .fd = ahead.mounts_fd, .events = POLLPRI };

	return poll(&mounts, 1, 0) != 0;
}

/* Somebody killed it, or memory was short; nothing is lost by that. */
static bool has_ended(void)
{
	struct pollfd end = { .fd = ahead.child.pidfd, .events = POLLIN };

	return poll(&end, 1, 0) != 0;
}

/* What was started ahead is there, and from now on not ahead any more. */
static bool take_ahead(struct child *c, struct channels *ch)
{
	ahead.there = false;
	if (ahead.word_fd != FD_NONE && child_began(&ahead.child, &ahead.word_fd) < 0) {
		channels_done(&ahead.ch);
		return false;
	}
	*c = ahead.child;
	*ch = ahead.ch;
	ahead.ch = CHANNELS_INIT;
	return true;
}

static void drop_ahead(void)
{
	ahead.there = false;
	close_fd(&ahead.word_fd);
	channels_done(&ahead.ch);
	child_done(&ahead.child);
}

void helper_leave(struct child *c)
{
	left = *c;
	*c = CHILD_INIT;
}

void exec_end(void)
{
	(void)child_wait(&left, clock_deadline(LEFT_MS), NULL);
}

/* What was started ahead has our descriptors and our session. */
static bool is_ours(const struct exec_options *opt)
{
	return !opt->detached && !opt->stdio && !opt->control && !opt->terminal;
}

/* Of several threads none may touch what only a program that owns its process has. */
int helper_get(struct child *c, struct channels *ch, const struct exec_options *opt,
               struct error *err)
{
	bool was_ahead = ahead.there;
	bool taken =
		was_ahead && is_ours(opt) && !mounts_changed() && !has_ended() && take_ahead(c, ch);

	if (was_ahead && !taken)
		drop_ahead();
	if (was_ahead)
		close_fd(&ahead.mounts_fd);
	return taken ? 1 : helper_spawn(c, ch, run_argv, opt, err);
}

int helper_give(const struct channels *ch, const char *slots, const int *fds)
{
	int r = request_give(ch->lifeline[1], slots, fds);

	return r == -EPIPE ? 0 : r;
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

bool helper_left(const struct channels *ch)
{
	char said[2];
	ssize_t n;

	do {
		n = read(ch->reply[0], said, sizeof(said));
	} while (n < 0 && errno == EINTR);
	return n == 1 && said[0] == REPLY_LEFT;
}

/* What it exits with is why its answer could not be written. */
static void no_answer(int status, struct error *err)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) > WRONG_USE) {
		(void)error_set(err, -EIO,
		                "how it ended is not known, atoll-helper could not tell: %s",
		                strerror(WEXITSTATUS(status)));
		error_hint(err, "what it had written is in the plan: atoll diff");
		return;
	}
	(void)error_set(err, -EIO, "atoll-helper ended without an answer (%s %d)",
	                WIFSIGNALED(status) ? "signal" : "exit status",
	                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	error_hint(err, "somebody killed it, or memory was short: see dmesg");
}

int helper_reply(struct child *c, const struct channels *ch, struct reply *ret, struct error *err)
{
	int r = read_reply(ch->reply[0], ret);
	int status = 0;

	if (r == -EPIPE) {
		(void)child_wait(c, CLOCK_NEVER, &status);
		no_answer(status, err);
		return -EIO;
	}
	if (r < 0)
		return error_sys(err, r, "read", "the reply of atoll-helper");
	ret->text[sizeof(ret->text) - 1] = '\0';
	return 0;
}
