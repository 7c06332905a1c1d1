/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of command lines. */
#include "cli/options.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"
#include "util/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 1e9 /* thirty years */

/* Few, and only where people type them without looking. */
static const struct {
	char letter;
	const char *name;
} letters[] = {
	{ 'f', "force" }, { 'h', "help" },  { 'n', "dry-run" },
	{ 'p', "patch" }, { 'q', "quiet" }, { 'y', "yes" },
};
#define N_LETTERS (sizeof(letters) / sizeof(letters[0]))

static const struct {
	const char *name;
	enum value_kind kind;
} kinds[] = {
	{ "PLAN", VALUE_PLAN },       { "RESOURCE", VALUE_RESOURCE },
	{ "PATH", VALUE_PATH },       { "DIR", VALUE_DIR },
	{ "FILE", VALUE_FILE },       { "COMMAND", VALUE_COMMAND },
	{ "SECONDS", VALUE_SECONDS }, { "TIME", VALUE_FREE },
	{ "NAME", VALUE_FREE },       { "GLOB", VALUE_FREE },
	{ "N", VALUE_FREE },          { "DIGEST", VALUE_FREE },
	{ "LINES", VALUE_FREE },      { "ID", VALUE_FREE },
	{ "KEY", VALUE_FREE },        { "VALUE", VALUE_FREE },
	{ "ARGUMENT", VALUE_FREE },   { "CHILD=PARENT", VALUE_FREE },
	{ "URL", VALUE_FREE },        { "HOST:PORT", VALUE_FREE },
	{ "SIZE", VALUE_FREE },       { "NAME[=VALUE]", VALUE_FREE },
};

struct parse {
	struct args *args;
	char **next; /* into argv */
	const struct option_row *own;
	const struct option_row *common;
	struct error *err;
};

char option_letter(const char *name)
{
	for (size_t i = 0; i < N_LETTERS; i++)
		if (strcmp(letters[i].name, name) == 0)
			return letters[i].letter;
	return 0;
}

enum value_kind value_kind(const char *name)
{
	if (!name)
		return VALUE_NONE;
	if (strchr(name, '|') || islower((unsigned char)*name))
		return VALUE_CHOICE;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return kinds[i].kind;
	return VALUE_UNKNOWN;
}

const char *value_kind_name(enum value_kind kind)
{
	static const char *const names[] = {
		[VALUE_NONE] = "none",       [VALUE_CHOICE] = "choice",
		[VALUE_PLAN] = "plan",       [VALUE_RESOURCE] = "resource",
		[VALUE_PATH] = "path",       [VALUE_DIR] = "directory",
		[VALUE_FILE] = "file",       [VALUE_COMMAND] = "command",
		[VALUE_SECONDS] = "seconds", [VALUE_FREE] = "free",
		[VALUE_UNKNOWN] = "unknown",
	};
	_Static_assert(sizeof(names) / sizeof(names[0]) == VALUE_KIND_END_, "every kind has one");

	return names[kind];
}

const char *words_at(const char *words, size_t i, size_t *ret_len)
{
	const char *last = NULL;

	while (*words) {
		size_t len = strcspn(words, " ");
		const char *name = words + (*words == '[');
		size_t name_len = strcspn(name, " ].");

		if (name_len > 0 && *name != '-') {
			last = name;
			*ret_len = name_len;
			if (i-- == 0)
				return name;
		}
		words += len + (words[len] == ' ');
	}
	if (!last || words[-1] != '.')
		return NULL;
	return last;
}

const char *value_choice(const char *name, const char **at, size_t *ret_len)
{
	const char *word = *at ? *at + strcspn(*at, "|") : name;

	if (*at && *word == '\0')
		return NULL;
	word += *at != NULL;
	*ret_len = strcspn(word, "|");
	*at = word;
	return word;
}

static const struct option_row *find_in(const struct option_row *table, const char *name,
                                        size_t len)
{
	for (; table && table->name; table++)
		if (strlen(table->name) == len && strncmp(table->name, name, len) == 0)
			return table;
	return NULL;
}

