/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordinary user needs the user namespace to make the others, and has in it no id but the own.
 * Root makes the mounts as root, and only the command gets a user namespace, in which all ids are
 * themselves: its capabilities then reach neither the mounts nor pid 1.
 *
 * All stay in the caller's session and process group: the terminal's signals and job control reach
 * the command directly; unless it has a terminal of its own (helper/terminal.h).
 */
#include "helper/space.h"

#include "fs/atomic.h"
#include "helper/command.h"
#include "helper/fence.h"
#include "helper/idmap.h"
#include "helper/net.h"
#include "helper/origin.h"
#include "helper/reap.h"
#include "helper/terminal.h"
#include "helper/tree.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_GRACE_MS 50
#define FREEZE_MS     50    /* for the kernel to close what its processes had */
#define BUILD_MS      30000 /* for the views; something mounted below may not answer */

#define NAMESPACES ((unsigned long)(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS))

bool space_wanted(const struct request *q)
{
	return request_count(q, REQUEST_VIEW_KIND) > 0;
}

static bool switch_is(const char *path, char value)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[2] = { 0 };

	return fd >= 0 && read(fd, text, sizeof(text)) > 0 && text[0] == value &&
	       (text[1] == '\n' || text[1] == '\0');
}

const char *space_why_not(void)
{
	static const struct {
		const char *path;
		char value;
		const char *why;
	} switches[] = {
		{ "/proc/sys/user/max_user_namespaces", '0',
		  "user namespaces are switched off (sysctl user.max_user_namespaces=0)" },
		{ "/proc/sys/kernel/unprivileged_userns_clone", '0',
		  "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone=0)" },
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1',
		  "AppArmor restricts user namespaces "
		  "(sysctl kernel.apparmor_restrict_unprivileged_userns=1)" },
	};

	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		if (switch_is(switches[i].path, switches[i].value))
			return switches[i].why;
	return NULL;
}

/* ---- pid 1 ---- */

/* From here on the helper's death is ours. It has no number in this namespace to compare, but a
 * dead one does not read any more. */
static int follow_helper(struct space *s)
{
	struct pollfd pfd = { .fd = s->status[1] };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	close_fd(&s->status[0]);
	close_fd(&s->go[1]);
	(void)close(REPLY_FD); /* by its end the caller sees that the helper is gone */
	if (poll(&pfd, 1, 0) > 0)
		_exit(EXIT_FAILURE);
	return 0;
}

/* Nothing, when the helper is gone, has no use for us or could not record us. */
static int await_request(struct space *s)
{
	int r = request_take(s->go[0]);

	if (r == 0)
		_exit(EXIT_FAILURE);
	close_fd(&s->go[0]);
	return r < 0 || s->run->request ? r : run_read_request(s->run);
}

static int enter(struct space *s, struct tree *t, struct failure *f)
{
	int r = follow_helper(s);

	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "follow the helper");
	r = s->own_user_ns ? idmap_self(s->uid, s->gid) : 0;
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "map the user's ids");
	r = s->own_user_ns && s->uid != 0 ? fence_ahead(s->run) : 0;
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "give up capabilities");
	t->user_xattrs = s->own_user_ns || !idmap_is_initial();
	s->run->user_xattrs = t->user_xattrs;
	t->is_root = s->uid == 0;
	r = tree_begin(t, f);
	s->run->proc_fd = t->proc_fd;
	return r;
}

static int build(struct space *s, struct tree *t, struct failure *f)
{
	int r = net_enter(s->run->request, f);

	if (r == 0)
		r = tree_build(t, s->run->request, f);

	if (r == 0 && chdir("/") < 0)
		r = failure_set(f, REPLY_NAMESPACE, -errno, "enter '/'");
	s->run->strict = request_get(s->run->request, REQUEST_STRICT, 0);
	if (r == 0 && s->run->strict && t->old_proc)
		return failure_why(f, REPLY_NAMESPACE, -EPERM, "be strict",
		                   "this host does not allow a '/proc' of one's own");
	if (r == 0)
		r = fence_make(s->run, &t->views, f);
	return r;
}

