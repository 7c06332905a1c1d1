/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll __complete -- WORD...: what the last word could become, for the scripts in completions/.
 * The words are those after "atoll", up to the cursor. The tables of the commands know it all;
 * the store is only read, and only where there is one. What fails here fails silently: somebody
 * is in the middle of typing.
 *
 * The first line says what the shell should add of its own: "none", "files", "dirs", or
 * "command N", when the words from number N on (counted from 0) are a command line of another
 * program. Each further line is a candidate, a tab, and what it is.
 */
#include "cli/cli.h"

#include "plan/choose.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "remote/remote.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/utf8.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 500 /* of a directory; nobody reads more */

/* A command line as far as it goes. */
struct line {
	struct cli *c;
	char **words;
	size_t n; /* without the last, which is CUR */
	const char *cur;
	const struct command *command;      /* NULL: not named yet */
	const struct option_row *waiting;   /* an option whose value comes next */
	const struct option_row *flags[64]; /* given already, without a value */
	size_t n_flags;
	size_t n_words; /* of the command */
	size_t program; /* where another program's command line begins; SIZE_MAX: nowhere */
	const char *plan;
	bool plain; /* options are over */
	bool there; /* --remote was given */
};

/* ---- reading what was typed ---- */

static const struct option_row *find_row(const struct option_row *table, const char *name,
                                         size_t len)
{
	for (; table && table->name; table++)
		if (strlen(table->name) == len && strncmp(table->name, name, len) == 0)
			return table;
	return NULL;
}

static const struct option_row *find_option(const struct line *l, const char *name, size_t len)
{
	const struct option_row *row = NULL;

	if (l->command)
		row = find_row(l->command->options, name, len);
	if (!row && l->command && l->command->there)
		row = find_row(l->command->there->options, name, len);
	return row ? row : find_row(common_options, name, len);
}

static enum value_kind kind_of_word(const struct line *l, size_t i, char **ret_name)
{
	size_t len;
	const char *name = words_at(l->command->words, i, &len);

	*ret_name = name ? xstrndup(name, len) : NULL;
	return name ? value_kind(*ret_name) : VALUE_NONE;
}

static void read_option(struct line *l, const char *word)
{
	size_t len = strcspn(word + 2, "=");
	const struct option_row *row = find_option(l, word + 2, len);

	if (row && row->value && word[2 + len] != '=')
		l->waiting = row;
	if (row && strcmp(row->name, "remote") == 0)
		l->there = true;
	if (row && !row->value && l->n_flags < sizeof(l->flags) / sizeof(l->flags[0]))
		l->flags[l->n_flags++] = row;
}

static void read_command_word(struct line *l, size_t i)
{
	cleanup_free char *name = NULL;
	enum value_kind kind = kind_of_word(l, l->n_words, &name);

	if (kind == VALUE_PLAN)
		l->plan = l->words[i];
	if (kind == VALUE_COMMAND && l->command->stop_at)
		l->program = i;
	l->n_words++;
	if (l->command->stop_at && l->n_words >= l->command->stop_at)
		l->plain = true;
}

static void read_word(struct line *l, size_t i)
{
	const char *word = l->words[i];

	if (l->waiting)
		l->waiting = NULL;
	else if (!l->plain && strcmp(word, "--") == 0)
		l->plain = true;
	else if (!l->plain && strncmp(word, "--", 2) == 0)
		read_option(l, word);
	else if (!l->plain && word[0] == '-' && word[1])
		return;
	else if (!l->command)
		l->command = command_find(word, NULL);
	else
		read_command_word(l, i);
	if (l->there && l->command && l->command->there)
		l->command = l->command->there;
}

/* ---- candidates ---- */

/* PREFIX is what stands before the value in the word: "--color=". */
static void offer(const struct line *l, const char *prefix, const char *value, const char *about)
{
	cleanup_free char *whole = xasprintf("%s%s", prefix, value);
	size_t about_len = strcspn(about ? about : "", "\n");

	if (strncmp(whole, l->cur, strlen(l->cur)) != 0)
		return;
	/* A line each, for a terminal: what would break either is left out. */
	for (const char *p = whole; *p;) {
		uint32_t ch;
		size_t n = utf8_decode(p, strlen(p), &ch);

		if (n == 0 || utf8_is_hidden(ch))
			return;
		p += n;
	}
	(void)printf("%s\t%.*s\n", whole, (int)about_len, about ? about : "");
}

