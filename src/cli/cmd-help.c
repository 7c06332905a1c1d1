/* SPDX-License-Identifier: Apache-2.0 */
/* atoll help: what the tables of the commands say. Opens nothing. */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

#define COLUMN  26 /* where the explanations begin, */
#define COLUMN2 44 /* and those of examples */

/* The published exit codes. README, help and manual pages show this table. */
static const struct {
	const char *status;
	const char *others;  /* of commands that have their own; NULL: they never do */
	const char *command; /* of exec, run and shell */
} exits[] = {
	{ "0", "done", "the command's" },
	{ "1", "failed, or `diff --exit-code` found changes", "the command's" },
	{ "2", "wrong usage", "the command's" },
	{ "3",
	  "conflict: the same thing was changed outside the plan, or it is not what was looked at; nothing was changed",
	  "the command's" },
	{ "4", "refused by policy; nothing was changed", "the command's" },
	{ "5", "timed out waiting for a lock; its holder is named", "the command's" },
	{ "6",
	  "not possible on this host (`atoll doctor` says what is missing), or no daemon answers there",
	  "the command's" },
	{ "7", "needs recovery; nothing more was touched", "the command's" },
	{ "124", NULL, "its time was up" },
	{ "125", NULL,
	  "Atoll itself failed, timed out waiting for a lock, or (`run`) the commit was refused" },
	{ "126, 127", NULL, "the command cannot be run, cannot be found" },
	{ "128+N", NULL, "signal N ended it" },
};
#define N_EXITS (sizeof(exits) / sizeof(exits[0]))

/* ---- for people ---- */

/* TEXT beginning at COLUMN, WIDTH being where the line is now. */
static void put_text(FILE *f, int column, int width, const char *text)
{
	while (text) {
		int len = (int)strcspn(text, "\n");

		if (width >= column)
			(void)fprintf(f, "\n%*s", column, "");
		else
			(void)fprintf(f, "%*s", column - width, "");
		(void)fprintf(f, "%.*s", len, text);
		text = text[len] ? text + len + 1 : NULL;
		width = column;
	}
	(void)fputc('\n', f);
}

static void put_options(FILE *f, const struct option_row *o)
{
	for (; o && o->name; o++) {
		char letter = option_letter(o->name);
		int width = letter ? fprintf(f, "  -%c, ", letter) : fprintf(f, "  ");

		width += fprintf(f, "--%s%s%s", o->name, o->value ? " " : "",
		                 o->value ? o->value : "");
		put_text(f, COLUMN, width, o->help);
	}
}

static void put_examples(FILE *f, const struct command *cmd, bool remote)
{
	const struct example *e;
	bool any = false;

	for (size_t i = 0; (e = example_at(i)); i++) {
		if (strcmp(e->command, cmd->name) != 0 || e->remote != remote)
			continue;
		(void)fputs(any ? "" : "\nexamples:\n", f);
		put_text(f, COLUMN2, fprintf(f, "  %s", e->typed), e->does);
		any = true;
	}
}

/* What PLAN can be, and which one is meant without it. */
static void put_plan(FILE *f, const struct command *cmd)
{
	if (!strstr(cmd->words, "PLAN"))
		return;
	(void)fprintf(f, "\nPLAN is a name or an id%s, or - for the only plan there is.\n",
	              cmd->paths_follow || cmd->whole_names ? ", whole"
	                                                    : ", or the beginning of either");
	if (cmd->pick == PICK_LATEST)
		(void)fputs("Without it: the last used of those whose resources hold the current "
		            "directory.\n",
		            f);
	if (cmd->pick == PICK_AT_WORK)
		(void)fputs("Without it: of those whose resources hold the current directory, the "
		            "only one with\nuncommitted changes or a running command.\n",
		            f);
}

