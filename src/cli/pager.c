/* SPDX-License-Identifier: Apache-2.0 */
/* The pager: a shell command that reads what we print. */
#include "cli/pager.h"

#include "util/cleanup.h"
#include "util/child.h"
#include "util/clock.h"
#include "util/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_in_path(const char *program)
{
	cleanup_free char *path = xstrdup(getenv("PATH"));
	char *save = NULL;

	for (char *dir = path ? strtok_r(path, ":", &save) : NULL; dir;
	     dir = strtok_r(NULL, ":", &save)) {
		cleanup_free char *file = xasprintf("%s/%s", dir, program);

		if (access(file, X_OK) == 0)
			return true;
	}
	return false;
}

/* NULL: none. What somebody chose is taken at his word; less is only used where it is. */
static const char *choose(const struct cli *c)
{
	const char *chosen = getenv("ATOLL_PAGER");

	if (!chosen && *c->settings.v[SETTING_CORE_PAGER].text)
		chosen = c->settings.v[SETTING_CORE_PAGER].text;
	if (!chosen)
		chosen = getenv("PAGER");
	if (!chosen)
		chosen = is_in_path("less") ? "less" : "";
	return *chosen && strcmp(chosen, "cat") != 0 ? chosen : NULL;
}

static int spawn(struct child *pager, const char *command, int input)
{
	const char *const argv[] = { "sh", "-c", command, NULL };
	const struct child_fd fds[] = { { input, STDIN_FILENO } };
	const struct child_options opt = { .file = "/bin/sh",
		                           .argv = argv,
		                           .fds = fds,
		                           .n_fds = 1 };

	/* Ours from now on, too, but nothing else of ours asks for them. */
	(void)setenv("LESS", "FRX", 0);
	(void)setenv("LV", "-c", 0);
	return child_spawn(pager, &opt);
}

void pager_start(struct cli *c)
{
	const char *command;
	int ends[2];

	if (c->json || c->no_pager || !c->command->pages || !isatty(STDOUT_FILENO))
		return;
	command = choose(c);
	if (!command || pipe2(ends, O_CLOEXEC) < 0)
		return;
	if (spawn(&c->pager, command, ends[0]) == 0) {
		c->paged = true;
		(void)dup2(ends[1], STDOUT_FILENO);
		c->paged_errors = isatty(STDERR_FILENO);
		if (c->paged_errors)
			(void)dup2(ends[1], STDERR_FILENO);
		/* ^C is the pager's; leaving it ends us. */
		(void)signal(SIGINT, SIG_IGN);
		(void)signal(SIGPIPE, SIG_DFL);
	}
	(void)close(ends[0]);
	(void)close(ends[1]);
}

void pager_end(struct cli *c)
{
	if (!c->paged)
		return;
	(void)fflush(stderr);
	/* Our ends of the pipe: the reader sees the end when all are closed. */
	(void)close(STDOUT_FILENO);
	if (c->paged_errors)
		(void)close(STDERR_FILENO);
	(void)child_wait(&c->pager, CLOCK_NEVER, NULL);
}