struct offering {
	const struct line *l;
	const char *prefix;
};

static int offer_plan(void *user, const struct atoll_plan_info *info)
{
	const struct offering *o = user;
	cleanup_free char *about =
		xasprintf("%s, %zu %s%s%s", atoll_plan_state_name(info->state), info->sandboxes,
	                  cli_plural(info->sandboxes, "resource", "resources"),
	                  info->abandoned ? ", abandoned" : "", info->in_doubt ? ", in doubt" : "");

	offer(o->l, o->prefix, info->name, about);
	return 0;
}

static int offer_root(void *user, const struct atoll_sandbox_info *info)
{
	const struct offering *o = user;

	offer(o->l, o->prefix, info->root, info->strategy);
	return 0;
}

/* What the word could be below a root, seen from there. */
static int offer_below_root(void *user, const struct atoll_sandbox_info *info)
{
	const struct offering *o = user;
	const char *typed = o->l->cur + strlen(o->prefix);
	const char *slash = strrchr(typed, '/');
	int dir_len = slash ? (int)(slash - typed) + 1 : 0;
	cleanup_free char *path = xasprintf("%s/%.*s", info->root, dir_len, typed);
	struct dirent *entry;
	DIR *dir = *typed == '/' ? NULL : opendir(path);

	for (size_t i = 0; dir && i < ENTRIES_MAX && (entry = readdir(dir)); i++) {
		cleanup_free char *name = xasprintf("%.*s%s%s", dir_len, typed, entry->d_name,
		                                    entry->d_type == DT_DIR ? "/" : "");

		if (entry->d_name[0] != '.' || typed[dir_len] == '.')
			offer(o->l, o->prefix, name, info->root);
	}
	if (dir)
		(void)closedir(dir);
	return 0;
}

static bool open_store(struct cli *c)
{
	if (c->atoll)
		return true;
	store_program(true);
	return store_is_made() && atoll_open(NULL, &c->atoll, NULL) == 0;
}

static void offer_plans(const struct line *l, const char *prefix)
{
	struct offering o = { .l = l, .prefix = prefix };

	if (open_store(l->c))
		(void)atoll_plan_list(l->c->atoll, offer_plan, &o, NULL);
}

static void offer_resources(const struct line *l, const char *prefix, atoll_sandbox_fn fn)
{
	struct offering o = { .l = l, .prefix = prefix };

	if (l->plan && !l->c->plan && open_store(l->c))
		(void)atoll_plan_find(l->c->atoll, l->plan, &l->c->plan, NULL);
	if (l->c->plan)
		(void)atoll_plan_sandboxes(l->c->plan, fn, &o, NULL);
}

static void offer_choices(const struct line *l, const char *prefix, const char *choices)
{
	const char *word, *at = NULL;
	size_t len;

	while ((word = value_choice(choices, &at, &len))) {
		cleanup_free char *text = xstrndup(word, len);

		offer(l, prefix, text, NULL);
	}
}

static void offer_commands(const struct line *l)
{
	const struct command *cmd;

	for (size_t i = 0; (cmd = command_at(i)); i++) {
		const char *also = cmd->also;

		if (!cmd->hidden)
			offer(l, "", cmd->name, cmd->summary);
		while (also && *also) {
			size_t len = strcspn(also, " ");
			cleanup_free char *word = xstrndup(also, len);
			cleanup_free char *about = xasprintf("as %s", cmd->name);

			offer(l, "", word, about);
			also += len + (also[len] == ' ');
		}
	}
}

static void offer_value(const struct line *l, const char *prefix, const char *name)
{
	enum value_kind kind = value_kind(name);
	bool files = kind == VALUE_PATH || kind == VALUE_FILE;

	(void)puts(kind == VALUE_DIR ? "dirs" : files ? "files" : "none");
	if (kind == VALUE_CHOICE)
		offer_choices(l, prefix, name);
	else if (kind == VALUE_PLAN)
		offer_plans(l, prefix);
	else if (kind == VALUE_COMMAND)
		offer_commands(l);
	else if (kind == VALUE_RESOURCE || kind == VALUE_PATH)
		offer_resources(l, prefix, offer_root);
	if (kind == VALUE_PATH)
		offer_resources(l, prefix, offer_below_root);
}

