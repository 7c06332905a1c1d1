/* SPDX-License-Identifier: Apache-2.0 */
/* The log: events and commands that ran, read as one, and the letting go of the oldest. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TRIM_EVERY 64  /* lines written */
#define TRIM_MOST  512 /* lines taken at once: a transaction stays short */

/* ---- reading ---- */

/* A plan that is gone is known by what its start says. */
#define NAME_OF(row)                                      \
	"coalesce((SELECT name FROM plan WHERE id = " row \
	".plan), (SELECT s.message FROM event s "         \
	"WHERE s.plan = " row ".plan AND s.what = 'start' ORDER BY s.seq LIMIT 1), '')"

/* A command that ran is told by its own row; its event says nothing more. */
/* clang-format off */
#define LOG_OF(which)                                                                        \
	"SELECT e.at_ms AS at, e.plan, " NAME_OF("e") ", e.what, e.code, e.message, "         \
	"-1, 0, 0, 0, 0, -1, e.seq AS seq, 0, 0, 0, '', '' FROM event e "                     \
	"WHERE NOT (e.what = 'exec' AND e.code = 0)" which("e")                               \
	" UNION ALL SELECT x.ended_ms, x.plan, " NAME_OF("x") ", 'exec', 0, x.argv, "         \
	"x.started_ms, x.exit_code, x.user_us, x.system_us, x.max_rss_kb, x.changes, x.seq, " \
	"x.term_signal, x.timed_out, x.memory_kills, x.output, x.job "                        \
	"FROM exec x WHERE true" which("x") " ORDER BY at DESC, seq DESC LIMIT ?1"
/* clang-format on */
#define OF_ALL(row)
#define OF_PLAN(row) " AND " row ".plan = ?2"

static void read_log(struct cols *c, void *item)
{
	struct log_row *row = item;

	row->at_ms = cols_int(c, INT64_MIN, INT64_MAX);
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->name, sizeof(row->name));
	row->what = cols_dup(c);
	row->code = (int)cols_int(c, INT_MIN, INT_MAX);
	row->message = cols_dup(c);
	row->started_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->exit_code = (int)cols_int(c, INT_MIN, INT_MAX);
	row->user_us = cols_int(c, INT64_MIN, INT64_MAX);
	row->system_us = cols_int(c, INT64_MIN, INT64_MAX);
	row->max_rss_kb = cols_int(c, INT64_MIN, INT64_MAX);
	row->changes = cols_int(c, INT64_MIN, INT64_MAX);
	row->seq = cols_int(c, INT64_MIN, INT64_MAX);
	row->term_signal = (int)cols_int(c, INT_MIN, INT_MAX);
	row->timed_out = cols_bool(c);
	row->memory_kills = cols_u32(c);
	row->output = cols_dup(c);
	row->job = cols_dup(c);
}

static void done_log(void *item)
{
	struct log_row *row = item;

	free(row->what);
	free(row->message);
	free(row->output);
	free(row->job);
}

int registry_log_list(struct registry *r, const char *plan, int64_t limit, registry_log_fn fn,
                      void *ctx, struct error *err)
{
	static const char all[] = LOG_OF(OF_ALL);
	static const char one[] = LOG_OF(OF_PLAN);
	cleanup_rows struct rows rows = { .size = sizeof(struct log_row),
		                          .read = read_log,
		                          .done = done_log };
	const struct log_row *lines;
	int k;

	if (plan)
		k = rows_fetch(r, one, ARGS(INT_VALUE(limit), TEXT_VALUE(plan)), &rows, err);
	else
		k = rows_fetch(r, all, ARGS(INT_VALUE(limit)), &rows, err);
	lines = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &lines[i]);
	return k < 0 ? k : 0;
}

struct output_row {
	char plan[PLAN_ID_LEN + 1];
	char name[REGISTRY_OUTPUT_LEN];
};

static void read_output(struct cols *c, void *item)
{
	struct output_row *row = item;

	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->name, sizeof(row->name));
}

int registry_log_output(struct registry *r, int64_t seq, char ret_plan[PLAN_ID_LEN + 1],
                        char ret_name[REGISTRY_OUTPUT_LEN], struct error *err)
{
	static const char sql[] = "SELECT plan, output FROM exec WHERE seq = ?1";
	cleanup_rows struct rows rows = { .size = sizeof(struct output_row), .read = read_output };
	const struct output_row *row;
	int k = rows_fetch(r, sql, ARGS(INT_VALUE(seq)), &rows, err);

	if (k < 0 || rows.n == 0)
		return k < 0 ? k : 0;
	row = rows.items;
	memcpy(ret_plan, row->plan, sizeof(row->plan));
	memcpy(ret_name, row->name, sizeof(row->name));
	return 1;
}

struct plan_id {
	char id[PLAN_ID_LEN + 1];
};

static void read_id(struct cols *c, void *item)
{
	cols_text(c, ((struct plan_id *)item)->id, PLAN_ID_LEN + 1);
}

int registry_log_find(struct registry *r, const char *ref, char ret_id[PLAN_ID_LEN + 1],
                      struct error *err)
{
	static const char sql[] = "SELECT plan FROM event WHERE plan = ?1 OR "
				  "(what = 'start' AND message = ?1) ORDER BY seq DESC LIMIT 1";
	cleanup_rows struct rows rows = { .size = sizeof(struct plan_id), .read = read_id };
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(ref)), &rows, err);

	if (k < 0 || rows.n == 0)
		return k < 0 ? k : 0;
	memcpy(ret_id, ((const struct plan_id *)rows.items)->id, PLAN_ID_LEN + 1);
	return 1;
}

/* ---- letting go ---- */

/* Of a table: what is too old or too many, but nothing of a batch that is not finished. */
#define TRIM(table, at)                                                                     \
	"DELETE FROM " table " WHERE seq IN (SELECT seq FROM " table " WHERE (" at " < ?1 " \
	"OR seq <= (SELECT max(seq) FROM " table ") - ?2) AND plan NOT IN "                 \
	"(SELECT id FROM plan WHERE batch <> 0) ORDER BY seq LIMIT ?3)"

int registry_log_trim(struct registry *r, int64_t seq, struct error *err)
{
	static const char *const tables[] = { TRIM("event", "at_ms"), TRIM("exec", "ended_ms") };
	int64_t max_age_ms, max_rows, now = clock_real_ms();
	int k = 0;

	if (seq % TRIM_EVERY != 0)
		return 0;
	registry_log_limits(r, &max_age_ms, &max_rows);
	for (size_t i = 0; k >= 0 && i < sizeof(tables) / sizeof(tables[0]); i++)
		k = registry_write(r, tables[i],
		                   ARGS(INT_VALUE(max_age_ms < 0 ? INT64_MIN : now - max_age_ms),
		                        INT_VALUE(max_rows < 0 ? INT64_MAX : max_rows),
		                        INT_VALUE(TRIM_MOST)),
		                   NULL, NULL, err);
	return k < 0 ? k : 0;
}
