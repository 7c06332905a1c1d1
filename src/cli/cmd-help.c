/* SPDX-License-Identifier: Apache-2.0 */
/* atoll help: what the tables of the commands say. Opens nothing. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define COLUMN 26 /* where the explanations begin */

static void put_option(FILE *f, const struct option_row *o)
{
	int width =
		fprintf(f, "  --%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
	const char *line = o->help;

	while (line) {
		int len = (int)strcspn(line, "\n");

		if (width >= COLUMN)
			(void)fprintf(f, "\n%*s", COLUMN, "");
		else
			(void)fprintf(f, "%*s", COLUMN - width, "");
		(void)fprintf(f, "%.*s", len, line);
		line = line[len] ? line + len + 1 : NULL;
		width = COLUMN;
	}
	(void)fputc('\n', f);
}

static void put_options(FILE *f, const struct option_row *o)
{
	for (; o && o->name; o++)
		put_option(f, o);
}

void help_command(FILE *f, const struct command *cmd)
{
	(void)fprintf(f, "usage: atoll %s%s%s%s\n\n%s\n", cmd->name,
	              cmd->options ? " [OPTION]..." : "", *cmd->words ? " " : "", cmd->words,
	              cmd->summary);
	if (cmd->about)
		(void)fprintf(f, "\n%s\n", cmd->about);
	if (cmd->options) {
		(void)fputs("\noptions:\n", f);
		put_options(f, cmd->options);
	}
	(void)fputs("\noptions of every command:\n", f);
	put_options(f, common_options);
	if (strncmp(cmd->words, "PLAN", 4) == 0)
		(void)fputs("\nPLAN is a name, an id, the beginning of either, or - for the only "
		            "plan there is.\n",
		            f);
}

void help_overview(FILE *f)
{
	const struct command *cmd;

	(void)fputs("usage: atoll COMMAND [OPTION]... [WORD]...\n\n"
	            "Private writable copies of several directories, committed together: all or "
	            "nothing.\n\n",
	            f);
	for (size_t i = 0; (cmd = command_at(i)); i++)
		(void)fprintf(f, "  %-10s %s\n", cmd->name, cmd->summary);
	(void)fputs("\noptions of every command:\n", f);
	put_options(f, common_options);
	(void)fputs("\nexit status: 0 done, 1 failed, 2 usage, 3 conflict, 4 refused by policy,\n"
	            "  5 lock wait timed out, 6 not possible on this host, 7 needs recovery;\n"
	            "  of exec: the command's, 124 time-out, 125 atoll itself, 126, 127 not run\n\n"
	            "atoll help COMMAND says more; so does the manual page, atoll(1).\n",
	            f);
}

static void json_options(struct json *j, const struct option_row *o)
{
	json_open_array(j, "options");
	for (; o && o->name; o++) {
		json_open_object(j, NULL);
		json_string(j, "name", o->name);
		json_string(j, "value", o->value);
		json_string(j, "help", o->help);
		json_close(j);
	}
	json_close(j);
}

static int help_json(const struct cli *c, const struct command *only)
{
	const struct command *cmd;
	struct json j;

	cli_json_begin(c, &j);
	json_open_array(&j, "commands");
	for (size_t i = 0; (cmd = command_at(i)); i++) {
		if (only && cmd != only)
			continue;
		json_open_object(&j, NULL);
		json_string(&j, "name", cmd->name);
		json_string(&j, "words", cmd->words);
		json_string(&j, "summary", cmd->summary);
		json_string(&j, "about", cmd->about);
		json_options(&j, cmd->options);
		json_close(&j);
	}
	json_close(&j);
	json_options(&j, common_options);
	cli_json_end(&j);
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
	if (c->json)
		return help_json(c, cmd);
	if (cmd)
		help_command(stdout, cmd);
	else
		help_overview(stdout);
	return EXIT_SUCCESS;
}

const struct command cmd_help = {
	.name = "help",
	.run = help_run,
	.words = "[COMMAND]",
	.summary = "say how atoll or one of its commands is used",
	.max_words = 1,
};