static bool wants_user_ns(const struct space *s)
{
	return s->uid == 0 && !sabotage("user-ns");
}

/* Files in sockets that are on their way through each other are closed when the kernel looks for such, which
 * it does when a socket is closed, and in its own time. What is open longer somebody outside has. */
static int freeze_views(struct views *views)
{
	int64_t until = clock_deadline(FREEZE_MS);
	int r;

	while ((r = views_freeze(views)) == -EBUSY && clock_boot_ns() < until) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		close_fd(&fd);
		clock_sleep_ns(1000000);
	}
	return r;
}

static void live(struct space *s, struct tree *t, struct reply *reply, struct failure *f)
{
	struct run *run = s->run;
	bool alone;
	int r;

	const struct reply begun = { .magic = REQUEST_MAGIC, .stage = SPACE_BEGUN };
	const struct reply running = { .magic = REQUEST_MAGIC, .stage = SPACE_RUNNING };

	run->note_fd = s->status[1];
	run->views = &t->views;
	run->pass_code = SI_QUEUE;
	(void)fs_write_all(s->status[1], &begun, sizeof(begun));
	if (s->inside) {
		(void)s->inside(run->request, f);
	} else if (run_may_begin(run) && terminal_take(run, f) == 0 &&
	           command_start(run, wants_user_ns(s), f) == 0) {
		(void)fs_write_all(s->status[1], &running, sizeof(running));
		run_follow(run);
		run_fill_reply(run, reply, f);
	}
	alone = reap_namespace(run->proc_fd);
	if (s->origins_fd != FD_NONE)
		origins_look(&t->views, run->request, s->origins_fd);
	r = freeze_views(&t->views);
	if (r == -EBUSY)
		reply->flags |= REPLY_STILL_WRITTEN;
	if (r == 0 && alone)
		reply->flags |= REPLY_ALL_ENDED;
	if (t->old_proc)
		reply->flags |= REPLY_OLD_PROC;
}

static _Noreturn void pid_one(struct space *s)
{
	struct reply reply = { .magic = REQUEST_MAGIC };
	struct failure f = FAILURE_NONE;
	struct tree t;
	int r;

	tree_init(&t);
	s->run->fenced = true;
	s->run->is_root = s->uid == 0;
	if (enter(s, &t, &f) == 0 && !s->inside && fence_begin(s->run) == 0)
		command_ahead(s->run, wants_user_ns(s));
	/* A failure is for whoever asks. */
	r = await_request(s);
	if (r < 0 && f.error == 0)
		(void)failure_set(&f, REPLY_REQUEST, r, "receive the request");
	if (f.error == 0)
		command_inform(s->run);
	if (f.error == 0 && build(s, &t, &f) == 0)
		live(s, &t, &reply, &f);
	failure_reply(&f, &reply);
	/* Nobody but us knows how the command ended: if that cannot be said, why it cannot is. */
	r = fs_write_all(s->status[1], &reply, sizeof(reply));
	_exit(r < 0 ? -r : EXIT_SUCCESS);
}

/* ---- the helper ---- */

/* A command that stops itself alone would leave a shell waiting for a job that waits. Everybody in
 * the foreground stops, as with ^Z. We do not: we hold the lifeline. After a ^Z the shell has taken
 * the terminal back by now, and nothing is left to do. */
static void stop_foreground(struct space *s)
{
	cleanup_close int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	s->stop_at = CLOCK_NEVER;
	if (tty >= 0 && tcgetpgrp(tty) == getpgrp())
		(void)kill(0, SIGTSTP);
}

