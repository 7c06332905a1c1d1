/* SPDX-License-Identifier: Apache-2.0 */
/* The pager: a shell command that reads what we print. */
#include "cli/pager.h"

#include "util/cleanup.h"
#include "util/child.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/run.h"
#include "util/strbuf.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGER_MAX 4096 /* bytes of a command */
#define GIT_MS    2000 /* for git to read its settings */

/* Whether a shell would find PROGRAM, which also knows builtins and functions: so it is asked. */
static bool can_run(const char *program)
{
	const char *const argv[] = { "sh", "-c",    "command -v \"$1\" >/dev/null 2>&1",
		                     "sh", program, NULL };
	const struct child_options opt = { .file = "/bin/sh", .argv = argv };
	struct child shell = CHILD_INIT;
	int status = 0;

	return child_spawn(&shell, &opt) == 0 && child_wait(&shell, CLOCK_NEVER, &status) == 0 &&
	       status == 0;
}

#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-"

/* The program that COMMAND starts with, behind assignments; the caller frees. NULL where only a
 * shell can tell. */
static char *program_of(const char *command)
{
	for (;;) {
		size_t len;

		command += strspn(command, " \t");
		len = strspn(command, PLAIN "=:,%");
		if (len == 0 || (command[len] && !strchr(" \t;|&<>", command[len])))
			return NULL;
		if (!memchr(command, '=', len))
			return strspn(command, PLAIN) >= len ? xstrndup(command, len) : NULL;
		command += len;
	}
}

/* git's, as the user or the machine has set it; the caller frees. "": none is set. Not a repository's: that can come
 * from anywhere. */
static char *git_pager(void)
{
	static const char script[] = "unset GIT_DIR GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT "
				     "GIT_CONFIG_PARAMETERS; exec git config --get core.pager";
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct run run = { .file = "/bin/sh",
		                 .argv = argv,
		                 .envp = (const char *const *)environ,
		                 .cwd = "/",
		                 .in_fd = FD_NONE,
		                 .out_fd = FD_NONE,
		                 .held_fd = FD_NONE,
		                 .max = PAGER_MAX,
		                 .deadline = clock_deadline(GIT_MS) };
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int status = 0;

	if (run_program(&run, &out, NULL, &status) < 0 || status != 0)
		return xstrdup("");
	return xstrndup(strbuf_str(&out), strcspn(strbuf_str(&out), "\n"));
}

/* The caller frees; NULL: none. What the user chose is used as it is, less only where it is installed. */
static char *choose(const struct cli *c)
{
	cleanup_free char *of_git = NULL;
	const char *chosen = getenv("ATOLL_PAGER");

	if (!chosen && *c->settings.v[SETTING_CORE_PAGER].text)
		chosen = c->settings.v[SETTING_CORE_PAGER].text;
	if (!chosen)
		chosen = getenv("PAGER");
	if (!chosen && *(of_git = git_pager()))
		chosen = of_git;
	if (!chosen)
		chosen = can_run("less") ? "less" : "";
	return *chosen && strcmp(chosen, "cat") != 0 ? xstrdup(chosen) : NULL;
}

/* Without this the output would be lost: a shell that finds no program reads nothing. */
static bool is_there(const struct cli *c, const char *command)
{
	cleanup_free char *program = program_of(command);

	if (!program || can_run(program))
		return true;
	cli_say(c, "atoll: there is no pager '%s', so this is printed as it is", program);
	cli_next(
		c,
		"name another in ATOLL_PAGER, core.pager (atoll config, or git config) or PAGER, or say --no-pager");
	return false;
}

static int spawn(struct child *pager, const char *command, int input, int output)
{
	const char *const argv[] = { "sh", "-c", command, NULL };
	const struct child_fd fds[] = { { input, STDIN_FILENO }, { output, STDOUT_FILENO } };
	const struct child_options opt = { .file = "/bin/sh",
		                           .argv = argv,
		                           .fds = fds,
		                           .n_fds = 2 };

	/* Ours from now on, too, but nothing else of ours asks for them. */
	(void)setenv("LESS", "FRX", 0);
	(void)setenv("LV", "-c", 0);
	return child_spawn(pager, &opt);
}

void pager_start(struct cli *c)
{
	cleanup_free char *command = NULL;
	int ends[2];

	/* What has no end is for no pager. */
	if (c->json || c->no_pager || !c->command->pages || args_has(&c->args, "follow") ||
	    !isatty(STDOUT_FILENO))
		return;
	command = choose(c);
	if (!command || !is_there(c, command) || pipe2(ends, O_CLOEXEC) < 0)
		return;
	if (spawn(&c->pager, command, ends[0], STDOUT_FILENO) == 0) {
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

void pager_open(struct cli *c, struct pager *p)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	cleanup_free char *command = c->no_pager ? NULL : choose(c);
	int ends[2];

	*p = (struct pager){ .f = stderr, .child = CHILD_INIT };
	if (command && is_there(c, command) && pipe2(ends, O_CLOEXEC) == 0) {
		if (spawn(&p->child, command, ends[0], STDERR_FILENO) == 0)
			p->f = fdopen(take_fd(&ends[1]), "w");
		(void)close(ends[0]);
		close_fd(&ends[1]);
	}
	if (!p->f)
		p->f = stderr;
	(void)sigaction(SIGINT, &ignore, &p->interrupt);
	(void)sigaction(SIGPIPE, &ignore, &p->pipe);
}

void pager_close(struct pager *p)
{
	if (p->f != stderr)
		(void)fclose(p->f);
	if (p->child.pid > 0)
		(void)child_wait(&p->child, CLOCK_NEVER, NULL);
	child_done(&p->child);
	(void)sigaction(SIGINT, &p->interrupt, NULL);
	(void)sigaction(SIGPIPE, &p->pipe, NULL);
}
