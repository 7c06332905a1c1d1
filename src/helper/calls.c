/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most renames are of files: they cost reading one path of the other process, trying to open it as a directory, and
 * the answer; more is read of those alone that a process is forked for. A path is looked up from the other process's own directory and root, through its /proc entry.
 */
#include "helper/calls.h"

#include "exec/request.h"
#include "helper/raise.h"
#include "helper/run-impl.h"
#include "helper/stand-in.h"
#include "helper/view.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/pass-fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's headers may be older than the kernel (6.6): the one that waits and we take turns on a processor. */
#define IOCTL_SET_FLAGS   SECCOMP_IOW(4, uint64_t)
#define FLAG_SYNC_WAKE_UP UINT64_C(1)

#define PAGE      4096u /* the smallest there is */
#define FIRST     256u  /* of a path; most are shorter */
#define END_MS    2000  /* for a worker to put back what it has begun */
#define ROUND_NS  100000
#define PROC_PATH (PATH_MAX + 64)

/* The path of a call. */
struct end {
	int dir_fd; /* number in the other process, or AT_FDCWD */
	uint64_t address;
	char path[PATH_MAX];
};
enum call_kind {
	CALL_RENAME = 0,
	CALL_ASK,  /* whether FROM may be written to */
	CALL_LINK, /* to FROM */
};
struct call {
	pid_t pid; /* a thread, by its number here */
	uint64_t id;
	enum call_kind kind;
	struct end from, to;
	unsigned flags;
	struct call *next;
};

bool calls_wanted(const struct request *q)
{
	for (unsigned i = 0; i < request_count(q, REQUEST_VIEW_KIND); i++)
		if (strcmp(request_get(q, REQUEST_VIEW_KIND, i), REQUEST_OVERLAY) == 0)
			return true;
	return false;
}

/* ---- the listener's way ---- */

int calls_give(int socket, int listener_fd)
{
	return pass_fd(socket, "", 1, listener_fd);
}

ssize_t calls_take(struct calls *calls, int socket, void *data, size_t size)
{
	const uint64_t flags = FLAG_SYNC_WAKE_UP;
	int fd = FD_NONE;
	ssize_t n = take_passed(socket, data, size, &fd);

	if (fd == FD_NONE)
		return n;
	calls->listener_fd = fd;
	(void)ioctl(calls->listener_fd, IOCTL_SET_FLAGS, flags);
	return CALLS_TAKEN;
}

/* ---- what is asked ---- */

/* A string of the other process, which may change it at any time: 0 or -errno. */
static int read_path(pid_t pid, struct end *e)
{
	char *path = e->path;
	size_t have = 0;

	while (have < PATH_MAX) {
		uint64_t at = e->address + have;
		size_t want = PAGE - at % PAGE;
		struct iovec ours, theirs;
		ssize_t n;

		if (have == 0 && want > FIRST)
			want = FIRST;
		if (want > PATH_MAX - have)
			want = PATH_MAX - have;
		ours = (struct iovec){ path + have, want };
		theirs = (struct iovec){ (void *)(uintptr_t)at, want };
		n = process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		if (memchr(path + have, '\0', (size_t)n))
			return 0;
		have += (size_t)n;
	}
	return -ENAMETOOLONG;
}

/* Its numbers; false when it is none that concerns us. */
static bool read_call(const struct seccomp_notif *n, struct call *c)
{
	const __u64 *a = n->data.args;
	bool at = true;

	c->pid = (pid_t)n->pid;
	c->id = n->id;
	c->flags = 0;
	c->kind = CALL_RENAME;
	switch (n->data.nr) {
#ifdef SYS_access
	case SYS_access:
		at = false;
		c->kind = CALL_ASK;
		break;
#endif
	case SYS_faccessat:
	case SYS_faccessat2:
		c->kind = CALL_ASK;
		break;
#ifdef SYS_link
	case SYS_link:
		at = false;
		c->kind = CALL_LINK;
		break;
#endif
	case SYS_linkat:
		c->kind = CALL_LINK;
		break;
#ifdef SYS_rename
	case SYS_rename:
		at = false;
		break;
#endif
#ifdef SYS_renameat
	case SYS_renameat:
		break;
#endif
	case SYS_renameat2:
		c->flags = (unsigned)a[4];
		break;
	default:
		return false;
	}
	c->from.dir_fd = at ? (int)a[0] : AT_FDCWD;
	c->to.dir_fd = at ? (int)a[2] : AT_FDCWD;
	c->from.address = a[at ? 1 : 0];
	c->to.address = a[at ? 3 : 1];
	return c->pid > 0;
}

/* Where the path begins, below /proc. */
static int anchor(const struct call *c, const struct end *e, char *text, size_t size)
{
	if (*e->path == '/')
		return snprintf(text, size, "%d/root", (int)c->pid);
	if (e->dir_fd == AT_FDCWD)
		return snprintf(text, size, "%d/cwd", (int)c->pid);
	return snprintf(text, size, "%d/fd/%d", (int)c->pid, e->dir_fd);
}

