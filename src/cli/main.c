/* SPDX-License-Identifier: Apache-2.0 */
/* atoll: one table of commands. A new command is one file and one row here. */
#include "cli/cli.h"

#include "cli/suggest.h"
#include "util/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* In the order help shows them: work, look, decide, keep house. */
static const struct command *const commands[] = {
	&cmd_run,   &cmd_start,   &cmd_exec,   &cmd_shell,    &cmd_path,    &cmd_diff,
	&cmd_show,  &cmd_list,    &cmd_commit, &cmd_rollback, &cmd_reset,   &cmd_stop,
	&cmd_clean, &cmd_recover, &cmd_doctor, &cmd_help,     &cmd_version,
};

const struct option_row common_options[] = {
	{ "json", NULL, "one JSON object on standard output" },
	{ "wait", "SECONDS", "wait at most so long for a lock; 0: not at all (default: for ever)" },
	{ "color", "WHEN", "auto, always or never" },
	{ "yes", NULL, "ask nothing" },
	{ "help", NULL, "say how the command is used (also -h)" },
	{ NULL, NULL, NULL },
};

/* Before a command's name, where some other programs have these as options. */
static const struct option_row front_options[] = {
	{ "version", NULL, NULL },
	{ NULL, NULL, NULL },
};

const struct command *command_at(size_t i)
{
	return i < sizeof(commands) / sizeof(commands[0]) ? commands[i] : NULL;
}

const struct command *command_find(const char *name, struct error *err)
{
	struct suggestion s = { .wanted = name };
	const struct command *cmd;

	for (size_t i = 0; (cmd = command_at(i)); i++) {
		if (strcmp(cmd->name, name) == 0)
			return cmd;
		suggest_try(&s, cmd->name);
	}
	(void)error_set(err, -ATOLL_E_INVALID, "unknown command '%s'", name);
	if (s.best)
		error_hint(err, "did you mean '%s'?", s.best);
	else
		error_hint(err, "atoll help");
	return NULL;
}

static int set_color(struct cli *c, const char *when, struct error *err)
{
	static const char *const names[] = { "auto", "always", "never" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(when, names[i]) == 0) {
			c->color = (enum cli_color)i;
			return 0;
		}
	}
	return error_set(err, -ATOLL_E_INVALID,
	                 "option '--color': '%s' is not auto, always or never", when);
}

/* Options that every command has, wherever they stood. */
static int take_common(struct cli *c, const struct args *a, struct error *err)
{
	const char *color = args_value(a, "color");
	int r;

	c->json |= args_has(a, "json");
	c->yes |= args_has(a, "yes");
	r = args_seconds(a, "wait", &c->wait_ms, err);
	if (r == 0 && color)
		r = set_color(c, color, err);
	return r;
}

/* An option that is not understood must not hide a --json behind it. */
static bool wants_json(char **argv)
{
	for (; *argv && strcmp(*argv, "--") != 0; argv++)
		if (strcmp(*argv, "--json") == 0)
			return true;
	return false;
}

static int check_words(struct cli *c)
{
	const struct command *cmd = c->command;

	if (c->args.n_words < cmd->min_words)
		return cli_fail_usage(c, "%s: too few words: atoll %s %s", cmd->name, cmd->name,
		                      cmd->words);
	if (c->args.n_words > cmd->max_words)
		return cli_fail_usage(c, "%s: '%s' is one word too many: atoll %s %s", cmd->name,
		                      c->args.words[cmd->max_words], cmd->name, cmd->words);
	return 0;
}

static int run_command(struct cli *c, char **argv)
{
	struct error err = ERROR_INIT;
	int status, r;

	r = args_parse(&c->args, argv, c->command->options, common_options, c->command->stop_at,
	               &err);
	if (r == 0)
		r = take_common(c, &c->args, &err);
	if (r < 0) {
		c->json |= wants_json(argv);
		return cli_fail_error(c, &err);
	}
	if (args_has(&c->args, "help")) {
		help_command(stdout, c->command);
		return EXIT_SUCCESS;
	}
	status = check_words(c);
	return status ? status : c->command->run(c);
}

/* The first word is the command; what is before it are options for all. */
static int dispatch(struct cli *c, char **argv)
{
	struct error err = ERROR_INIT;
	struct args front = ARGS_INIT;
	const char *name = "help";
	int r;

	r = args_parse(&front, argv, front_options, common_options, 1, &err);
	if (r == 0)
		r = take_common(c, &front, &err);
	if (r == 0) {
		if (args_has(&front, "version"))
			name = "version";
		else if (front.n_words > 0)
			name = front.words[0];
		c->command = command_find(name, &err);
	}
	if (!c->command) {
		c->json |= wants_json(argv);
		args_done(&front);
		return cli_fail_error(c, &err);
	}
	if (front.n_words == 0) {
		/* Asked for, it is an answer; else it says what was missing. */
		bool asked = args_has(&front, "help") || args_has(&front, "version");
		char *none[] = { NULL };

		args_done(&front);
		if (asked)
			return run_command(c, none);
		c->command = NULL;
		return cli_fail_usage(c, "which command?");
	}
	r = run_command(c, front.words + 1);
	args_done(&front);
	return r;
}

/* A full disk under standard output is a failure like any other. */
static int flush_output(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	perror("atoll: cannot write to standard output");
	return status ? status : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct cli c = { .res = atoll_result_new(), .wait_ms = -1 };
	int status;

	status = dispatch(&c, argc > 0 ? argv + 1 : argv);
	status = flush_output(status);
	atoll_plan_free(c.plan);
	atoll_close(c.atoll);
	atoll_result_free(c.res);
	args_done(&c.args);
	return status;
}
