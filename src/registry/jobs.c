/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in the background: one row for each name of a plan, of its last run. */
#include "registry/registry.h"

#include "registry/news.h"
#include "registry/rows-impl.h"

#include <limits.h>
#include <stdlib.h>

int registry_job_put(struct registry *r, const struct job_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT OR REPLACE INTO job (plan, name, argv, boot, epoch, output, started_ms, "
		"ended_ms, exit_code, term_signal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, 0)";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->plan), TEXT_VALUE(row->name),
	                            TEXT_VALUE(row->argv), TEXT_VALUE(row->boot),
	                            INT_VALUE(row->epoch), TEXT_VALUE(row->output),
	                            INT_VALUE(row->started_ms)),
	                       NULL, NULL, err);

	return k < 0 ? k : registry_news_add(r, row->plan, "job-begin", row->name, err);
}

int registry_job_end(struct registry *r, const struct job_row *row, struct error *err)
{
	/* Not that of another run by the same name. */
	static const char sql[] = "UPDATE job SET ended_ms = ?4, exit_code = ?5, term_signal = ?6 "
				  "WHERE plan = ?1 AND name = ?2 AND output = ?3";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->plan), TEXT_VALUE(row->name),
	                            TEXT_VALUE(row->output), INT_VALUE(row->ended_ms),
	                            INT_VALUE(row->exit_code), INT_VALUE(row->term_signal)),
	                       NULL, NULL, err);

	/* Nobody hears of the end of what never began. */
	return k <= 0 ? k : registry_news_add(r, row->plan, "job", row->name, err);
}

static void read_job(struct cols *c, void *item)
{
	struct job_row *row = item;

	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->name, sizeof(row->name));
	row->argv = cols_dup(c);
	cols_text(c, row->boot, sizeof(row->boot));
	row->epoch = cols_int(c, INT64_MIN, INT64_MAX);
	cols_text(c, row->output, sizeof(row->output));
	row->started_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->ended_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->exit_code = (int)cols_int(c, INT_MIN, INT_MAX);
	row->term_signal = (int)cols_int(c, INT_MIN, INT_MAX);
}

static void done_job(void *item)
{
	free(((struct job_row *)item)->argv);
}

int registry_job_list(struct registry *r, const char *plan, registry_job_fn fn, void *ctx,
                      struct error *err)
{
	static const char sql[] = "SELECT plan, name, argv, boot, epoch, output, started_ms, "
				  "ended_ms, exit_code, term_signal FROM job "
				  "WHERE ?1 = '' OR plan = ?1 ORDER BY plan, started_ms";
	cleanup_rows struct rows rows = { .size = sizeof(struct job_row),
		                          .read = read_job,
		                          .done = done_job };
	const struct job_row *jobs;
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(plan ? plan : "")), &rows, err);

	jobs = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &jobs[i]);
	return k < 0 ? k : 0;
}
