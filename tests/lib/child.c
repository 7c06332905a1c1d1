/* SPDX-License-Identifier: Apache-2.0 */
/* KILL: other processes that run a part of a test and die, or read, while it goes on. */
#include "lib/atest.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_OPTION "--child"

bool atest_is_child(int argc, char **argv)
{
	return argc == 5 && strcmp(argv[1], CHILD_OPTION) == 0;
}

int atest_child_run(char **argv, const struct atest_child *children)
{
	faulty_register();
	for (; children && children->name; children++)
		if (strcmp(children->name, argv[2]) == 0)
			return children->fn(argv[3], argv[4]);
	fprintf(stderr, "no child named '%s'\n", argv[2]);
	return 127;
}

static char *const *with_env(const char *const *env)
{
	for (size_t i = 0; env && env[i]; i++)
		(void)putenv(strdup(env[i])); /* ours is the child's memory by now */
	return environ;
}

pid_t child_start(struct fix *f, const char *name, const char *arg, const char *const *env)
{
	char self[] = "/proc/self/exe", option[] = CHILD_OPTION;
	char *argv[] = { self, option, strdup(name), strdup(f->dir), strdup(arg ? arg : ""), NULL };
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		(void)execve(self, argv, with_env(env));
		_exit(127);
	}
	for (size_t i = 2; i < 5; i++)
		free(argv[i]);
	expect(pid > 0);
	return pid;
}

int child_wait(pid_t pid)
{
	int status = 0;
	pid_t r;

	do
		r = waitpid(pid, &status, 0);
	while (r < 0 && errno == EINTR);
	expect_eq(r, pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int child_run(struct fix *f, const char *name, const char *arg, const char *const *env)
{
	return child_wait(child_start(f, name, arg, env));
}

int fork_run(struct fix *f, int (*fn)(struct fix *f, void *user), void *user)
{
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		_exit(fn(f, user));
	}
	expect(pid > 0);
	return child_wait(pid);
}

struct reader_shared {
	atomic_bool stop;
	atomic_long rounds;
	atomic_bool failed;
};
struct reader {
	pid_t pid;
	struct reader_shared *shared;
};

struct reader *reader_start(int (*fn)(void *user), void *user)
{
	struct reader *r = calloc(1, sizeof(*r));

	expect(r != NULL);
	r->shared = mmap(NULL, sizeof(*r->shared), PROT_READ | PROT_WRITE,
	                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(r->shared != MAP_FAILED);
	(void)fflush(NULL);
	r->pid = fork();
	if (r->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		while (!atomic_load(&r->shared->stop) && !atomic_load(&r->shared->failed)) {
			if (fn(user) != 0)
				atomic_store(&r->shared->failed, true);
			atomic_fetch_add(&r->shared->rounds, 1);
		}
		_exit(0);
	}
	expect(r->pid > 0);
	return r;
}

long reader_stop(struct reader *r)
{
	long rounds;
	int status;

	atomic_store(&r->shared->stop, true);
	status = child_wait(r->pid);
	rounds = atomic_load(&r->shared->failed) || status != 0 ? -1
	                                                        : atomic_load(&r->shared->rounds);
	(void)munmap(r->shared, sizeof(*r->shared));
	free(r);
	return rounds;
}