/* A directory that the kernel would not move. */
static bool is_in_the_way(const struct run *run, const struct call *c, struct end *e)
{
	cleanup_close int fd = FD_NONE;
	char path[PROC_PATH];
	int n;

	if (read_path(c->pid, e) < 0)
		return false;
	n = anchor(c, e, path, sizeof(path));
	(void)snprintf(path + n, sizeof(path) - (size_t)n, "/%s", e->path);
	fd = openat(run->proc_fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && views_has_lower(run->views, fd);
}

/* A file that will be another when it is written to. */
static bool is_to_copy_up(const struct run *run, const struct call *c, struct end *e)
{
	cleanup_close int fd = FD_NONE;
	char path[PROC_PATH];
	struct stat st;
	int n;

	if (read_path(c->pid, e) < 0)
		return false;
	n = anchor(c, e, path, sizeof(path));
	(void)snprintf(path + n, sizeof(path) - (size_t)n, "/%s", e->path);
	fd = openat(run->proc_fd, path, O_PATH | O_CLOEXEC);
	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1 &&
	       views_is_lower(run->views, fd);
}

/* The program of a process, by the last component of its path. */
static bool is_program(const struct run *run, pid_t pid, const char *name)
{
	char link[32], path[PATH_MAX];
	const char *last;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "%d/exe", (int)pid);
	n = readlinkat(run->proc_fd, link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	last = strrchr(path, '/');
	return last && strcmp(last + 1, name) == 0;
}

/* What a link is to be answered, an errno; 0: the kernel makes it. The kernel copies the file up and shows it by the
 * number of its original, and the new name by that of the copy: so git, which compares the two, would end its
 * local clone. It copies where it cannot link. */
static int answer_link(const struct run *run, struct call *c)
{
	cleanup_close int fd = FD_NONE;
	char path[PROC_PATH];
	int n;

	if (!is_program(run, c->pid, "git") || read_path(c->pid, &c->from) < 0)
		return 0;
	n = anchor(c, &c->from, path, sizeof(path));
	(void)snprintf(path + n, sizeof(path) - (size_t)n, "/%s", c->from.path);
	fd = openat(run->proc_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && views_link_differs(run->views, fd) ? EXDEV : 0;
}

static bool needs_work(const struct run *run, struct call *c)
{
	if (c->kind == CALL_ASK)
		return is_to_copy_up(run, c, &c->from);
	return is_in_the_way(run, c, &c->from) ||
	       ((c->flags & RENAME_EXCHANGE) && is_in_the_way(run, c, &c->to));
}

/* ---- the worker ---- */

/* The last component of PATH, without slashes behind it; what is before it stays in PATH. NULL: it has no name. */
static char *split(char *path)
{
	size_t len = strlen(path);
	char *name;

	while (len > 0 && path[len - 1] == '/')
		path[--len] = '\0';
	while (len > 0 && path[len - 1] != '/')
		len--;
	name = path + len;
	if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return NULL;
	return name;
}

static int open_anchor(const struct run *run, const struct call *c, const struct end *e)
{
	char path[64];

	(void)anchor(c, e, path, sizeof(path));
	return openat(run->proc_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* With the rights we have now. Not through links of /proc, where "self" would be this process, with what the
 * supervisor has open. */
static int open_theirs(int anchor_fd, const char *path, uint64_t flags)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, anchor_fd, path, &how, sizeof(how));
}

/* The directory that holds NAME of E. */
static int open_parent(int anchor_fd, const struct end *e, const char *name)
{
	char path[PATH_MAX];
	const char *from = e->path + strspn(e->path, "/");

	if (name <= from)
		return openat(anchor_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%.*s", (int)(name - from), from);
	return open_theirs(anchor_fd, path, O_PATH | O_DIRECTORY);
}

/* As the one that asks, if it is still there. */
static bool stand_in(struct run *run, const struct call *c)
{
	struct stand_in as;
	bool ok = stand_in_read(run, c->pid, &as);

	/* All that was opened so far was that process's, if it is still the one that waits. */
	ok = ok && ioctl(run->calls.listener_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &c->id) == 0;
	close_fd(&run->calls.listener_fd);
	return ok && stand_in_become(run, &as);
}

static int copy_up(struct run *run, struct call *c)
{
	bool read = read_path(c->pid, &c->from) == 0;
	int dir_fd = read ? open_anchor(run, c, &c->from) : FD_NONE;

	if (dir_fd >= 0 && stand_in(run, c))
		(void)open_theirs(dir_fd, c->from.path + strspn(c->from.path, "/"),
		                  O_WRONLY | O_NONBLOCK | O_NOCTTY);
	return 0;
}

/* What the call is to be answered, an errno; 0: the kernel goes on with it, and says what is wrong. */
static int work(struct run *run, struct call *c)
{
	bool read = read_path(c->pid, &c->from) == 0 && read_path(c->pid, &c->to) == 0;
	const char *from = read ? split(c->from.path) : NULL, *to = read ? split(c->to.path) : NULL;
	int from_fd = open_anchor(run, c, &c->from), to_fd = open_anchor(run, c, &c->to);

	if (!from || !to || from_fd < 0 || to_fd < 0 || !stand_in(run, c))
		return 0;
	from_fd = open_parent(from_fd, &c->from, from);
	to_fd = open_parent(to_fd, &c->to, to);
	if (from_fd < 0 || to_fd < 0)
		return 0;
	return raise_for_rename(&(struct raise_rename){ from_fd, to_fd, from, to, c->flags });
}

/* ---- the answer ---- */

static void send_answer(const struct calls *calls, uint64_t id, int error)
{
	struct seccomp_notif_resp answer = { .id = id, .error = -error };

	if (error == 0)
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	(void)ioctl(calls->listener_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

/* The first in line has a worker, or is answered; what it needed may be done by then. */
static void start_worker(struct run *run)
{
	struct calls *calls = &run->calls;

	while (calls->worker < 0 && calls->line) {
		struct call *c = calls->line;

		calls->worker = needs_work(run, c) ? fork() : -1;
		if (calls->worker == 0)
			_exit(c->kind == CALL_ASK ? copy_up(run, c) : work(run, c));
		if (calls->worker > 0)
			return;
		calls->line = c->next;
		send_answer(calls, c->id, 0);
		free(c);
	}
}

static bool stand_in_line(struct calls *calls, const struct call *c)
{
	struct call *copy = malloc(sizeof(*copy)), **last = &calls->line;

	if (!copy)
		return false;
	while (*last)
		last = &(*last)->next;
	*copy = *c;
	copy->next = NULL;
	*last = copy;
	return true;
}

static void take_call(struct run *run)
{
	struct seccomp_notif n = { 0 };
	struct calls *calls = &run->calls;
	struct call c;

	/* It may have been killed meanwhile. */
	if (ioctl(calls->listener_fd, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
		return;
	if (!read_call(&n, &c))
		send_answer(calls, n.id, 0);
	else if (c.kind == CALL_LINK)
		send_answer(calls, n.id, answer_link(run, &c));
	else if (!needs_work(run, &c) || !stand_in_line(calls, &c))
		send_answer(calls, n.id, 0);
	start_worker(run);
}

/* ---- the supervisor ---- */

static void worker_reaped(struct run *run, int status)
{
	struct calls *calls = &run->calls;
	struct call *c = calls->line;

	calls->worker = -1;
	calls->line = c->next;
	send_answer(calls, c->id, WIFEXITED(status) ? WEXITSTATUS(status) : 0);
	free(c);
	start_worker(run);
}

/* It puts back what it has begun. */
static void end_worker(const struct calls *calls)
{
	if (calls->worker <= 0)
		return;
	(void)kill(calls->worker, SIGTERM);
	while (waitpid(calls->worker, NULL, 0) < 0 && errno == EINTR)
		;
}

/* False: pid 1 says that the command has ended. */
static bool take_signals(struct run *run, int signal_fd, pid_t parent)
{
	struct signalfd_siginfo si;
	int status;

	while (read(signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (si.ssi_signo == SIGTERM && si.ssi_pid == (uint32_t)parent)
			return false;
	while (run->calls.worker > 0 && waitpid(run->calls.worker, &status, WNOHANG) > 0)
		worker_reaped(run, status);
	return true;
}

static _Noreturn void supervise(struct run *run)
{
	struct pollfd fds[] = { { .fd = FD_NONE, .events = POLLIN },
		                { .fd = run->calls.listener_fd, .events = POLLIN } };
	pid_t parent = getppid();
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	fds[0].fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	while (fds[0].fd >= 0 && (poll(fds, 2, -1) >= 0 || errno == EINTR)) {
		if (fds[0].revents && !take_signals(run, fds[0].fd, parent))
			break;
		if (fds[1].revents && !(fds[1].revents & POLLIN))
			break;
		if (fds[1].revents)
			take_call(run);
	}
	end_worker(&run->calls);
	_exit(EXIT_SUCCESS);
}

/* ---- pid 1 ---- */

/* Without a look at it. */
static void let_go_on(const struct calls *calls)
{
	struct seccomp_notif n = { 0 };

	if (ioctl(calls->listener_fd, SECCOMP_IOCTL_NOTIF_RECV, &n) == 0)
		send_answer(calls, n.id, 0);
}

void calls_supervise(struct run *run, short revents)
{
	struct calls *calls = &run->calls;

	if (revents & POLLIN) {
		calls->supervisor = fork();
		if (calls->supervisor == 0)
			supervise(run);
		if (calls->supervisor < 0) {
			let_go_on(calls);
			return;
		}
	}
	close_fd(&calls->listener_fd);
}

void calls_reaped(struct run *run, pid_t pid)
{
	if (pid == run->calls.supervisor)
		run->calls.supervisor = -1;
}

void calls_end(struct calls *calls)
{
	int64_t until = clock_deadline(END_MS);

	if (calls->supervisor <= 0)
		return;
	(void)kill(calls->supervisor, SIGTERM);
	(void)kill(calls->supervisor, SIGCONT);
	while (waitpid(calls->supervisor, NULL, WNOHANG) == 0 && clock_boot_ns() < until)
		clock_sleep_ns(ROUND_NS);
	calls->supervisor = -1;
}
