/* SPDX-License-Identifier: Apache-2.0 */
/* Flags and results of the commands that decide about a plan's work. */
#include "cli/decide.h"

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

int decide_json(const struct cli *c, unsigned flags)
{
	struct json j;

	cli_json_begin(c, &j);
	answer_decided(&j, c->plan, flags, c->res);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}
