/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of command lines. */
#include "cli/options.h"

#include "cli/suggest.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 1e9 /* thirty years */

struct parse {
	struct args *args;
	char **next; /* into argv */
	const struct option_row *own;
	const struct option_row *common;
	struct error *err;
};

static const struct option_row *find_in(const struct option_row *table, const char *name,
                                        size_t len)
{
	for (; table && table->name; table++)
		if (strlen(table->name) == len && strncmp(table->name, name, len) == 0)
			return table;
	return NULL;
}

static void suggest_from(struct suggestion *s, const struct option_row *table)
{
	for (; table && table->name; table++)
		suggest_try(s, table->name);
}

static int unknown(struct parse *p, const char *name, size_t len)
{
	cleanup_free char *text = xstrndup(name, len);
	struct suggestion s = { .wanted = text };

	suggest_from(&s, p->own);
	suggest_from(&s, p->common);
	(void)error_set(p->err, -ATOLL_E_INVALID, "unknown option '--%s'", text);
	if (s.best)
		error_hint(p->err, "did you mean '--%s'?", s.best);
	return -ATOLL_E_INVALID;
}

static void give(struct args *a, const struct option_row *row, const char *value)
{
	a->given[a->n_given++] = (struct option_given){ .row = row, .value = value };
}

static int parse_long(struct parse *p, const char *arg)
{
	const char *name = arg + 2;
	const char *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct option_row *row = find_in(p->own, name, len);

	if (!row)
		row = find_in(p->common, name, len);
	if (!row)
		return unknown(p, name, len);
	if (!row->value && equals)
		return error_set(p->err, -ATOLL_E_INVALID, "option '--%s' takes no value",
		                 row->name);
	if (row->value && !equals && !*p->next)
		return error_set(p->err, -ATOLL_E_INVALID, "option '--%s' needs a value: %s",
		                 row->name, row->value);
	if (!row->value)
		give(p->args, row, NULL);
	else
		give(p->args, row, equals ? equals + 1 : *p->next++);
	return 0;
}

static int parse_short(struct parse *p, const char *arg)
{
	const struct option_row *help = find_in(p->common, "help", strlen("help"));

	if (strcmp(arg, "-h") == 0 && help) {
		give(p->args, help, NULL);
		return 0;
	}
	return error_set(p->err, -ATOLL_E_INVALID, "unknown option '%s'", arg);
}

static size_t count(char **argv)
{
	size_t n = 0;

	while (argv[n])
		n++;
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

	a->given = xcalloc(n + 1, sizeof(*a->given));
	a->words = xcalloc(n + 1, sizeof(*a->words));
	while (r == 0 && *p.next) {
		char *arg = *p.next++;

		if (strcmp(arg, "--") == 0) {
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
