/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command. It stays in the caller's process group, so that a terminal stays a terminal: what
 * the terminal sends (^C, ^Z, hang-up) reaches it without us, and we only must not fall over it
 * ourselves. Only where it has a terminal of its own (helper/terminal.h) it has a session and a group of
 * its own, too. What a process sends to us is passed on, and what the caller says through the lifeline.
 * The command has none of our descriptors: all are close-on-exec.
 *
 * It ends when the command does, when its time is up (SIGTERM, then SIGKILL), or when the caller
 * is gone (SIGKILL at once: the next one is waiting for the plan). In every case nothing that
 * descends from the command is left when we answer.
 */
#include "helper/run.h"

#include "fs/atomic.h"
#include "helper/command.h"
#include "helper/durable.h"
#include "helper/failure.h"
#include "helper/join.h"
#include "helper/net.h"
#include "helper/reap.h"
#include "helper/run-impl.h"
#include "helper/space.h"
#include "helper/terminal.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS       2000 /* between SIGTERM and SIGKILL when the time is up */
#define EXIT_TIMED_OUT 124
#define EXIT_SIGNALLED 128

/* Passed on when a process sent them; the terminal's own reach the command by themselves. SIGCONT only to one
 * with a terminal of its own: all others have it from the shell, as we do. */
static const int passed_on[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT };
/* How we ourselves take some others. Stopping us would stop nobody else, and the lifeline would
 * go unwatched; a caller that ignores SIGCHLD must not cost us the command's status. */
static const struct {
	int sig;
	bool ignore;
} own_way[] = {
	{ SIGTSTP, true }, { SIGTTIN, true },  { SIGTTOU, true },
	{ SIGPIPE, true }, { SIGCHLD, false },
};
_Static_assert(sizeof(own_way) / sizeof(own_way[0]) == RUN_OWN_SIGNALS, "one place each");