/* False at the end. */
static bool read_status(struct space *s, struct reply *reply)
{
	struct reply said;
	ssize_t n;

	do {
		n = read(s->status[0], &said, sizeof(said));
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(said))
		return false;
	if (said.stage == SPACE_STOPPED) {
		s->stop_at = clock_deadline(STOP_GRACE_MS);
	} else if (said.stage == SPACE_CONTINUED) {
		s->stop_at = CLOCK_NEVER;
	} else if (said.stage == SPACE_BEGUN) {
		s->begin_by = CLOCK_NEVER;
	} else if (said.stage == SPACE_RUNNING) {
		/* Not before: its user namespace is what others join. */
		if (s->record_fd != FD_NONE)
			(void)exec_mark_joinable(s->record_fd);
		run_tell(s->run->request);
		/* Nobody waits for us while it runs. */
		views_tidy(s->run->request);
	} else {
		*reply = said;
		s->answered = true;
		if (s->origins_fd != FD_NONE)
			origins_note(s->run->request, s->origins_fd);
		/* The kernel takes the namespaces down while the caller looks at what was done. */
		if ((said.flags & REPLY_ALL_ENDED) && !s->inside && s->run->limits.n_groups == 0)
			(void)run_answer(s->run, reply);
	}
	return true;
}

