/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `fault-at N[+] ERROR CALL[,CALL...] FILE COMMAND...` runs a command in which the N-th of those system
 * calls fails with ERROR, and is not made; with `+` all later ones fail, too. All processes that come of
 * the command are counted together. N 0: none. FILE gets the number of calls made. `new:PLACES` for N: the
 * first call from a place in atoll or scenario that PLACES does not have, which is then added to it.
 *
 * The calls are asked about by the kernel (seccomp user notification), so nothing of the program is
 * replaced, and programs that are linked statically are no exception. What the command leaves running is
 * answered until it ends.
 *
 * Exit status: the command's; 78 died of a signal; 79 trouble.
 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SIGNAL  78
#define EXIT_TROUBLE 79
#define CALLS_MAX    48

/* Of which calls of a number. */
enum which {
	ANY,
	OUTPUT,  /* not to the standard descriptors: what went wrong can be said */
	CREATES, /* with O_CREAT */
};

static const struct {
	const char *name;
	int nr;
	enum which which;
} calls[] = {
	{ "write", SYS_write, OUTPUT },
	{ "pwrite64", SYS_pwrite64, ANY },
	{ "writev", SYS_writev, OUTPUT },
	{ "copy_file_range", SYS_copy_file_range, ANY },
	{ "sendfile", SYS_sendfile, ANY },
	{ "ftruncate", SYS_ftruncate, ANY },
	{ "fallocate", SYS_fallocate, ANY },
	{ "create", SYS_openat, CREATES },
	{ "mkdirat", SYS_mkdirat, ANY },
	{ "symlinkat", SYS_symlinkat, ANY },
	{ "linkat", SYS_linkat, ANY },
	{ "renameat", SYS_renameat, ANY },
	{ "renameat2", SYS_renameat2, ANY },
#ifdef SYS_rename
	{ "rename", SYS_rename, ANY },
	{ "mkdir", SYS_mkdir, ANY },
	{ "link", SYS_link, ANY },
	{ "unlink", SYS_unlink, ANY },
#endif
	{ "unlinkat", SYS_unlinkat, ANY },
	{ "fsetxattr", SYS_fsetxattr, ANY },
	{ "fchmod", SYS_fchmod, ANY },
	{ "fchownat", SYS_fchownat, ANY },
	{ "utimensat", SYS_utimensat, ANY },
	{ "fsync", SYS_fsync, ANY },
	{ "fdatasync", SYS_fdatasync, ANY },
	{ "syncfs", SYS_syncfs, ANY },
	{ "read", SYS_read, ANY },
	{ "pread64", SYS_pread64, ANY },
	{ "getdents64", SYS_getdents64, ANY },
	{ "readlinkat", SYS_readlinkat, ANY },
	{ "statx", SYS_statx, ANY },
	{ "openat", SYS_openat, ANY },
	{ "openat2", SYS_openat2, ANY },
	{ "flock", SYS_flock, ANY },
	{ "socket", SYS_socket, ANY },
	{ "socketpair", SYS_socketpair, ANY },
	{ "pipe2", SYS_pipe2, ANY },
	{ "epoll_create1", SYS_epoll_create1, ANY },
	{ "memfd_create", SYS_memfd_create, ANY },
	{ "pidfd_open", SYS_pidfd_open, ANY },
	{ "mmap", SYS_mmap, ANY },
	{ "mremap", SYS_mremap, ANY },
	{ "brk", SYS_brk, ANY },
	{ "clone", SYS_clone, ANY },
	{ "clone3", SYS_clone3, ANY },
	{ "mount", SYS_mount, ANY },
	{ "wait4", SYS_wait4, ANY },
	{ "waitid", SYS_waitid, ANY },
	{ "connect", SYS_connect, ANY },
	{ "poll", SYS_ppoll, ANY },
	{ "stat", SYS_newfstatat, ANY },
	{ "lseek", SYS_lseek, ANY },
	{ "fcntl", SYS_fcntl, ANY },
	{ "ioctl", SYS_ioctl, ANY },
	{ "faccessat2", SYS_faccessat2, ANY },
	{ "fstatfs", SYS_fstatfs, ANY },
	{ "mknodat", SYS_mknodat, ANY },
	{ "getxattr", SYS_getxattr, ANY },
	{ "lgetxattr", SYS_lgetxattr, ANY },
	{ "llistxattr", SYS_llistxattr, ANY },
	{ "setxattr", SYS_setxattr, ANY },
};

static const struct {
	const char *name;
	int number;
} errors[] = {
	{ "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT },         { "EIO", EIO },
	{ "EROFS", EROFS },   { "EMFILE", EMFILE },         { "ENOMEM", ENOMEM },
	{ "EINTR", EINTR },   { "EOPNOTSUPP", EOPNOTSUPP },
};

/* What is written down here is seen by the process that answers and by the one that tells. */
struct order {
	const char *places; /* NULL: it is the N-th */
	long n;
	bool on; /* and all after it */
	int error;
	size_t n_chosen;
	size_t chosen[CALLS_MAX];
	_Atomic long made;
};

static bool read_order(char **argv, struct order *o)
{
	char *end;

	if (strncmp(argv[1], "new:", 4) == 0)
		o->places = argv[1] + 4;
	o->n = strtol(argv[1], &end, 10);
	o->on = *end == '+';
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strcmp(argv[2], errors[i].name) == 0)
			o->error = errors[i].number;
	for (char *word = strtok(argv[3], ","); word; word = strtok(NULL, ",")) {
		size_t i = 0;

		while (i < sizeof(calls) / sizeof(calls[0]) && strcmp(calls[i].name, word) != 0)
			i++;
		if (i == sizeof(calls) / sizeof(calls[0]) || o->n_chosen == CALLS_MAX)
			return false;
		o->chosen[o->n_chosen++] = i;
	}
	return o->error && o->n_chosen;
}

