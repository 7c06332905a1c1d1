/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kill-at N FILE COMMAND...` runs a command under ptrace and kills it with SIGKILL when it is
 * about to make its N-th system call, all its threads counted together; the call itself does not
 * happen. N 0: never. FILE gets the number of calls made. Counting begins after exec, so what
 * the loader does counts too. `-N`: it is stopped there with SIGSTOP, FILE says so at once, and it goes
 * on when kill-at is sent SIGUSR1.
 *
 * With $KILL_AT_CHANGES only calls count that may leave something behind: whoever is killed before one
 * that only looks leaves what he leaves when he is killed before the next that does not. Then a filter
 * says which these are, and only they stop it: sixty times fewer. What it starts has the filter too, and is
 * followed for that, but never counted or killed: it lives on when the command is dead, and whoever follows
 * it stays behind until it ends.
 *
 * Exit status: 77 killed; 78 died of another signal; else the command's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_KILLED  77
#define EXIT_SIGNAL  78
#define EXIT_TROUBLE 79
#define SYSCALL_STOP (SIGTRAP | 0x80)
#define TRACE_OPTIONS \
	(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC)
#define FILTER_OPTIONS                                                                          \
	(PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | \
	 PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC)
#define THREADS_MAX 256
#define LOOKS_MAX   100
#ifdef __x86_64__
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

/* Which threads are inside a system call: every second stop is an exit. */
static struct {
	pid_t tid;
	bool inside;
} threads[THREADS_MAX];

static bool *inside_of(pid_t tid)
{
	for (size_t i = 0; i < THREADS_MAX; i++) {
		if (threads[i].tid == 0)
			threads[i].tid = tid;
		if (threads[i].tid == tid)
			return &threads[i].inside;
	}
	abort();
}

/* These leave nothing. What is not known to be one of them is none. */
static const int looks[] = {
	SYS_read,
	SYS_pread64,
	SYS_openat2,
	SYS_getgroups,
	SYS_lseek,
	SYS_close,
	SYS_fstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_fstatfs,
	SYS_statfs,
	SYS_getdents64,
	SYS_readlinkat,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_fgetxattr,
	SYS_getxattr,
	SYS_lgetxattr,
	SYS_flistxattr,
	SYS_listxattr,
	SYS_llistxattr,
	SYS_mmap,
	SYS_munmap,
	SYS_mprotect,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	SYS_futex,
	SYS_ppoll,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_getpid,
	SYS_gettid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getrandom,
	SYS_prlimit64,
	SYS_set_tid_address,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_uname,
	SYS_getcwd,
	SYS_sysinfo,
	SYS_clock_gettime,
	SYS_clock_nanosleep,
	SYS_sched_getaffinity,
	SYS_name_to_handle_at,
	SYS_fcntl,
	SYS_dup,
	SYS_dup3,
	SYS_fadvise64,
	SYS_umask,
#ifdef SYS_access
	SYS_access,
	SYS_stat,
	SYS_lstat,
	SYS_poll,
	SYS_readlink,
	SYS_arch_prctl,
	SYS_dup2,
#endif
};

#define N_LOOKS (sizeof(looks) / sizeof(looks[0]))
_Static_assert(N_LOOKS <= LOOKS_MAX, "jumps of a filter are short");

/* From now on, in all this process becomes and starts, calls that do not only look stop for the tracer. */
static int install_filter(void)
{
	struct sock_filter code[LOOKS_MAX + 9];
	struct sock_fprog program = { .filter = code };
	unsigned short n = 0, at_end = N_LOOKS + 7;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                         offsetof(struct seccomp_data, arch));
	code[n++] =
		(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 0, N_LOOKS + 5);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                         offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < N_LOOKS; i++, n++)
		code[n] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)looks[i],
		                                     (uint8_t)(at_end - n - 1), 0);
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 2);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                         offsetof(struct seccomp_data, args[2]));
	code[n++] =
		(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | O_TRUNC, 0, 1);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = n;
	if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void become(char **argv)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execvp(argv[0], argv);
	_exit(EXIT_TROUBLE);
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		(void)ptrace(PTRACE_TRACEME, 0, 0, 0);
		(void)raise(SIGSTOP);
		become(argv);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, 0, TRACE_OPTIONS) < 0)
		return -1;
	(void)ptrace(PTRACE_SYSCALL, pid, 0, 0);
	return pid;
}

static void kill_and_reap(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
}

/* None of its threads is resumed before somebody says so; that they were stopped is then forgotten. */
static void hold(pid_t pid, FILE *out, long calls)
{
	sigset_t set;
	int sig;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	(void)kill(pid, SIGSTOP);
	fprintf(out, "%ld\n", calls);
	(void)fflush(out);
	(void)sigwait(&set, &sig);
}

/* Exit status of the whole. */
static int follow(pid_t pid, long n, FILE *out, long *ret_calls)
{
	bool started = false;

	for (;;) {
		int status, sig = 0;
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0)
			return EXIT_TROUBLE;
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (tid != pid)
				continue;
			return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL;
		}
		if (WSTOPSIG(status) == SYSCALL_STOP) {
			bool *inside = inside_of(tid);

			*inside = !*inside;
			if (started && *inside && ++*ret_calls == labs(n)) {
				if (n > 0) {
					kill_and_reap(pid);
					return EXIT_KILLED;
				}
				hold(pid, out, *ret_calls);
			}
		} else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
			started = true;
		} else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP) {
			sig = WSTOPSIG(status);
		}
		(void)ptrace(PTRACE_SYSCALL, tid, 0, sig);
	}
}

/* ---- only what changes something ---- */

static pid_t start_filtered(char **argv)
{
	int gate[2];
	pid_t pid;

	if (pipe2(gate, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		char byte;

		(void)close(gate[1]);
		if (read(gate[0], &byte, 1) != 1 || install_filter() < 0)
			_exit(EXIT_TROUBLE);
		become(argv);
	}
	(void)close(gate[0]);
	if (pid > 0 &&
	    (ptrace(PTRACE_SEIZE, pid, 0, FILTER_OPTIONS) < 0 || write(gate[1], "", 1) != 1))
		pid = -1;
	(void)close(gate[1]);
	return pid;
}

struct filtered {
	pid_t pid;
	long n, calls;
	bool started;
	FILE *held; /* says where it is held; NULL: it is killed */
	bool killed;
};

/* What TID stopped for is dealt with, and it goes on. */
static void stopped(struct filtered *f, pid_t tid, int status)
{
	int event = status >> 16, sig = 0;

	if (event == PTRACE_EVENT_SECCOMP) {
		/* A thread of the command, and not of something it started? */
		if (f->started && syscall(SYS_tgkill, f->pid, tid, 0) == 0 && ++f->calls == f->n) {
			if (!f->held) {
				f->killed = true;
				(void)kill(f->pid, SIGKILL);
				return;
			}
			hold(f->pid, f->held, f->calls);
		}
	} else if (event == PTRACE_EVENT_EXEC && tid == f->pid) {
		f->started = true;
	} else if (event == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP) {
		(void)ptrace(PTRACE_LISTEN, tid, 0, 0);
		return;
	} else if (event == 0 && !(f->held && WSTOPSIG(status) == SIGSTOP)) {
		sig = WSTOPSIG(status);
	}
	(void)ptrace(PTRACE_CONT, tid, 0, sig);
}

/* Follows all until there is nothing left to follow; says into TELL how the command ended when it did. */
static void follow_filtered(struct filtered *f, FILE *out, int tell)
{
	for (;;) {
		int status;
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0)
			return;
		if (WIFSTOPPED(status)) {
			stopped(f, tid, status);
		} else if (tid == f->pid) {
			unsigned char code = f->killed ? EXIT_KILLED : EXIT_SIGNAL;

			if (!f->killed && WIFEXITED(status))
				code = (unsigned char)WEXITSTATUS(status);
			fprintf(out, "%ld\n", f->calls);
			if (fclose(out) != 0)
				code = EXIT_TROUBLE;
			(void)prctl(PR_SET_PDEATHSIG, 0);
			/* Whoever reads what the command says need not wait for this one. */
			(void)close(STDOUT_FILENO);
			(void)close(STDERR_FILENO);
			(void)write(tell, &code, 1);
			(void)close(tell);
		}
	}
}

static pid_t tracer;

static void pass_on(int sig)
{
	(void)kill(tracer, sig);
}

/* The tracer is another process, which may be needed for longer. */
static int run_filtered(long n, FILE *out, char **argv)
{
	unsigned char code = EXIT_TROUBLE;
	sigset_t set;
	int tell[2];
	ssize_t got;

	if (pipe2(tell, O_CLOEXEC) < 0)
		return EXIT_TROUBLE;
	tracer = fork();
	if (tracer == 0) {
		struct filtered f = { .n = labs(n), .held = n < 0 ? out : NULL };

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(tell[0]);
		f.pid = start_filtered(argv);
		if (f.pid > 0)
			follow_filtered(&f, out, tell[1]);
		_exit(0);
	}
	(void)close(tell[1]);
	(void)signal(SIGUSR1, pass_on);
	(void)sigemptyset(&set);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	do
		got = read(tell[0], &code, 1);
	while (got < 0 && errno == EINTR);
	return got == 1 ? code : EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
	sigset_t set;
	FILE *out;
	long calls = 0, n;
	pid_t pid;
	int status;

	if (argc < 4)
		return EXIT_TROUBLE;
	out = fopen(argv[2], "we");
	if (!out)
		return EXIT_TROUBLE;
	n = strtol(argv[1], NULL, 10);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	if (getenv("KILL_AT_CHANGES"))
		return run_filtered(n, out, argv + 3);
	pid = start(argv + 3);
	if (pid < 0)
		return EXIT_TROUBLE;
	status = follow(pid, n, out, &calls);
	fprintf(out, "%ld\n", calls);
	return fclose(out) == 0 ? status : EXIT_TROUBLE;
}
