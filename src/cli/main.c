/* SPDX-License-Identifier: Apache-2.0 */
/* atoll: one table of commands. A new command is one file and one row here. */
#include "cli/cli.h"

#include "cli/interrupt.h"
#include "cli/pager.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/remedy.h"
#include "util/suggest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the order help shows them. */
static const struct command *const commands[] = {
	/* work */
	&cmd_run,
	&cmd_start,
	&cmd_add,
	&cmd_exec,
	&cmd_shell,
	&cmd_open,
	&cmd_job,
	/* look */
	&cmd_diff,
	&cmd_status,
	&cmd_list,
	&cmd_log,
	/* decide */
	&cmd_commit,
	&cmd_undo,
	&cmd_redo,
	&cmd_rollback,
	&cmd_discard,
	&cmd_refresh,
	&cmd_rm,
	/* keep house */
	&cmd_clean,
	&cmd_recover,
	&cmd_doctor,
	&cmd_lock,
	&cmd_config,
	/* other programs and machines */
	&cmd_serve,
	&cmd_remote,
	&cmd_token,
	/* about atoll */
	&cmd_completion,
	&cmd_help,
	&cmd_version,
	/* for scripts of ours */
	&cmd_complete,
};

const struct option_row common_options[] = {
	{ "json", NULL, "one JSON object on standard output" },
	{ "wait", "SECONDS", "wait at most so long for a lock; 0: not at all (default: for ever)" },
	{ "remote", "NAME", "do it at that remote, in this project's session ($ATOLL_REMOTE)" },
	{ "color", "auto|always|never", "whether to use colours (default: on a terminal)" },
	{ "no-pager", NULL, "print long output as it is" },
	{ "quiet", NULL, "do not say what could be typed next" },
	{ "yes", NULL, "ask nothing" },
	{ "help", NULL, "say how the command is used" },
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

/* It is one of the words in WORDS, which may be NULL. */
static bool is_among(const char *words, const char *name)
{
	size_t len = strlen(name);

	for (; words && *words; words += strcspn(words, " "), words += *words == ' ')
		if (strncmp(words, name, len) == 0 && (words[len] == ' ' || !words[len]))
			return true;
	return false;
}

const struct command *command_find(const char *name, struct error *err)
{
	const struct other_word *other = other_word_find(name);
	struct suggestions s = { .wanted = name };
	const struct command *cmd;

	for (size_t i = 0; (cmd = command_at(i)); i++) {
		if (strcmp(cmd->name, name) == 0 || is_among(cmd->also, name))
			return cmd;
		if (!cmd->hidden)
			suggest_try(&s, cmd->name, strlen(cmd->name));
	}
	if (other) {
		(void)error_set(err, -ATOLL_E_INVALID, "no such command; to %s: atoll %s",
		                other->purpose, other->command);
		error_hint(err, "atoll help");
		return NULL;
	}
	(void)error_set(err, -ATOLL_E_INVALID, "unknown command '%s'", name);
	error_hint(err, "atoll help; to run a program: atoll run -- COMMAND");
	suggest_hint(&s, "", err);
	return NULL;
}

static enum cli_color color_of(const char *when)
{
	if (strcmp(when, "always") == 0)
		return COLOR_ALWAYS;
	return strcmp(when, "never") == 0 ? COLOR_NEVER : COLOR_AUTO;
}

/* Options that every command has, wherever they stood. */
static int take_common(struct cli *c, const struct args *a, struct error *err)
{
	const char *color = args_value(a, "color");

	c->json |= args_has(a, "json");
	c->yes |= args_has(a, "yes");
	c->no_pager |= args_has(a, "no-pager");
	c->quiet |= args_has(a, "quiet");
	if (color)
		c->color = color_of(color);
	return args_seconds(a, "wait", &c->wait_ms, err);
}

/* An option that is not understood must not hide a --json behind it. */
static bool wants_json(char **argv)
{
	for (; *argv && strcmp(*argv, "--") != 0; argv++)
		if (strcmp(*argv, "--json") == 0)
			return true;
	return false;
}

/* A usage error that has no better hint says where to read. */
static int fail_parse(struct cli *c, char **argv, struct error *err)
{
	c->json |= wants_json(argv);
	if (!err->hint)
		error_hint(err, "atoll help%s%s", c->command ? " " : "",
		           c->command ? c->command->name : "");
	return cli_fail_error(c, err);
}

static int check_choices(struct cli *c)
{
	const struct command *cmd = c->command;
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < c->args.n_words; i++) {
		size_t len;
		const char *name = words_at(cmd->words, i, &len);
		cleanup_free char *text = name ? xstrndup(name, len) : NULL;

		if (text && value_check(cmd->name, text, c->args.words[i], &err) < 0) {
			if (!err.hint)
				error_hint(&err, "atoll help %s", cmd->name);
			return cli_fail_error(c, &err);
		}
	}
	return 0;
}

static int check_words(struct cli *c)
{
	const struct command *cmd = c->command;

	if (c->args.n_words < cmd->min_words)
		return cli_fail_usage(c, "%s: missing argument: atoll %s %s", cmd->name, cmd->name,
		                      cmd->words);
	if (c->args.n_words > cmd->max_words)
		return cli_fail_usage(c, "%s: unexpected argument '%s': atoll %s%s%s", cmd->name,
		                      c->args.words[cmd->max_words], cmd->name,
		                      *cmd->words ? " " : "", cmd->words);
	return check_choices(c);
}