/* CMD is the row that is meant: here, or REMOTE. */
static void put_command(FILE *f, const struct command *cmd, bool remote)
{
	(void)fprintf(f, "usage: atoll%s %s%s%s%s\n\n%s\n", remote ? " --remote NAME" : "",
	              cmd->name, cmd->options ? " [OPTION]..." : "", *cmd->words ? " " : "",
	              cmd->words, cmd->summary);
	put_examples(f, cmd, remote);
	if (cmd->also)
		(void)fprintf(f, "\nalso accepted: %s\n", cmd->also);
	if (cmd->about)
		(void)fprintf(f, "\n%s\n", cmd->about);
	if (cmd->options) {
		(void)fputs("\noptions:\n", f);
		put_options(f, cmd->options);
	}
	(void)fputs("\noptions of every command:\n", f);
	put_options(f, common_options);
	put_plan(f, cmd);
	if (cmd->there)
		(void)fprintf(f, "\non another machine: atoll help %s --remote NAME\n", cmd->name);
	(void)fprintf(f, "\nmore: man atoll-%s\n", cmd->name);
}

static void put_exits(FILE *f)
{
	for (size_t i = 0; i < N_EXITS; i++)
		if (exits[i].others)
			(void)fprintf(f, "  %-9s %s\n", exits[i].status, exits[i].others);
	(void)fputs("\nexit status of exec, run and shell: the command's, or\n", f);
	for (size_t i = 0; i < N_EXITS; i++)
		if (!exits[i].others)
			(void)fprintf(f, "  %-9s %s\n", exits[i].status, exits[i].command);
}

static void put_overview(FILE *f)
{
	const struct command *cmd;

	(void)fputs("usage: atoll COMMAND [OPTION]... [WORD]...\n\n"
	            "Private writable copies of several directories, committed together: all or "
	            "nothing.\n\n",
	            f);
	for (size_t i = 0; (cmd = command_at(i)); i++)
		if (!cmd->hidden)
			(void)fprintf(f, "  %-10s %s\n", cmd->name, cmd->summary);
	(void)fputs("\noptions of every command:\n", f);
	put_options(f, common_options);
	(void)fputs("\nexit status:\n", f);
	put_exits(f);
	(void)fputs("\nfirst steps: atoll run -- COMMAND, or atoll start NAME --dir DIR\n"
	            "more: atoll help COMMAND, man atoll\n",
	            f);
}

void help_everyday(FILE *f)
{
	const struct command *cmd;

	(void)fputs("usage: atoll COMMAND [OPTION]... [WORD]...\n\n", f);
	for (size_t i = 0; (cmd = command_at(i)); i++)
		if (cmd->everyday)
			(void)fprintf(f, "  %-10s %s\n", cmd->name, cmd->summary);
	(void)fputs("\nto begin, in a project: atoll run -- COMMAND\n"
	            "all commands: atoll help; about one: atoll help COMMAND\n",
	            f);
}

/* ---- for programs, among them those that make the manual pages ---- */

static void json_value(struct json *j, const char *value)
{
	const char *word, *at = NULL;
	size_t len;

	json_string(j, "value", value);
	json_string(j, "kind", value_kind_name(value_kind(value)));
	if (value_kind(value) != VALUE_CHOICE)
		return;
	json_open_array(j, "choices");
	while ((word = value_choice(value, &at, &len))) {
		cleanup_free char *text = xstrndup(word, len);

		json_string(j, NULL, text);
	}
	json_close(j);
}

static void json_option(struct json *j, const struct option_row *o, const char *prefix)
{
	cleanup_free char *help = xasprintf("%s%s", prefix, o->help);
	char letter[2] = { option_letter(o->name), '\0' };

	json_open_object(j, NULL);
	json_string(j, "name", o->name);
	json_string(j, "letter", *letter ? letter : NULL);
	json_value(j, o->value);
	json_string(j, "help", help);
	json_close(j);
}

static bool is_in(const struct option_row *table, const char *name)
{
	for (; table && table->name; table++)
		if (strcmp(table->name, name) == 0)
			return true;
	return false;
}

/* THERE: those that the command has at a remote, too. */
static void json_options(struct json *j, const struct option_row *own,
                         const struct option_row *there)
{
	json_open_array(j, "options");
	for (const struct option_row *o = own; o && o->name; o++)
		json_option(j, o, "");
	for (const struct option_row *o = there; o && o->name; o++)
		if (!is_in(own, o->name))
			json_option(j, o, "with --remote: ");
	json_close(j);
}

static void json_words(struct json *j, const char *words)
{
	const char *name, *before = NULL;
	size_t len;

	json_open_array(j, "word_kinds");
	for (size_t i = 0; (name = words_at(words, i, &len)) && name != before; i++) {
		cleanup_free char *text = xstrndup(name, len);

		json_string(j, NULL, value_kind_name(value_kind(text)));
		before = name;
	}
	json_close(j);
}