static int keep_descriptors_ours(void)
{
	if (fcntl(REPLY_FD, F_SETFD, FD_CLOEXEC) < 0 || fcntl(LIFELINE_FD, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return request_reserve();
}

int run_take_signals(struct run *run)
{
	sigset_t set;

	for (size_t i = 0; i < RUN_OWN_SIGNALS; i++) {
		struct sigaction act = { .sa_handler = own_way[i].ignore ? SIG_IGN : SIG_DFL };

		if (sigaction(own_way[i].sig, &act, &run->before[i]) < 0)
			return -errno;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return run->signal_fd < 0 ? -errno : 0;
}

void run_give_signals_back(const struct run *run)
{
	sigset_t none;

	for (size_t i = 0; i < RUN_OWN_SIGNALS; i++)
		(void)sigaction(own_way[i].sig, &run->before[i], NULL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Whoever waits for us at the terminal should know that the command waits too. */
static void say_stopped(const struct run *run, int sig)
{
	struct reply note = { .magic = REQUEST_MAGIC,
		              .stage = sig ? SPACE_STOPPED : SPACE_CONTINUED };

	if (terminal_is_relayed())
		terminal_say_stopped(sig);
	else
		(void)fs_write_all(run->note_fd, &note, sizeof(note));
}

static void collect(struct run *run)
{
	bool told = run->note_fd != FD_NONE || terminal_is_relayed();
	int flags = WNOHANG | (told ? WUNTRACED | WCONTINUED : 0);
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, flags, &usage)) > 0) {
		calls_reaped(run, pid);
		if (pid != run->pid)
			continue; /* an orphan that was given to us */
		if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
			say_stopped(run, WIFSTOPPED(status) ? WSTOPSIG(status) : 0);
			continue;
		}
		run->ended = true;
		run->wait_status = status;
		run->usage = usage;
	}
}

/* A signal of a process to us, not of the terminal to all. */
static bool is_for_command(const struct run *run, const struct signalfd_siginfo *si)
{
	return run->pass_code ? si->ssi_code == run->pass_code : si->ssi_code != SI_KERNEL;
}

/* A stopped one would not hear that it is to end. */
static void pass_on(const struct run *run, int sig)
{
	(void)kill(run->pid, sig);
	if (sig == SIGTERM)
		(void)kill(run->pid, SIGCONT);
}

static void on_signals(struct run *run)
{
	struct signalfd_siginfo si;

	while (read(run->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			collect(run);
		else if (run->terminal && si.ssi_signo == SIGHUP && si.ssi_code == SI_KERNEL)
			terminal_hang_up(run);
		else if (run->ended || !is_for_command(run, &si))
			continue;
		else if (si.ssi_signo != SIGCONT)
			pass_on(run, (int)si.ssi_signo);
		else if (run->terminal)
			terminal_continue(run);
	}
}

/* It has all of these blocked until it runs: what it heard itself, as one of the process group, is not heard
 * twice. Who sent it does not matter: of two that are the same only the first is kept. Before the caller's word
 * they have ended him, or mean nothing to him. */
void run_catch_up(struct run *run)
{
	struct signalfd_siginfo si;

	while (read(run->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (si.ssi_signo != SIGCHLD && si.ssi_signo != SIGCONT)
			(void)kill(run->pid, (int)si.ssi_signo);
}

static void on_deadline(struct run *run)
{
	if (run->timed_out) {
		(void)kill(run->pid, SIGKILL);
		run->deadline = CLOCK_NEVER;
		return;
	}
	run->timed_out = true;
	run->deadline = clock_deadline(GRACE_MS);
	pass_on(run, SIGTERM);
}

/* Signals of the caller, or its end. */
static void on_lifeline(struct run *run)
{
	unsigned char said;
	ssize_t n = recv(LIFELINE_FD, &said, 1, MSG_DONTWAIT);

	if (n == 1 && said <= SIGRTMAX && !run->ended)
		terminal_signal(run, said);
	else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		run->caller_gone = true;
}

void run_follow(struct run *run)
{
	struct pollfd fds[] = {
		{ .fd = run->signal_fd, .events = POLLIN },
		{ .fd = LIFELINE_FD, .events = POLLIN },
		{ .fd = FD_NONE, .events = POLLIN },
	};

	if (terminal_is_relayed())
		terminal_say_stopped(0);
	collect(run); /* run_catch_up() may have been told */
	while (!run->ended && !run->caller_gone) {
		int n;

		fds[2].fd = run->calls.listener_fd;
		n = poll(fds, 3, clock_left_ms(run->deadline));
		if (n < 0 && errno != EINTR)
			break;
		if (n == 0)
			on_deadline(run);
		if (n > 0 && fds[0].revents)
			on_signals(run);
		if (n > 0 && fds[1].revents)
			on_lifeline(run);
		if (n > 0 && fds[2].revents)
			calls_supervise(run, fds[2].revents);
	}
	calls_end(&run->calls);
}

static int64_t timeval_us(const struct timeval *tv)
{
	return (int64_t)tv->tv_sec * 1000000 + tv->tv_usec;
}

void run_fill_reply(const struct run *run, struct reply *reply, struct failure *f)
{
	/* Whom the caller let go of is killed, now or with us. */
	int status = !run->ended && run->caller_gone ? SIGKILL : run->wait_status;

	/* We could not go on watching it, and it is ended with us. */
	if (!run->ended && !run->caller_gone)
		(void)failure_why(f, REPLY_LOST, -EIO, "follow the command",
		                  "how it would have ended is not known");
	reply->term_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	reply->exit_code =
		WIFSIGNALED(status) ? EXIT_SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
	reply->timed_out = run->timed_out;
	if (run->timed_out)
		reply->exit_code = EXIT_TIMED_OUT;
	reply->user_us = timeval_us(&run->usage.ru_utime);
	reply->system_us = timeval_us(&run->usage.ru_stime);
	reply->flags |= run->no_user_ns ? REPLY_NO_USER_NS : 0;
	reply->max_rss_kb = (uint64_t)run->usage.ru_maxrss;
}

void run_tell(const struct request *q)
{
	const struct reply running = { .magic = REQUEST_MAGIC, .stage = REPLY_RUNNING };

	if (request_get(q, REQUEST_TELL, 0))
		(void)fs_write_all(REPLY_FD, &running, sizeof(running));
}

int run_answer(struct run *run, struct reply *reply)
{
	int r;

	if (run->answered)
		return 0;
	limits_end(&run->limits, reply);
	r = fs_write_all(REPLY_FD, reply, sizeof(*reply));
	run->answered = r == 0; /* or else once more, at the end */
	run->to_sync = r == 0 && reply->error == 0;
	return r;
}

static int read_timeout(const struct request *q, int64_t *ret_deadline)
{
	const char *text = request_get(q, REQUEST_TIMEOUT_MS, 0);
	char *end;
	long long ms;

	*ret_deadline = CLOCK_NEVER;
	if (!text)
		return 0;
	errno = 0;
	ms = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || ms <= 0)
		return -EPROTO;
	*ret_deadline = clock_deadline(ms);
	return 0;
}

bool run_may_begin(struct run *run)
{
	ssize_t n;
	char go;

	do {
		n = read(LIFELINE_FD, &go, 1);
	} while (n < 0 && errno == EINTR);
	run->caller_gone = n != 1;
	return n == 1 && read_timeout(run->request, &run->deadline) == 0;
}

int run_read_request(struct run *run)
{
	const struct request *q;
	int r;

	/* Pid 1 reads it after the helper has. */
	if (lseek(REQUEST_FD, 0, SEEK_SET) < 0)
		return -errno;
	r = request_receive(REQUEST_FD, &run->request);
	if (r < 0)
		return r;
	q = run->request;
	if (!request_get(q, REQUEST_ARG, 0))
		return -EPROTO;
	if (request_get(q, REQUEST_HAS_LOCK, 0) && !request_has('l'))
		return -EPROTO;
	if ((space_wanted(q) || join_wanted(q)) && !request_get(q, REQUEST_CWD, 0))
		return -EPROTO;
	if (space_wanted(q) && join_wanted(q))
		return -EPROTO;
	r = limits_read(&run->limits, q);
	if (r < 0)
		return r;
	return read_timeout(q, &run->deadline);
}

/* All that needs no request. */
static int prepare(struct run *run, struct failure *f)
{
	int r = keep_descriptors_ours();

	if (r == 0)
		r = reap_adopt();
	if (r < 0)
		return failure_set(f, REPLY_REQUEST, r, "adopt the command's processes");
	r = run_take_signals(run);
	return r < 0 ? failure_set(f, REPLY_REQUEST, r, "take signals") : 0;
}

static void run_plain(struct run *run, struct reply *reply)
{
	struct failure f = FAILURE_NONE;

	if (net_refuse(run->request, &f) == 0 && run_may_begin(run) &&
	    terminal_take(run, &f) == 0 && command_start(run, false, &f) == 0) {
		run_tell(run->request);
		run_follow(run);
		run_fill_reply(run, reply, &f);
	}
	reap_all();
	failure_reply(&f, reply);
}

static void carry_out(struct run *run, struct space *space, struct reply *reply)
{
	limits_make(&run->limits);
	if (space_wanted(run->request)) {
		space_run(space, reply);
	} else {
		space_drop(space);
		(join_wanted(run->request) ? join_run : run_plain)(run, reply);
	}
}

/* The end of what the command printed is waited for before we are told anything more; and who waits for
 * our end has the lock to himself then. */
static void take_leave(const struct run *run)
{
	bool sync;

	for (int i = 0; i < 2; i++)
		if (request_has("oe"[i]))
			(void)close(OUTPUT_FD + i);
	sync = run->to_sync && durable_wanted(run->request);
	(void)close(LOCK_FD);
	(void)fs_write_all(REPLY_FD, (const char[]){ REPLY_LEFT }, 1);
	(void)close(REPLY_FD);
	if (sync)
		durable_later(run->request);
}

int run_helper(void)
{
	struct reply reply = { .magic = REQUEST_MAGIC };
	struct run run = { .signal_fd = FD_NONE,
		           .note_fd = FD_NONE,
		           .proc_fd = FD_NONE,
		           .ruleset_fd = FD_NONE,
		           .listener_fd = FD_NONE,
		           .calls = CALLS_NONE,
		           .pid = -1,
		           .user_ns_fd = FD_NONE,
		           .ahead = { -1, FD_NONE, FD_NONE } };
	struct failure f = FAILURE_NONE;
	struct space space;
	int r = prepare(&run, &f);

	/* While the caller still looks for what to do, there are namespaces to be made. */
	space_open(&space, &run, NULL);
	if (r == 0) {
		r = request_take(LIFELINE_FD);
		if (r == 0) /* the caller went or thought better of it; pid 1 goes with us */
			return EXIT_SUCCESS;
		if (r > 0)
			r = run_read_request(&run);
		if (r < 0)
			r = failure_set(&f, REPLY_REQUEST, r, "receive the request");
	}
	if (r < 0)
		failure_reply(&f, &reply);
	else
		carry_out(&run, &space, &reply);
	space_close(&space);
	r = run_answer(&run, &reply);
	take_leave(&run);
	close_fd(&run.signal_fd);
	request_free(run.request);
	return r < 0 ? -r : EXIT_SUCCESS; /* whoever waits for the answer has this instead */
}
