/* SPDX-License-Identifier: Apache-2.0 */
/* What handlers share. */
#include "daemon/api.h"

#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cleanup_planp(struct atoll_plan **p)
{
	atoll_plan_free(*p);
}

int query_bool(struct call *c, const char *name, bool *ret)
{
	cleanup_free char *text = NULL;
	int r = call_query(c, name, &text);

	if (r < 0 || !text)
		return r;
	if (*text && strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
		return error_set(&c->err, -ATOLL_E_INVALID, "'%s' is true or false", name);
	*ret = strcmp(text, "false") != 0;
	return 0;
}

int query_number(struct call *c, const char *name, uint64_t max, uint64_t *ret)
{
	cleanup_free char *text = NULL;
	unsigned long long n;
	char *end;
	int r = call_query(c, name, &text);

	if (r < 0 || !text)
		return r;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || n > max)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "'%s' is to be a whole number, %llu at most", name,
		                 (unsigned long long)max);
	*ret = n;
	return 0;
}

int api_bound(struct call *c)
{
	if (c->who.scope != SCOPE_AGENT || *c->who.plan)
		return 0;
	(void)error_set(&c->err, -ATOLL_E_DENIED, "%s %s needs a token of the plan",
	                c->route->method, c->route->path);
	error_hint(&c->err, "POST /v1/sandboxes/{id}/auth answers with one");
	return -ATOLL_E_DENIED;
}

void api_settle(struct call *c, const struct atoll_plan *p)
{
	/* Not asked for, so a failure is not this request's: one that names the plan reports it. */
	plan_settle(c->atoll, NULL);
	cleanup_retention(c->atoll, p ? atoll_plan_id(p) : NULL);
}

static int unknown_word(struct call *c, const char *member, const char *word,
                        const struct api_word *table)
{
	cleanup_strbuf struct strbuf known = STRBUF_INIT;

	for (; table->word; table++)
		strbuf_printf(&known, "%s%s", known.len ? ", " : "", table->word);
	(void)error_set(&c->err, -ATOLL_E_INVALID, "member '%s': '%.64s' is none of its words",
	                member, word);
	error_hint(&c->err, "known are: %s", strbuf_str(&known));
	return -ATOLL_E_INVALID;
}

int api_words(struct call *c, const char *member, const char *const *list,
              const struct api_word *table, unsigned *flags)
{
	for (; list && *list; list++) {
		const struct api_word *row = table;

		while (row->word && strcmp(row->word, *list) != 0)
			row++;
		if (!row->word)
			return unknown_word(c, member, *list, table);
		*flags |= row->flag;
	}
	return 0;
}

static int fill_decided(struct json *j, void *arg)
{
	const struct api_fill *f = arg;

	answer_begin(j, j->out, f->format);
	if (strcmp(f->format, "commit") == 0)
		answer_committed(j, f->plan, f->flags, f->c->res);
	else
		answer_decided(j, f->plan, f->flags, f->c->res);
	json_close(j);
	return 0;
}

int api_decided(struct call *c, struct atoll_plan *p, const char *format, unsigned flags)
{
	struct api_fill f = { .c = c, .plan = p, .format = format, .flags = flags };

	return reply_json(c, 200, fill_decided, &f);
}
