/* SPDX-License-Identifier: Apache-2.0 */
/* Flags and results of the commands that decide about a plan's work. */
#include "cli/decide.h"

#include "cli/plan-words.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <stdlib.h>
#include <string.h>

static int unknown_value(struct cli *c, const struct decide_flag *table,
                         const struct option_given *given)
{
	cleanup_strbuf struct strbuf known = STRBUF_INIT;

	for (; table->option; table++)
		if (table->value && strcmp(table->option, given->row->name) == 0)
			strbuf_printf(&known, "%s%s", known.len ? ", " : "", table->value);
	return cli_fail_usage(c, "--%s: '%s' is none of: %s", given->row->name, given->value,
	                      strbuf_str(&known));
}

static bool row_matches(const struct decide_flag *row, const struct option_given *given)
{
	return strcmp(row->option, given->row->name) == 0 &&
	       (!row->value || strcmp(row->value, given->value) == 0);
}

int decide_flags(struct cli *c, const struct decide_flag *table, unsigned *ret_flags)
{
	*ret_flags = 0;
	for (size_t i = 0; i < c->args.n_given; i++) {
		const struct option_given *given = &c->args.given[i];
		const struct decide_flag *row = table;
		bool is_ours = false;

		for (; row->option && !row_matches(row, given); row++)
			is_ours |= strcmp(row->option, given->row->name) == 0;
		if (row->option)
			*ret_flags |= row->flag;
		else if (is_ours)
			return unknown_value(c, table, given);
	}
	return 0;
}

size_t decide_count(const struct cli *c, enum atoll_outcome outcome, uint64_t *ret_changes)
{
	size_t n = 0;

	*ret_changes = 0;
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (p->outcome != outcome)
			continue;
		*ret_changes += p->changes;
		n++;
	}
	return n;
}

static bool is_directory(const struct atoll_participant_result *p)
{
	return strcmp(p->strategy, "overlay") == 0 || strcmp(p->strategy, "copy") == 0;
}

const char *decide_noun(const struct cli *c, size_t n)
{
	for (size_t i = 0; i < atoll_result_participants(c->res); i++)
		if (!is_directory(atoll_result_participant(c->res, i)))
			return cli_plural(n, "resource", "resources");
	return cli_plural(n, "directory", "directories");
}

static int take_until(void *user, const struct atoll_plan_info *info)
{
	*(int64_t *)user = info->undo_until_ms;
	return 0;
}

char *decide_undo_words(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan), *final = NULL;
	char until[PLAN_UNTIL_LEN], when[PLAN_UNTIL_LEN + 8] = "";
	int64_t until_ms = 0;
	bool any = false;

	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (p->outcome == ATOLL_OUTCOME_COMMITTED && p->final)
			final = p->strategy;
		any |= p->outcome == ATOLL_OUTCOME_COMMITTED && !p->final;
	}
	if (flags & ATOLL_NO_UNDO)
		return xstrdup("it cannot be undone (--no-undo)");
	if (final && !any)
		return xasprintf("what is committed to %s cannot be undone", final);
	(void)atoll_plan_show(c->plan, take_until, &until_ms, NULL);
	if (until_ms == 0)
		return xstrdup("it cannot be undone, since an earlier commit of the plan cannot");
	if (until_ms != INT64_MAX) {
		plan_until_words(until_ms, until);
		(void)snprintf(when, sizeof(when), " until %s", until);
	}
	if (final)
		return xasprintf("%s cannot be undone; undo the rest%s: atoll undo %s --allow "
		                 "partial",
		                 final, when, name);
	return xasprintf("undo%s: atoll undo %s", when, name);
}

/* WORD as a shell takes it for one word. */
static void add_quoted(struct strbuf *sb, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_./+-@%,:=";

	if (*word && strspn(word, plain) == strlen(word)) {
		strbuf_puts(sb, word);
		return;
	}
	strbuf_putc(sb, '\'');
	for (; *word; word++)
		if (*word == '\'')
			strbuf_puts(sb, "'\\''");
		else
			strbuf_putc(sb, *word);
	strbuf_putc(sb, '\'');
}

char *decide_commit_words(const struct cli *c)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	const char *pattern;
	size_t at = 0;

	strbuf_printf(&sb, "atoll commit %s", atoll_plan_name(c->plan));
	for (size_t i = 0; i < c->args.n_words; i++) {
		strbuf_putc(&sb, ' ');
		add_quoted(&sb, c->args.words[i]);
	}
	while ((pattern = args_next(&c->args, "exclude", &at))) {
		strbuf_puts(&sb, " --exclude ");
		add_quoted(&sb, pattern);
	}
	return strbuf_take(&sb);
}

int decide_json(const struct cli *c, unsigned flags)
{
	struct json j;

	cli_json_begin(c, &j);
	answer_decided(&j, c->plan, flags, c->res);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}