/* The words of TEXT, which may be NULL. */
static void json_list(struct json *j, const char *key, const char *text)
{
	json_open_array(j, key);
	while (text && *text) {
		size_t len = strcspn(text, " ");
		cleanup_free char *word = xstrndup(text, len);

		json_string(j, NULL, word);
		text += len + (text[len] == ' ');
	}
	json_close(j);
}

static void json_examples(struct json *j, const struct command *cmd)
{
	const struct example *e;

	json_open_array(j, "examples");
	for (size_t i = 0; (e = example_at(i)); i++) {
		if (strcmp(e->command, cmd->name) != 0)
			continue;
		json_open_object(j, NULL);
		json_string(j, "typed", e->typed);
		json_string(j, "does", e->does);
		json_bool(j, "remote", e->remote);
		json_close(j);
	}
	json_close(j);
}

static void json_command(struct json *j, const struct command *cmd)
{
	json_open_object(j, NULL);
	json_string(j, "name", cmd->name);
	json_list(j, "also", cmd->also);
	json_bool(j, "everyday", cmd->everyday);
	json_string(j, "object", cmd->object ? cmd->object : cmd->name);
	json_string(j, "words", cmd->words);
	json_words(j, cmd->words);
	json_string(j, "summary", cmd->summary);
	json_examples(j, cmd);
	json_string(j, "about", cmd->about);
	json_bool(j, "command_exit", cmd->own_exit != 0);
	json_string(j, "remote_words", cmd->there ? cmd->there->words : NULL);
	json_string(j, "remote_summary", cmd->there ? cmd->there->summary : NULL);
	json_options(j, cmd->options, cmd->there ? cmd->there->options : NULL);
	json_close(j);
}

static void put_json(const struct command *only)
{
	const struct other_word *other;
	const struct command *cmd;
	struct json j;

	json_init(&j, stdout);
	json_open_object(&j, NULL);
	json_string(&j, "format", "atoll.help/1"); /* also of "atoll commit --help" */
	json_string(&j, "version", atoll_version());
	json_open_array(&j, "commands");
	for (size_t i = 0; (cmd = command_at(i)); i++)
		if (!cmd->hidden && (!only || cmd == only))
			json_command(&j, cmd);
	json_close(&j);
	json_open_array(&j, "other_words");
	for (size_t i = 0; (other = other_word_at(i)); i++) {
		json_open_object(&j, NULL);
		json_string(&j, "word", other->word);
		json_string(&j, "purpose", other->purpose);
		json_string(&j, "command", other->command);
		json_close(&j);
	}
	json_close(&j);
	json_options(&j, common_options, NULL);
	json_open_array(&j, "exit_status");
	for (size_t i = 0; i < N_EXITS; i++) {
		json_open_object(&j, NULL);
		json_string(&j, "status", exits[i].status);
		json_string(&j, "others", exits[i].others);
		json_string(&j, "command", exits[i].command);
		json_close(&j);
	}
	json_close(&j);
	cli_json_end(&j);
}

int help_about(const struct cli *c, const struct command *cmd)
{
	if (c->json)
		put_json(cmd);
	else if (cmd)
		put_command(stdout, cmd, c->remote && cmd == c->command);
	else
		put_overview(stdout);
	return EXIT_SUCCESS;
}

static int help_run(struct cli *c)
{
	const struct command *cmd = NULL;
	struct error err = ERROR_INIT;

	if (c->args.n_words > 0) {
		cmd = command_find(c->args.words[0], &err);
		if (!cmd)
			return cli_fail_error(c, &err);
	}
	if (!c->json && c->remote && cmd && cmd->there) {
		put_command(stdout, cmd->there, true);
		return EXIT_SUCCESS;
	}
	return help_about(c, cmd);
}

static const struct command there_help = {
	.name = "help",
	.run = help_run,
	.words = "[COMMAND]",
	.summary = "say how a command is used on another machine",
	.max_words = 1,
	.pages = true,
	.bare = true,
};

const struct command cmd_help = {
	.name = "help",
	.run = help_run,
	.words = "[COMMAND]",
	.summary = "say how atoll or one of its commands is used",
	.max_words = 1,
	.pages = true,
	.bare = true,
	.there = &there_help,
};
