/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kill-at N FILE COMMAND...` runs a command under ptrace and kills it with SIGKILL when it is
 * about to make its N-th system call, all its threads counted together; the call itself does not
 * happen. N 0: never. FILE gets the number of calls made. Counting begins after exec, so what
 * the loader does counts too. `-N`: it is stopped there with SIGSTOP, FILE says so at once, and it goes
 * on when kill-at is sent SIGUSR1.
 *
 * With $KILL_AT_CHANGES only calls count that may leave something behind: whoever is killed before one
 * that only looks leaves what he leaves when he is killed before the next that does not.
 *
 * Exit status: 77 killed; 78 died of another signal; else the command's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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
#define THREADS_MAX 256

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

/* Is the call that TID is about to make one that counts? */
static bool counts(pid_t tid)
{
	struct __ptrace_syscall_info info = { .op = PTRACE_SYSCALL_INFO_NONE };

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return true;
	if (info.entry.nr == SYS_openat)
		return info.entry.args[2] & (O_CREAT | O_TRUNC);
	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
		if (info.entry.nr == (unsigned long)looks[i])
			return false;
	return true;
}

static pid_t start(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		sigset_t none;

		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)ptrace(PTRACE_TRACEME, 0, 0, 0);
		(void)raise(SIGSTOP);
		(void)execvp(argv[0], argv);
		_exit(EXIT_TROUBLE);
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
	bool started = false, only_changes = getenv("KILL_AT_CHANGES");

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
			if (started && *inside && (!only_changes || counts(tid)) &&
			    ++*ret_calls == labs(n)) {
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

int main(int argc, char **argv)
{
	sigset_t set;
	FILE *out;
	long calls = 0;
	pid_t pid;
	int status;

	if (argc < 4)
		return EXIT_TROUBLE;
	out = fopen(argv[2], "we");
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	pid = out ? start(argv + 3) : -1;
	if (pid < 0)
		return EXIT_TROUBLE;
	status = follow(pid, strtol(argv[1], NULL, 10), out, &calls);
	fprintf(out, "%ld\n", calls);
	return fclose(out) == 0 ? status : EXIT_TROUBLE;
}