static int offer_remote(void *user, const struct remote_config *r)
{
	const struct offering *o = user;

	offer(o->l, o->prefix, r->name, r->url);
	return 0;
}

static void offer_all(const struct line *l, const char *prefix, const struct strlist *names)
{
	for (size_t i = 0; i < names->n; i++)
		offer(l, prefix, names->v[i], NULL);
}

static void offer_profiles(const struct line *l, const char *prefix)
{
	cleanup_strlist struct strlist names = STRLIST_INIT;

	profile_names(&names);
	offer_all(l, prefix, &names);
}

static void offer_strategies(const struct line *l, const char *prefix)
{
	cleanup_strlist struct strlist names = STRLIST_INIT;

	choose_names(&names);
	offer_all(l, prefix, &names);
}

/* Of an option that is not called as its value's kind is. */
static void offer_value_of(const struct line *l, const char *prefix, const struct option_row *row)
{
	struct offering o = { .l = l, .prefix = prefix };

	offer_value(l, prefix, row ? row->value : NULL);
	if (row && strcmp(row->name, "remote") == 0)
		(void)remote_config_list(offer_remote, &o, NULL);
	if (row && strcmp(row->name, "profile") == 0)
		offer_profiles(l, prefix);
	if (row && strcmp(row->name, "strategy") == 0)
		offer_strategies(l, prefix);
}

/* Those of TABLE that are not in BUT, which may be NULL. */
static void offer_options(const struct line *l, const struct option_row *table,
                          const struct option_row *but)
{
	for (; table && table->name; table++) {
		cleanup_free char *text = xasprintf("--%s", table->name);
		bool given = find_row(but, table->name, strlen(table->name)) != NULL;

		for (size_t i = 0; i < l->n_flags; i++)
			given |= l->flags[i] == table;
		if (!given)
			offer(l, "", text, table->help);
	}
}

static void offer_option(const struct line *l)
{
	const char *equals = strchr(l->cur, '=');
	const struct option_row *row;

	if (equals) {
		cleanup_free char *prefix = xstrndup(l->cur, (size_t)(equals - l->cur) + 1);

		row = find_option(l, l->cur + 2, (size_t)(equals - l->cur) - 2);
		offer_value_of(l, prefix, row);
		return;
	}
	(void)puts("none");
	if (l->command)
		offer_options(l, l->command->options, NULL);
	if (l->command && l->command->there)
		offer_options(l, l->command->there->options, l->command->options);
	offer_options(l, common_options, NULL);
}

/* The first word of a command whose PLAN may be left out. */
static void offer_plan_or_path(const struct line *l)
{
	(void)puts("files");
	offer_plans(l, "");
}

static void offer_word(const struct line *l)
{
	cleanup_free char *name = NULL;
	enum value_kind kind = kind_of_word(l, l->n_words, &name);

	if (l->program != SIZE_MAX)
		(void)printf("command %zu\n", l->program);
	else if (kind == VALUE_COMMAND && l->command->stop_at)
		(void)printf("command %zu\n", l->n);
	else if (kind == VALUE_PLAN && l->command->paths_follow)
		offer_plan_or_path(l);
	else
		offer_value(l, "", name);
}

static int complete_run(struct cli *c)
{
	struct line l = { .c = c, .words = c->args.words, .program = SIZE_MAX };

	l.n = c->args.n_words - 1;
	l.cur = l.words[l.n];
	for (size_t i = 0; i < l.n; i++)
		read_word(&l, i);
	if (l.waiting) {
		offer_value_of(&l, "", l.waiting);
	} else if (!l.plain && l.cur[0] == '-') {
		offer_option(&l);
	} else if (l.command) {
		offer_word(&l);
	} else {
		(void)puts("none");
		if (l.n_words == 0)
			offer_commands(&l);
	}
	return EXIT_SUCCESS;
}

const struct command cmd_complete = {
	.name = "__complete",
	.run = complete_run,
	.words = "[ARGUMENT]...",
	.summary = "what the last word of a command line could become",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.reads = true,
	.hidden = true,
};
