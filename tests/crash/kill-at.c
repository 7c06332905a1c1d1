/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kill-at N FILE COMMAND...` runs a command under ptrace and kills it with SIGKILL when it is
 * about to make its N-th system call, all its threads counted together; the call itself does not
 * happen. N 0: never. FILE gets the number of calls made. Counting begins after exec, so what
 * the loader does counts too.
 *
 * Exit status: 77 killed; 78 died of another signal; else the command's.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
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

static pid_t start(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
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

/* Exit status of the whole. */
static int follow(pid_t pid, long n, long *ret_calls)
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
			if (started && *inside && ++*ret_calls == n) {
				kill_and_reap(pid);
				return EXIT_KILLED;
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
	FILE *out;
	long calls = 0;
	pid_t pid;
	int status;

	if (argc < 4)
		return EXIT_TROUBLE;
	out = fopen(argv[2], "we");
	pid = out ? start(argv + 3) : -1;
	if (pid < 0)
		return EXIT_TROUBLE;
	status = follow(pid, strtol(argv[1], NULL, 10), &calls);
	fprintf(out, "%ld\n", calls);
	return fclose(out) == 0 ? status : EXIT_TROUBLE;
}
