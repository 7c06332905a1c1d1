/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll completion: the script that makes a shell complete atoll's command lines. The scripts are
 * the files in completions/, which are also installed; they ask `atoll __complete`, so that they
 * know nothing that could grow old.
 */
#include "cli/cli.h"

#include "cli/completion-scripts.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *shell;
	const unsigned char *text;
	size_t len;
	const char *next;
} scripts[] = {
	{ "bash", completion_bash, sizeof(completion_bash),
	  "eval \"$(atoll completion bash)\" in ~/.bashrc" },
	{ "zsh", completion_zsh, sizeof(completion_zsh),
	  "eval \"$(atoll completion zsh)\" in ~/.zshrc, after compinit" },
	{ "fish", completion_fish, sizeof(completion_fish),
	  "atoll completion fish >~/.config/fish/completions/atoll.fish" },
};
#define N_SCRIPTS (sizeof(scripts) / sizeof(scripts[0]))

static int put_script(const struct cli *c, size_t i)
{
	struct json j;

	if (c->json) {
		char text[sizeof(completion_bash) + sizeof(completion_zsh) +
		          sizeof(completion_fish)];

		memcpy(text, scripts[i].text, scripts[i].len);
		text[scripts[i].len] = '\0';
		cli_json_begin(c, &j);
		json_string(&j, "shell", scripts[i].shell);
		json_string(&j, "script", text);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	(void)fwrite(scripts[i].text, 1, scripts[i].len, stdout);
	/* Whoever evaluates it at every start of a shell does not want to read this. */
	if (cli_is_terminal(c, stdout))
		cli_next(c, "%s", scripts[i].next);
	return EXIT_SUCCESS;
}

static int completion_run(struct cli *c)
{
	size_t i = 0;

	while (strcmp(scripts[i].shell, c->args.words[0]) != 0)
		if (++i == N_SCRIPTS)
			BUG("'%s' is in the usage and not in the table", c->args.words[0]);
	return put_script(c, i);
}

const struct command cmd_completion = {
	.name = "completion",
	.run = completion_run,
	.words = "bash|zsh|fish",
	.summary = "print a script that makes a shell complete atoll's command lines",
	.about = "Packages install it where shells look for it. Elsewhere, for bash:\n"
		 "eval \"$(atoll completion bash)\"; for zsh the same after compinit; for fish:\n"
		 "atoll completion fish >~/.config/fish/completions/atoll.fish",
	.min_words = 1,
	.max_words = 1,
};
