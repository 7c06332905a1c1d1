/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for a commit. */
#include "registry/ask.h"

#include "registry/news.h"
#include "registry/rows-impl.h"
#include "util/clock.h"

#include <stdlib.h>

int registry_ask_end(struct registry *r, const char *plan, int64_t id, enum ask_state to,
                     const char *by, struct error *err)
{
	static const char sql[] = "UPDATE ask SET state = ?3, ended_ms = ?4, ended_by = ?5 "
				  "WHERE plan = ?1 AND state = 0 AND (?2 = 0 OR seq = ?2)";
	int n = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(plan), INT_VALUE(id), INT_VALUE(to),
	                            INT_VALUE(clock_real_ms()), TEXT_VALUE(by)),
	                       NULL, NULL, err);
	int k = n > 0 ? registry_news_add(r, plan, "ask-end", by, err) : 0;

	return k < 0 ? k : n;
}

int registry_ask_insert(struct registry *r, struct ask_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO ask (plan, who, message, digest, at_ms, state, ended_ms, ended_by) "
		"VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, '') RETURNING seq";
	int k = registry_ask_end(r, row->plan, 0, ASK_WITHDRAWN, row->who, err);

	if (k >= 0)
		k = rows_write_number(r, sql,
		                      ARGS(TEXT_VALUE(row->plan), TEXT_VALUE(row->who),
		                           TEXT_VALUE(row->message), TEXT_VALUE(row->digest),
		                           INT_VALUE(row->at_ms)),
		                      &row->id, err);
	return k < 0 ? k : registry_news_add(r, row->plan, "ask", row->message, err);
}

static void read_ask(struct cols *c, void *item)
{
	struct ask_row *row = item;

	row->id = cols_int(c, 0, INT64_MAX);
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->who, sizeof(row->who));
	row->message = cols_dup(c);
	cols_text(c, row->digest, sizeof(row->digest));
	row->at_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->state = (enum ask_state)cols_int(c, 0, ASK_STATE_END_ - 1);
	row->ended_ms = cols_int(c, INT64_MIN, INT64_MAX);
	cols_text(c, row->ended_by, sizeof(row->ended_by));
}

static void done_ask(void *item)
{
	free(((struct ask_row *)item)->message);
}

int registry_ask_list(struct registry *r, const char *plan, bool open_only, registry_ask_fn fn,
                      void *ctx, struct error *err)
{
	static const char sql[] = "SELECT seq, plan, who, message, digest, at_ms, state, ended_ms, "
				  "ended_by FROM ask WHERE (?1 = '' OR plan = ?1) "
				  "AND (?2 = 0 OR state = 0) ORDER BY seq DESC";
	cleanup_rows struct rows rows = { .size = sizeof(struct ask_row),
		                          .read = read_ask,
		                          .done = done_ask };
	const struct ask_row *asks;
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(plan ? plan : ""), INT_VALUE(open_only)), &rows,
	                   err);

	asks = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &asks[i]);
	return k < 0 ? k : 0;
}
