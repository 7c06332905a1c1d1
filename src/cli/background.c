/* SPDX-License-Identifier: Apache-2.0 */
/* The child says by one byte that the job runs; without it, its exit status is ours. */
#include "cli/background.h"

#include "plan/plan.h"
#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int told_fd = FD_NONE;

/* From here on nobody listens, and nobody is to wait for what we have open. */
static void on_began(void *ctx)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)ctx;
	(void)prctl(PR_SET_PDEATHSIG, 0);
	(void)fflush(NULL);
	for (int fd = 0; fd <= 2 && null_fd >= 0; fd++)
		(void)dup2(null_fd, fd);
	close_fd(&null_fd);
	(void)(write(told_fd, "", 1) < 0); /* its parent may be gone: it goes on all the same */
	close_fd(&told_fd);
	(void)(chdir("/") < 0);
}

static void become_child(pid_t parent)
{
	(void)setsid();
	/* Whoever is interrupted while it waits for the plan wants no job. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_OWN);
	plan_exec_on_job(on_began, NULL);
}

static int await(pid_t pid, int fd, bool *ret_began)
{
	int status = 0;
	char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	*ret_began = n == 1;
	if (*ret_began)
		return EXIT_SUCCESS;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int report(struct cli *c)
{
	const char *name = args_value(&c->args, "background");
	struct json j;
	int status = cli_open_plan(c);

	if (status)
		return status;
	cli_say(c, "job %s runs in plan %s", name, atoll_plan_name(c->plan));
	cli_next(c, "atoll job log %s %s, atoll job stop %s %s", atoll_plan_name(c->plan), name,
	         atoll_plan_name(c->plan), name);
	if (c->json) {
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
		json_string(&j, "job", name);
		cli_json_end(&j);
	}
	return EXIT_SUCCESS;
}

static int fail(struct cli *c, const char *what)
{
	struct error err = ERROR_INIT;

	(void)error_sys(&err, -errno, what, "the background");
	return cli_fail_error(c, &err);
}

bool background_go(struct cli *c, int *ret)
{
	pid_t self = getpid(), pid;
	bool began;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0) {
		*ret = fail(c, "talk to");
		return false;
	}
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		(void)close(ends[0]);
		told_fd = ends[1];
		become_child(self);
		return true;
	}
	(void)close(ends[1]);
	if (pid < 0) {
		*ret = fail(c, "go to");
		(void)close(ends[0]);
		return false;
	}
	*ret = await(pid, ends[0], &began);
	(void)close(ends[0]);
	if (began)
		*ret = report(c);
	/* The status file is the job's to write. */
	if (c->status)
		(void)fclose(c->status);
	c->status = NULL;
	return false;
}
