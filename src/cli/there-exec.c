/* SPDX-License-Identifier: Apache-2.0 */
/* atoll --remote NAME exec, shell: a command on another machine, with the state of here. */
#include "cli/command.h"
#include "cli/there-cycle.h"
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Given, not set: the settings of here say nothing about there. The caller frees. */
static struct atoll_exec_option *options_given(const struct cli *c, size_t *ret_n)
{
	static const char *const names[] = { "env",  "unset", "net",        "memory",
		                             "cpus", "pids",  "transcript", "unfenced" };
	struct atoll_exec_option *v = xcalloc(c->args.n_given + 1, sizeof(*v));
	size_t n = 0;

	for (size_t g = 0; g < c->args.n_given; g++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (strcmp(c->args.given[g].row->name, names[i]) == 0)
				v[n++] = (struct atoll_exec_option){ names[i],
					                             c->args.given[g].value };
	*ret_n = n;
	return v;
}

/* Where it begins: --dir names the project from elsewhere, and then it begins at its root. */
static char *place(const struct cli *c, const char *given)
{
	if (given)
		return given[0] == '/' ? xstrdup(given) : realpath(given, NULL);
	return args_has(&c->args, "dir") ? NULL : realpath(".", NULL);
}

static int run_words(struct there_run *t, const struct atoll_exec *exec, char **words, size_t n)
{
	struct cli *c = t->c;
	cleanup_free const char **argv = xcalloc(n + 1, sizeof(*argv));
	cleanup_free struct atoll_exec_option *options = options_given(c, &t->run.n_options);
	cleanup_free char *cwd = place(c, exec->cwd);
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < n; i++)
		argv[i] = words[i];
	t->run.argv = argv;
	t->run.options = options;
	t->run.fence = exec->fence;
	t->run.timeout_ms = exec->timeout_ms;
	t->run.cwd = cwd;
	t->run.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	(void)fflush(stdout);
	if (remote_cycle(t->session, &t->run, &t->out, &err) < 0)
		return there_fail(t, &err);
	c->ran = &t->out.status;
	there_say(t);
	there_report(t);
	return command_end(c);
}

static int run_there(struct cli *c, char **words, size_t n, bool shell)
{
	struct atoll_exec exec = { .timeout_ms = c->settings.v[SETTING_EXEC_TIMEOUT].number };
	struct there_run t;
	int status = command_options(c, &exec);

	there_init(&t, c, REMOTE_EXEC);
	t.run.suspends = !shell;
	if (status == 0)
		status = there_open(c, false, NULL, &t.session);
	if (status == 0)
		status = run_words(&t, &exec, words, n);
	c->ran = NULL;
	there_done(&t);
	return status;
}

/* ---- exec ---- */

static int exec_run(struct cli *c)
{
	return run_there(c, c->args.words, c->args.n_words, false);
}

static const struct option_row options[] = {
	THERE_OPTIONS,
	THERE_CYCLE_OPTIONS,
	COMMAND_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command there_exec = {
	.name = "exec",
	.run = exec_run,
	.words = "[--] COMMAND [ARGUMENT]...",
	.summary = "run a command on another machine, with the state of here",
	.about =
		"What differs from the last time is sent, the command runs there, what it changed is\n"
		"brought back and committed here, all of it or, where something here was edited\n"
		"meanwhile, none: then it is kept in a plan, which is named. The exit status is the\n"
		"command's in any case; 125 when atoll itself failed, 126 and 127 when the command\n"
		"cannot be run or found there.",
	.options = options,
	.min_words = 1,
	.max_words = SIZE_MAX,
	.stop_at = 1,
	.own_exit = EXIT_OWN,
};

/* ---- shell ---- */

/* Which shell there is there is not known here. */
static int shell_run(struct cli *c)
{
	char sh[] = "/bin/sh", flag[] = "-c", script[] = "exec \"${SHELL:-/bin/sh}\"",
	     *words[] = { sh, flag, script, NULL };

	return run_there(c, words, 3, true);
}

const struct command there_shell = {
	.name = "shell",
	.run = shell_run,
	.words = "",
	.summary = "open a shell on another machine, with the state of here",
	.about = "Runs the $SHELL of there, else /bin/sh, as atoll --remote exec would.",
	.options = options,
	.max_words = 0,
	.own_exit = EXIT_OWN,
};