static const struct option_row *find(const struct parse *p, const char *name, size_t len)
{
	const struct option_row *row = find_in(p->own, name, len);

	return row ? row : find_in(p->common, name, len);
}

static void suggest_from(struct suggestions *s, const struct option_row *table)
{
	for (; table && table->name; table++)
		suggest_try(s, table->name, strlen(table->name));
}

static int unknown(struct parse *p, const char *name, size_t len)
{
	cleanup_free char *text = xstrndup(name, len);
	struct suggestions s = { .wanted = text };

	suggest_from(&s, p->own);
	suggest_from(&s, p->common);
	(void)error_set(p->err, -ATOLL_E_INVALID, "unknown option '--%s'", text);
	suggest_hint(&s, "--", p->err);
	return -ATOLL_E_INVALID;
}

static int not_a_choice(const char *what, const char *choices, const char *value, struct error *err)
{
	cleanup_strbuf struct strbuf known = STRBUF_INIT;
	struct suggestions s = { .wanted = value };
	const char *word, *at = NULL;
	size_t len;

	while ((word = value_choice(choices, &at, &len))) {
		strbuf_printf(&known, "%s%.*s", known.len ? ", " : "", (int)len, word);
		suggest_try(&s, word, len);
	}
	(void)error_set(err, -ATOLL_E_INVALID, "%s: '%s' is none of: %s", what, value,
	                strbuf_str(&known));
	suggest_hint(&s, "", err);
	return -ATOLL_E_INVALID;
}

int value_check(const char *what, const char *name, const char *value, struct error *err)
{
	const char *word, *at = NULL;
	size_t len;

	if (value_kind(name) != VALUE_CHOICE)
		return 0;
	while ((word = value_choice(name, &at, &len)))
		if (strlen(value) == len && strncmp(value, word, len) == 0)
			return 0;
	return not_a_choice(what, name, value, err);
}

static int check_value(struct parse *p, const struct option_row *row, const char *value)
{
	cleanup_free char *what = xasprintf("option '--%s'", row->name);

	return value_check(what, row->value, value, p->err);
}

/* ROW was met, with VALUE attached to it or NULL. */
static int give(struct parse *p, const struct option_row *row, const char *value)
{
	struct args *a = p->args;

	if (!row->value && value)
		return error_set(p->err, -ATOLL_E_INVALID, "option '--%s' takes no value",
		                 row->name);
	if (row->value && !value && !*p->next)
		return error_set(p->err, -ATOLL_E_INVALID, "option '--%s' needs a value: %s",
		                 row->name, row->value);
	if (row->value && !value)
		value = *p->next++;
	a->given[a->n_given++] = (struct option_given){ .row = row, .value = value };
	return row->value ? check_value(p, row, value) : 0;
}

static int parse_long(struct parse *p, const char *arg)
{
	const char *name = arg + 2;
	const char *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct option_row *row = find(p, name, len);

	return row ? give(p, row, equals ? equals + 1 : NULL) : unknown(p, name, len);
}

static const struct option_row *find_letter(const struct parse *p, char letter)
{
	for (size_t i = 0; i < N_LETTERS; i++)
		if (letters[i].letter == letter)
			return find(p, letters[i].name, strlen(letters[i].name));
	return NULL;
}

/* "-ny" is "-n -y"; what follows the letter of an option with a value is the value. */
static int parse_short(struct parse *p, const char *arg)
{
	int r = 0;

	for (const char *at = arg + 1; r == 0 && *at; at++) {
		const struct option_row *row = find_letter(p, *at);

		if (!row)
			return error_set(p->err, -ATOLL_E_INVALID, "unknown option '-%c' in '%s'",
			                 *at, arg);
		if (row->value)
			return give(p, row, at[1] ? at + 1 : NULL);
		r = give(p, row, NULL);
	}
	return r;
}

static size_t count(char **argv)
{
	size_t n = 0;

	while (argv[n])
		n++;
	return n;
}