/* Read before the options, which win over them. */
static void take_settings(struct cli *c)
{
	const struct setting_value *v = c->settings.v;

	(void)settings_load(&c->settings, &c->settings_err);
	c->color = (enum cli_color)v[SETTING_COLOR_UI].number;
	c->wait_ms = v[SETTING_LOCK_WAIT].number;
}

/* A line that cannot be understood may be one that forbids something: nothing is done then. */
static int check_settings(struct cli *c)
{
	for (size_t i = 0; i < c->settings.remarks.n; i++)
		cli_say(c, "atoll: %s", c->settings.remarks.v[i]);
	return c->settings_err.code && !c->command->bare ? cli_fail_error(c, &c->settings_err) : 0;
}

/* ---- here or there ---- */

static int not_there(struct cli *c, bool by_option)
{
	struct error err = ERROR_INIT;

	(void)error_set(&err, -ATOLL_E_INVALID, "%s cannot be used with --remote%s",
	                c->command->name, by_option ? "" : ", and $ATOLL_REMOTE is set");
	error_hint(&err, "%s",
	           by_option ? "without --remote it works on a plan of this machine"
	                     : "--remote '' has it work on a plan of this machine");
	return cli_fail_error(c, &err);
}

/* Which row is used must be known before its options can be read. FRONT: given before the command's
 * name. */
static int choose_place(struct cli *c, const char *front, char **argv)
{
	const struct command *there = c->command->there;
	const struct option_row *const tables[] = { c->command->options, common_options,
		                                    there ? there->options : NULL };
	const char *given = args_peek(argv, "remote", tables, sizeof(tables) / sizeof(tables[0]),
	                              there ? there->stop_at : c->command->stop_at);
	const char *name = given ? given : front;
	bool by_option = name != NULL;

	if (!name)
		name = getenv("ATOLL_REMOTE");
	if (!name || !*name)
		return 0;
	if (!there)
		return by_option || c->command->here_only ? not_there(c, by_option) : 0;
	c->remote = name;
	c->command = there;
	return 0;
}

static int run_command(struct cli *c, const char *front, char **argv)
{
	struct error err = ERROR_INIT;
	int status, r;

	status = choose_place(c, front, argv);
	if (status)
		return status;
	r = args_parse(&c->args, argv, c->command->options, common_options, c->command->stop_at,
	               &err);
	if (r == 0)
		r = take_common(c, &c->args, &err);
	if (r == 0 && args_value(&c->args, "remote") && *args_value(&c->args, "remote") &&
	    !c->remote)
		r = error_set(&err, -ATOLL_E_INVALID,
		              "%s: --remote stands before all words, and no plan is named then",
		              c->command->name);
	if (r < 0)
		return fail_parse(c, argv, &err);
	if (args_has(&c->args, "help"))
		return help_about(c, c->command);
	status = check_words(c);
	if (status == 0)
		status = check_settings(c);
	if (status)
		return status;
	pager_start(c);
	return c->command->run(c);
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
		args_done(&front);
		return fail_parse(c, argv, &err);
	}
	if (front.n_words == 0) {
		/* Asked for, it is an answer; else it says what was missing. */
		bool asked = args_has(&front, "help") || args_has(&front, "version");
		char *none[] = { NULL };

		args_done(&front);
		if (asked)
			return run_command(c, NULL, none);
		c->command = NULL;
		if (c->json)
			return cli_fail_usage(c, "which command?");
		help_everyday(stdout);
		return EXIT_USAGE;
	}
	r = run_command(c, args_value(&front, "remote"), front.words + 1);
	args_done(&front);
	return r;
}

/* A full disk under standard output is a failure like any other. */
static int flush_output(int status)
{
	bool failed_now = fflush(stdout) != 0;

	if (!failed_now && !ferror(stdout))
		return status;
	/* What failed earlier has left no errno worth printing. */
	(void)fprintf(stderr, "atoll: cannot write to standard output%s%s\n",
	              failed_now ? ": " : ", not all of it", failed_now ? strerror(errno) : "");
	return status ? status : EXIT_FAILURE;
}

/* Whoever asked for the status will look there and not at us. */
static int close_status(struct cli *c, int status)
{
	bool failed;
	int error;

	if (!c->status)
		return status;
	errno = 0;
	failed = ferror(c->status) != 0;
	failed |= fclose(c->status) != 0;
	error = errno ? errno : EIO;
	if (!failed)
		return status;
	(void)fputs("atoll: cannot write the status file '", stderr);
	cli_put_path(stderr, args_value(&c->args, "status-file"));
	(void)fprintf(stderr, "': %s; else the exit status would be %d\nhint: %s\n",
	              strerror(error), status, remedy_for(error));
	return EXIT_OWN;
}

/* What is closed is so for the command, too; but nothing of ours may get its number. */
static void keep_places(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int main(int argc, char **argv)
{
	struct cli c = { .argv = argv, .res = atoll_result_new() };
	int status;

	keep_places();
	take_settings(&c);
	status = dispatch(&c, argc > 0 ? argv + 1 : argv);
	status = flush_output(status);
	status = close_status(&c, status);
	pager_end(&c);
	atoll_plan_free(c.plan);
	store_program_ends();
	atoll_close(c.atoll);
	atoll_result_free(c.res);
	args_done(&c.args);
	fence_done(&c.fence);
	strlist_done(&c.ran_notes);
	settings_done(&c.settings);
	error_done(&c.settings_err);
	plan_exec_end();
	interrupt_obey();
	return status;
}