/* ALL: also what the terminal sends to everybody, for a pid 1 that was not there yet. */
static void on_signals(struct space *s, bool all)
{
	struct signalfd_siginfo si;

	while (read(s->run->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			s->gone = s->gone || waitpid(s->pid, &s->wait_status, WNOHANG) == s->pid;
		else if ((all || si.ssi_code != SI_KERNEL) && !s->gone)
			(void)sigqueue(s->pid, (int)si.ssi_signo, (union sigval){ 0 });
	}
}

/* Pid 1 waits for something that does not answer, or the command's time was up before it began. */
static void give_up(struct space *s, struct reply *reply)
{
	struct failure f = FAILURE_NONE;

	(void)kill(s->pid, SIGKILL);
	if (s->begin_by == s->run->deadline) {
		s->run->timed_out = s->run->ended = true;
		run_fill_reply(s->run, reply, &f);
	} else {
		(void)failure_set(&f, REPLY_VIEW, -ETIMEDOUT, "build the views in time");
	}
	failure_reply(&f, reply);
	s->answered = true;
	s->begin_by = CLOCK_NEVER;
}

static void watch(struct space *s, struct reply *reply)
{
	struct pollfd fds[] = {
		{ .fd = s->run->signal_fd, .events = POLLIN },
		{ .fd = s->status[0], .events = POLLIN },
		{ .fd = LIFELINE_FD }, /* only its end: what it says is for pid 1 */
	};

	while (!s->gone) {
		int64_t next = s->stop_at < s->begin_by ? s->stop_at : s->begin_by;
		int n = poll(fds, 3, clock_left_ms(next));

		if (n == 0 && next == s->stop_at)
			stop_foreground(s);
		else if (n == 0)
			give_up(s, reply);
		if (n <= 0)
			continue;
		if (fds[1].revents && !read_status(s, reply))
			fds[1].fd = -1;
		if (fds[2].revents) {
			(void)kill(s->pid, SIGKILL);
			fds[2].fd = -1;
		}
		if (fds[0].revents)
			on_signals(s, false);
	}
	while (!s->answered && read_status(s, reply))
		;
}

/* Who comes after us must be able to find pid 1 (exec/bury.c), so it begins only when on record;
 * without the word it ends. */
static void let_begin(struct space *s, struct failure *f)
{
	cleanup_free char *groups = limits_paths(&s->run->limits);
	int r = s->record_fd == FD_NONE ? 0 : exec_write_running(s->record_fd, s->pid, groups);

	if (r == 0)
		r = s->inside ? request_give(s->go[1], "", NULL) : request_hand_on(s->go[1]);
	close_fd(&s->go[1]);
	if (r < 0 && r != -EPIPE) /* it is gone: watch() says so */
		(void)failure_set(f, REPLY_REQUEST, r, "write '%s/" EXEC_RUNNING "'",
		                  request_get(s->run->request, REQUEST_RECORD, 0));
}

static int open_record(struct space *s, struct failure *f)
{
	const char *dir = request_get(s->run->request, REQUEST_RECORD, 0);

	s->record_fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : FD_NONE;
	if (dir && s->record_fd < 0)
		return failure_set(f, REPLY_REQUEST, -errno, "open '%s'", dir);
	return 0;
}

static void fork_space(struct space *s)
{
	unsigned long namespaces = NAMESPACES & ~(sabotage("ipc-ns") ? CLONE_NEWIPC : 0ul);

	s->own_user_ns = s->uid != 0;
	s->pid = command_fork(namespaces | (s->own_user_ns ? CLONE_NEWUSER : 0));
	/* Root in a container may lack the capability, and be allowed what everybody is. */
	if (s->pid < 0 && errno == EPERM && !s->own_user_ns) {
		s->own_user_ns = true;
		s->pid = command_fork(namespaces | CLONE_NEWUSER);
	}
}

/* Limits on namespaces have the number of a full disk, and that of a missing right says nothing. */
static void fork_failed(int error, struct failure *f)
{
	const char *why = space_why_not();

	if (!why && (error == ENOSPC || error == EUSERS))
		why = "their limit is reached (sysctl user.max_user_namespaces, "
		      "user.max_mnt_namespaces and others)";
	if (why && error != EAGAIN)
		(void)failure_why(f, REPLY_NAMESPACE, -EUSERS, "make namespaces", why);
	else
		(void)failure_set(f, REPLY_NAMESPACE, -error, "make namespaces");
}

static void pid_one_lost(const struct space *s, struct failure *f)
{
	int status = s->wait_status;
	char why[160];

	if (WIFSIGNALED(status))
		(void)snprintf(why, sizeof(why),
		               "the first process of its namespace was killed (signal %d)",
		               WTERMSIG(status));
	else
		(void)snprintf(
			why, sizeof(why),
			"how it ended is not known, the first process of its namespace could "
			"not tell: %s",
			strerror(WEXITSTATUS(status) ? WEXITSTATUS(status) : EPIPE));
	(void)failure_why(f, REPLY_LOST, -EIO, "follow the command", why);
}

/* Pid 1 is there: to its end. */
static void accompany(struct space *s, struct reply *reply, struct failure *f)
{
	/* It has them blocked, and passes on what it finds when it may begin: of two that are the same, one. */
	on_signals(s, true);
	let_begin(s, f);
	watch(s, reply);
	if (s->record_fd != FD_NONE)
		(void)fs_unlink_at(s->record_fd, EXEC_RUNNING);
	if (!s->answered && f->error == 0)
		pid_one_lost(s, f);
}

void space_open(struct space *s, struct run *run,
                int (*inside)(const struct request *q, struct failure *f))
{
	*s = (struct space){ .run = run,
		             .inside = inside,
		             .uid = geteuid(),
		             .gid = getegid(),
		             .pid = -1,
		             .failure = FAILURE_NONE,
		             .status = { FD_NONE, FD_NONE },
		             .go = { FD_NONE, FD_NONE },
		             .record_fd = FD_NONE,
		             .origins_fd = FD_NONE,
		             .stop_at = CLOCK_NEVER };
	if (pipe2(s->status, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s->go) < 0) {
		(void)failure_set(&s->failure, REPLY_REQUEST, -errno, "open a pipe");
		return;
	}
	if (s->uid != 0 && !inside)
		s->origins_fd = memfd_create("atoll-origins", MFD_CLOEXEC);
	fork_space(s);
	if (s->pid == 0)
		pid_one(s);
	if (s->pid < 0)
		fork_failed(errno, &s->failure);
	close_fd(&s->status[1]);
	close_fd(&s->go[0]);
}

void space_run(struct space *s, struct reply *reply)
{
	int64_t build_by = clock_deadline(BUILD_MS);
	struct failure *f = &s->failure;

	s->begin_by = s->run->deadline < build_by ? s->run->deadline : build_by;
	if (f->error == 0 && open_record(s, f) == 0)
		accompany(s, reply, f);
	if (f->error != 0)
		failure_reply(f, reply);
}

void space_drop(struct space *s)
{
	if (s->pid < 0 || s->gone)
		return;
	(void)kill(s->pid, SIGKILL);
	(void)waitpid(s->pid, NULL, 0);
	s->gone = true;
}

void space_close(struct space *s)
{
	space_drop(s);
	close_fd(&s->record_fd);
	close_fd(&s->origins_fd);
	for (int i = 0; i < 2; i++) {
		close_fd(&s->status[i]);
		close_fd(&s->go[i]);
	}
}