/* ---- in the command ---- */

static void add(struct sock_fprog *f, struct sock_filter insn)
{
	f->filter[f->len++] = insn;
}

#define LOAD(what)                                              \
	((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, \
	                              offsetof(struct seccomp_data, what)))
#define UNLESS(op, value, skip) \
	((struct sock_filter)BPF_JUMP(BPF_JMP | (op) | BPF_K, (unsigned)(value), 0, (skip)))
#define ANSWER(what) ((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (what)))

/* The low half of an argument, on the machines there are. */
static void add_call(struct sock_fprog *f, size_t i)
{
	enum which which = calls[i].which;

	add(f, LOAD(nr));
	add(f, UNLESS(BPF_JEQ, calls[i].nr, which == ANY ? 1 : 3));
	if (which == OUTPUT) {
		add(f, LOAD(args[0]));
		add(f, UNLESS(BPF_JGT, STDERR_FILENO, 1));
	} else if (which == CREATES) {
		add(f, LOAD(args[2]));
		add(f, UNLESS(BPF_JSET, O_CREAT, 1));
	}
	add(f, ANSWER(SECCOMP_RET_USER_NOTIF));
}

/* The listener, or -1. */
static int install(const struct order *o)
{
	struct sock_filter code[5 * CALLS_MAX + 1];
	struct sock_fprog f = { .filter = code };

	for (size_t i = 0; i < o->n_chosen; i++)
		add_call(&f, o->chosen[i]);
	add(&f, ANSWER(SECCOMP_RET_ALLOW));
	if (geteuid() != 0)
		(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
	                    &f);
}

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static bool pass(int sock, int *fd, bool give)
{
	union control control = { .room = { 0 } };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control.room,
		              .msg_controllen = sizeof(control.room) };

	if (!give) {
		if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&msg))
			return false;
		(void)memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
		return true;
	}
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	(void)memcpy(CMSG_DATA(&control.head), fd, sizeof(*fd));
	return sendmsg(sock, &msg, 0) == 1;
}

/* sendmsg is none of the calls asked about: who would answer has no listener yet. */
static pid_t start(const struct order *o, int sock, char **argv)
{
	pid_t pid = fork();
	int listener;

	if (pid != 0)
		return pid;
	listener = install(o);
	if (listener < 0 || !pass(sock, &listener, true))
		_exit(EXIT_TROUBLE);
	(void)close(listener);
	(void)execvp(argv[0], argv);
	_exit(EXIT_TROUBLE);
}

/* ---- who answers ---- */

/* The counters of ./setup coverage: a process that cannot read them would begin at nothing, for all. */
static bool is_about_counters(const struct seccomp_notif *request)
{
	char link[64], path[PATH_MAX + 1] = "";
	const __u64 *args = request->data.args;
	int fd;

	if (request->data.nr == SYS_openat) {
		(void)snprintf(link, sizeof(link), "/proc/%u/mem", request->pid);
		fd = open(link, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!pread(fd, path, PATH_MAX, (off_t)args[1]);
		(void)close(fd);
	} else {
		(void)snprintf(link, sizeof(link), "/proc/%u/fd/%d", request->pid,
		               (int)args[request->data.nr == SYS_mmap ? 4 : 0]);
		(void)!readlink(link, path, PATH_MAX);
	}
	return strstr(path, ".profraw") != NULL;
}

/* What comes from a new place makes its call the N-th. */
static void choose(struct order *o, struct places *places, const struct seccomp_notif *request)
{
	uint64_t place = o->n ? 0
	                      : place_of((pid_t)request->pid, request->data.nr,
	                                 request->data.instruction_pointer);

	if (place && !places_know(places, place) && !is_about_counters(request) &&
	    places_add(places, place) == 0)
		o->n = o->made;
}

static void answer(struct order *o, int listener)
{
	struct places places = { .fd = -1 };
	struct pollfd event = { .fd = listener, .events = POLLIN };
	struct seccomp_notif request;
	struct seccomp_notif_resp response;

	if (o->places && places_open(&places, o->places) < 0)
		return;
	for (;;) {
		long made;

		if (poll(&event, 1, -1) < 0 || !(event.revents & POLLIN)) {
			if (event.revents & POLLHUP)
				return;
			continue;
		}
		(void)memset(&request, 0, sizeof(request));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
			continue;
		made = ++o->made;
		if (o->places)
			choose(o, &places, &request);
		response = (struct seccomp_notif_resp){ .id = request.id,
			                                .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
		if (o->n && (made == o->n || (o->on && made > o->n))) {
			response.flags = 0;
			response.error = -o->error;
		}
		(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
	}
}

static pid_t start_answering(struct order *o, int sock)
{
	pid_t pid = fork();
	int listener, null;

	if (pid != 0)
		return pid;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	(void)setsid();
	if (pass(sock, &listener, false))
		answer(o, listener);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct order *o =
		mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int socks[2], status;
	FILE *out;
	pid_t pid;

	if (argc < 6 || o == MAP_FAILED || !read_order(argv, o) ||
	    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, socks) < 0)
		return EXIT_TROUBLE;
	out = fopen(argv[4], "we");
	if (!out || start_answering(o, socks[0]) < 0)
		return EXIT_TROUBLE;
	pid = start(o, socks[1], argv + 5);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return EXIT_TROUBLE;
	fprintf(out, "%ld\n", o->made);
	if (fclose(out) != 0)
		return EXIT_TROUBLE;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL;
}