/* Not more options than this can have been given: letters may stand together. */
static size_t count_given(char **argv)
{
	size_t n = 0;

	for (; *argv; argv++)
		n += (*argv)[0] == '-' && (*argv)[1] != '-' ? strlen(*argv) : 1;
	return n;
}

static void take_rest(struct parse *p)
{
	while (*p->next)
		p->args->words[p->args->n_words++] = *p->next++;
}

int args_parse(struct args *a, char **argv, const struct option_row *own,
               const struct option_row *common, size_t stop_at, struct error *err)
{
	struct parse p = { .args = a, .next = argv, .own = own, .common = common, .err = err };
	size_t n = count(argv);
	int r = 0;

	a->given = xcalloc(count_given(argv) + 1, sizeof(*a->given));
	a->words = xcalloc(n + 1, sizeof(*a->words));
	a->n_before_dashes = SIZE_MAX;
	while (r == 0 && *p.next) {
		char *arg = *p.next++;

		if (strcmp(arg, "--") == 0) {
			a->n_before_dashes = a->n_words;
			take_rest(&p);
		} else if (strncmp(arg, "--", 2) == 0) {
			r = parse_long(&p, arg);
		} else if (arg[0] == '-' && arg[1]) {
			r = parse_short(&p, arg);
		} else {
			a->words[a->n_words++] = arg;
			if (stop_at && a->n_words == stop_at)
				take_rest(&p);
		}
	}
	return r;
}

void args_done(struct args *a)
{
	free(a->given);
	free(a->words);
	*a = ARGS_INIT;
}

const char *args_next(const struct args *a, const char *name, size_t *at)
{
	while (*at < a->n_given) {
		const struct option_given *g = &a->given[(*at)++];

		if (strcmp(g->row->name, name) == 0)
			return g->value ? g->value : "";
	}
	return NULL;
}

const char *args_value(const struct args *a, const char *name)
{
	const char *value = NULL;
	const char *next;
	size_t at = 0;

	while ((next = args_next(a, name, &at)))
		value = next;
	return value;
}

bool args_has(const struct args *a, const char *name)
{
	return args_value(a, name) != NULL;
}

/* Whether ARG, which is none of ours, takes the next one along. */
static bool takes_next(const char *arg, const struct option_row *const *tables, size_t n)
{
	size_t len = strcspn(arg + 2, "=");

	for (size_t i = 0; i < n && arg[2 + len] == '\0'; i++) {
		const struct option_row *row = find_in(tables[i], arg + 2, len);

		if (row)
			return row->value != NULL;
	}
	return false;
}

const char *args_peek(char **argv, const char *name, const struct option_row *const *tables,
                      size_t n, size_t stop_at)
{
	const char *found = NULL;
	size_t words = 0, len = strlen(name);

	for (; *argv && strcmp(*argv, "--") != 0; argv++) {
		const char *arg = *argv;

		if (strncmp(arg, "--", 2) != 0) {
			words += arg[0] != '-' || arg[1] == '\0';
			if (stop_at && words == stop_at)
				break;
		} else if (strncmp(arg + 2, name, len) == 0 && arg[2 + len] == '=') {
			found = arg + 2 + len + 1;
		} else if (argv[1] && takes_next(arg, tables, n)) {
			argv++;
			if (strcmp(arg + 2, name) == 0)
				found = *argv;
		}
	}
	return found;
}

int args_seconds(const struct args *a, const char *name, int64_t *ret_ms, struct error *err)
{
	const char *text = args_value(a, name);
	double seconds;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	seconds = strtod(text, &end);
	/* Put so that what is no number (NaN) is refused too. */
	if (errno != 0 || end == text || *end != '\0' || !(seconds >= 0 && seconds <= SECONDS_MAX))
		return error_set(err, -ATOLL_E_INVALID,
		                 "option '--%s': '%s' is no number of seconds", name, text);
	*ret_ms = (int64_t)(seconds * 1000 + 0.999); /* never less than asked for */
	return 0;
}
